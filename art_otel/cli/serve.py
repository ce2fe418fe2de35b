"""`art-otel serve`: an OTLP endpoint that hands finished rollouts to a trainer."""

import argparse
import os
import signal
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from art_otel.cli.arguments import add_settings
from art_otel.errors import UsageError
from art_otel.receiver.settings import LISTEN, SETTINGS

if TYPE_CHECKING:
    from art_otel.receiver.receiver import Receiver, ReceiverOptions

TOKEN: Final = "ART_OTEL_TOKEN"  # noqa: S105 # the name of a variable
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
    add_settings(parser, SETTINGS)
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"a file with the token that trainers and senders of OTLP must send (default: {TOKEN})",
    )


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where it listens."""
    parser.add_argument("--listen", default=LISTEN, metavar="HOST:PORT", help=f"where to listen (default: {LISTEN})")
    parser.add_argument(
        "--grpc",
        metavar="HOST:PORT",
        help="where to listen for gRPC (default: 127.0.0.1:4317 if art-otel[grpc] is installed)",
    )
    parser.add_argument("--no-grpc", action="store_true", help="do not listen for gRPC")


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
    return receiver_options(arguments, http=Address.parse(arguments.listen), grpc=None if arguments.no_grpc else grpc)


def receiver_options(arguments: argparse.Namespace, **addresses: Any) -> "ReceiverOptions":  # noqa: ANN401 # as its fields
    """The options that `add_receiver_arguments` added, with addresses (and limits) as in `ReceiverOptions`."""
    from art_otel.receiver.receiver import ReceiverOptions  # noqa: PLC0415 # as above

    given = {setting.name: getattr(arguments, setting.name) for setting in SETTINGS if setting.metadata}
    return ReceiverOptions(token=_token(arguments.token_file), **given, **addresses)


def _token(file: Path | None) -> str | None:
    token = os.environ.get(TOKEN) if file is None else file.read_text().strip()
    if file is not None and not token:
        raise UsageError(f"{file}: contains no token")
    return token or None
