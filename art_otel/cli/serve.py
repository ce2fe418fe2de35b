"""`art-otel serve`: an OTLP endpoint that hands finished rollouts to a trainer."""

import argparse
import os
import signal
import socket
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from art_otel.cli.arguments import add_rollout_attributes, add_scrub_patterns, seconds
from art_otel.errors import UsageError
from art_otel.tracing.setup.settings import DIR

if TYPE_CHECKING:
    from art_otel.http import Tls
    from art_otel.receiver.receiver import Receiver, ReceiverOptions

TOKEN: Final = "ART_OTEL_TOKEN"  # noqa: S105 # the name of a variable
_MIB: Final = 1 << 20
_SWITCH: Final = 0.001
"""Seconds after which a thread lets another run: one that builds trajectories must not keep exports waiting."""


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "serve",
        help="receive OTLP from anywhere, and give finished rollouts to a trainer",
        description="Receive OTLP from agents in any language on any machine, keep it on disk, and give rollouts"
        " to trainers (art_otel.connect) as soon as they end. The received spans are a dump: `art-otel"
        " convert DIR/spool/received`.",
    )
    _add_addresses(parser)
    add_receiver_arguments(parser)
    parser.set_defaults(run=run)


def add_receiver_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a receiver is told wherever it listens: what is kept, when rollouts end, who may send."""
    _add_storage(parser)
    _add_scrubbing(parser)
    parser.add_argument(
        "--rollout-span",
        action="append",
        default=[],
        metavar="GLOB",
        help="a span with a matching name begins a rollout; may be repeated",
    )
    add_rollout_attributes(parser)
    _add_security(parser)


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where it listens."""
    parser.add_argument(
        "--listen", default="127.0.0.1:4318", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:4318)"
    )
    parser.add_argument(
        "--grpc",
        metavar="HOST:PORT",
        help="where to listen for gRPC (default: 127.0.0.1:4317 if art-otel[grpc] is installed)",
    )
    parser.add_argument("--no-grpc", action="store_true", help="do not listen for gRPC")


def _add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where what is received is kept, and for how long."""
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(os.environ.get(DIR, ".art")),
        metavar="DIR",
        help=f"where to keep received spans (default: {DIR}, else .art)",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="a rollout that does not count its spans, or misses some, has ended once no span has arrived for this "
        "long, such as 90s or 5m (default: 60s)",
    )
    parser.add_argument(
        "--retain",
        type=_retain,
        default="30d",
        metavar="TIME",
        help="remove files that are older than this, if a consumer has acknowledged all their rollouts and no other "
        "consumer is waiting for them (default: 30d; off keeps everything)",
    )
    parser.add_argument(
        "--fsync",
        action="store_true",
        help="acknowledge spans only once they would survive a power loss, not just a crash",
    )


def _add_scrubbing(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what becomes of secrets."""
    parser.add_argument(
        "--scrub",
        choices=("on", "content", "mark", "off"),
        default="on",
        help="what to do with secrets in received spans (default: on)",
    )
    add_scrub_patterns(parser)


def _add_security(parser: argparse.ArgumentParser) -> None:
    """Add the options that say who may send, and how much."""
    parser.add_argument(
        "--max-body", type=int, default=64, metavar="MIB", help="the largest request in MiB (default: 64)"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"a file with the token that trainers and senders of OTLP must send (default: {TOKEN})",
    )
    parser.add_argument(
        "--tls-certificate", type=Path, metavar="FILE", help="a PEM file; with --tls-key, serve over TLS"
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="a PEM file")


def run(arguments: argparse.Namespace) -> int:
    """Serve until the process is told to end."""
    from art_otel.receiver.receiver import RECEIVED, Receiver  # noqa: PLC0415 # other verbs need no server

    options, signals = _options(arguments), EndSignals()
    receiver = Receiver(options)
    receiver.start()
    say = sys.stderr.write
    say(f"art-otel: OTLP/HTTP at {receiver.url}\n")
    if receiver.grpc_port is not None and options.grpc is not None:
        say(f"art-otel: OTLP/gRPC at {options.grpc._replace(port=receiver.grpc_port)}\n")
    say(f"art-otel: writing to {options.folder / RECEIVED}; press Ctrl+C to stop\n")
    wait_and_stop(receiver, signals)
    return 0


class EndSignals:
    """Waits until the process is told to end (Ctrl+C, SIGTERM), and lets threads take turns as a server needs it.

    No Event that a handler sets: Python runs handlers between two steps of the main thread. A signal that comes just
    before the wait begins would be seen only after the wait, and one that comes while a handler holds the lock of the
    Event would wait for that lock. `uv run` sends two at once. So Python's own C code tells a socket of each signal.
    """

    def __init__(self) -> None:
        self._told, self._tells = socket.socketpair()
        self._tells.settimeout(0)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda _signal, _frame: None)
        signal.set_wakeup_fd(self._tells.fileno(), warn_on_full_buffer=False)
        sys.setswitchinterval(_SWITCH)

    def wait(self) -> None:
        """Return once a signal has come."""
        self._told.recv(1)


def wait_and_stop(receiver: "Receiver", signals: EndSignals) -> None:
    """Say who may ask, wait, and stop."""
    options = receiver.options
    if options.token is None and not all(address.is_loopback for address in (options.http, options.grpc) if address):
        sys.stderr.write(
            f"art-otel: other machines can reach this address and no token is required: set {TOKEN} or --token-file\n"
        )
    sys.stderr.flush()
    signals.wait()
    receiver.stop()


def _options(arguments: argparse.Namespace) -> "ReceiverOptions":
    from art_otel.http import Address  # noqa: PLC0415 # as above

    if arguments.grpc is None:
        grpc = Address("127.0.0.1", 4317) if find_spec("grpc") and find_spec("google.rpc") else None
    else:
        grpc = Address.parse(arguments.grpc)
    return replace(
        receiver_options(arguments),
        http=Address.parse(arguments.listen),
        grpc=None if arguments.no_grpc else grpc,
    )


def receiver_options(arguments: argparse.Namespace) -> "ReceiverOptions":
    """The options that `add_receiver_arguments` added."""
    from art_otel.http import BodyLimits  # noqa: PLC0415 # as above
    from art_otel.receiver.ingest import IngestOptions  # noqa: PLC0415 # as above
    from art_otel.receiver.receiver import ReceiverOptions  # noqa: PLC0415 # as above
    from art_otel.scrubbing import SecretRules  # noqa: PLC0415 # as above

    limits = BodyLimits()
    return ReceiverOptions(
        folder=arguments.dir,
        grace=arguments.grace,
        retain=arguments.retain,
        rollout_spans=tuple(arguments.rollout_span),
        rollout_attributes=tuple(arguments.rollout_attribute),
        token=_token(arguments.token_file),
        tls=_tls(arguments.tls_certificate, arguments.tls_key),
        bodies=replace(
            limits,
            body_bytes=arguments.max_body * _MIB,
            all_bytes=max(limits.all_bytes, 2 * arguments.max_body * _MIB),
        ),
        ingest=IngestOptions(
            fsync=arguments.fsync,
            secrets=SecretRules(mode=arguments.scrub, patterns=tuple(arguments.scrub_pattern)),
        ),
    )


def _retain(text: str) -> float | None:
    return None if text == "off" else seconds(text)


def _token(file: Path | None) -> str | None:
    token = os.environ.get(TOKEN) if file is None else file.read_text().strip()
    if file is not None and not token:
        raise UsageError(f"{file}: contains no token")
    return token or None


def _tls(certificate: Path | None, key: Path | None) -> "Tls | None":
    from art_otel.http import Tls  # noqa: PLC0415 # as above

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("TLS needs both --tls-certificate and --tls-key")
    return Tls(certificate=certificate, key=key)
