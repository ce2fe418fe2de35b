"""Receiver: OTLP in, finished rollouts out.

    exporters ─► OTLP ─► Ingest ─► spool ─► FinishedRollouts ─► SpooledRolloutIndex ─► Delivery ─► consumers
                                               │    ▲
                                               ▼    │
                                            Assembler: a process

Invariant: a span is in the spool before FinishedRollouts hears of it; after a restart FinishedRollouts finds the span
there. So every acknowledged span is delivered, also after a crash, and a slow consumer slows no exporter. One receiver
at a time uses a folder. Without a token the receiver answers programs only, no web pages.
"""

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

from filelock import FileLock, Timeout
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from art_otel.errors import UsageError
from art_otel.http import Address, Bodies, BodyLimits, HttpServer, Tls, TokenCheck, WebPageCheck, WhenRefused, new_loop
from art_otel.receiver.client import ReceivedRollouts
from art_otel.receiver.delivery import Delivery, LocalSession, RolloutRoutes
from art_otel.receiver.finished import FinishedRollouts
from art_otel.receiver.index import SpooledRolloutIndex
from art_otel.receiver.ingest import Ingest, IngestOptions, ReceiverMetrics, otlp_routes
from art_otel.receiver.protocol import ReceiverSelection, SelectionOptions
from art_otel.receiver.settings import LISTEN, ReceiverKeywords, ReceiverSettings, keywords_of_receiver
from art_otel.scrubbing import SecretRules
from art_otel.spool import SpoolWriter
from art_otel.spool.runs import expanded

if TYPE_CHECKING:
    from art_otel.receiver.otlp_grpc import GrpcServer

RECEIVED: Final = Path("spool", "received")
"""The folder of received spans, below the receiver's folder: a dump that `art-otel convert` reads."""

INDEX: Final = "received.sqlite"
"""The file of the `SpooledRolloutIndex`, in the receiver's folder."""

_MIB: Final = 1 << 20


class Front(Protocol):
    """A server in front of the receiver, at the same address: the gateway. Its `routes` need the token as well."""

    routes: Sequence[Route]

    def application(self, receiver: ASGIApp) -> ASGIApp:
        """An application that answers this server's requests, and passes the others on to the receiver's."""
        ...

    async def start(self) -> None:
        """Start, before the first request."""
        ...

    async def leave(self) -> None:
        """Break off requests that may take long: stopping the HTTP server waits for open requests."""
        ...

    async def stop(self) -> None:
        """Stop, after the last request was answered. Spans that are written now still get into the spool."""
        ...


@dataclass(frozen=True, kw_only=True)
class ReceiverOptions(ReceiverSettings):
    """The settings of a receiver, with its addresses.

    `http` and `grpc` are where it listens; no gRPC where that is None. `limits` are those of bodies, but for the size
    of one, which is `max_body_mib`.
    """

    http: Address = field(default=Address.parse(LISTEN))
    grpc: Address | None = None
    limits: BodyLimits = field(default_factory=BodyLimits)

    @property
    def folder(self) -> Path:
        """Where spool and index are kept."""
        return expanded(self.dir)

    @property
    def bodies(self) -> BodyLimits:
        """The limits of bodies; together they may have the memory of two of the largest."""
        largest = self.max_body_mib * _MIB
        return replace(self.limits, body_bytes=largest, all_bytes=max(self.limits.all_bytes, 2 * largest))

    @property
    def ingest(self) -> IngestOptions:
        """How received spans are written."""
        return IngestOptions(
            fsync=self.fsync, secrets=SecretRules(mode=self.scrub, patterns=tuple(self.scrub_patterns))
        )

    @property
    def tls(self) -> Tls | None:
        """The files for TLS; None for none."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return Tls(certificate=Path(self.tls_certificate), key=Path(self.tls_key))


class Receiver:
    """An OTLP endpoint that runs in threads of its own.

    `front` is a server that shares its address and is asked first, as the gateway is. With `listens` off the receiver
    opens no port: worker processes accept the connections, write the spans to this run's folder of the spool, and hand
    over (`adopt`) connections whose requests are for the receiver.
    """

    def __init__(self, options: ReceiverOptions, front: Front | None = None, *, listens: bool = True) -> None:
        self.options = options
        self._front = front
        self.metrics = ReceiverMetrics()
        self._folder = options.folder / RECEIVED
        self._lock = _locked(self._folder)
        try:
            self._index = SpooledRolloutIndex(options.folder / INDEX, self._folder)
        except BaseException:
            self._lock.release()
            raise
        self.run = self._folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
        """The folder of this run in the spool."""
        self.spool = SpoolWriter(self.run, sent_again=True)
        self.delivery = Delivery(self._index)
        self.finished = FinishedRollouts(
            self._folder,
            self._index,
            self.metrics,
            self.delivery.tell,
            options,
            None if listens else self.run,
        )
        self.ingest = Ingest(self.spool, options.ingest, self.metrics, self.finished.add if listens else None)
        self.bodies = Bodies(options.bodies)
        self._rollouts = RolloutRoutes(self.session, self.bodies)
        self._http = HttpServer(self._application(), options.http, options.tls, None if listens else ())
        self._grpc = None if options.grpc is None else self._make_grpc(options.grpc)
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="art-otel receiver", daemon=True)

    @property
    def url(self) -> str:
        """The address at which the receiver listens for HTTP."""
        return self._http.url

    @property
    def grpc_port(self) -> int | None:
        """The port for gRPC; None where there is none."""
        return None if self._grpc is None else self._grpc.port

    def start(self) -> None:
        """Listen. Raises UsageError where an address or a certificate cannot be used."""
        self.finished.start(self.ingest.tell)
        self._thread.start()
        try:
            if self._front is not None:
                self._run(self._front.start())
            self._run(self._http.start())
            if self._grpc is not None:
                self._run(self._grpc.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Answer the requests that have come, write their spans, and stop.

        Rollouts that are still open are found in the spool by the next receiver.
        """
        # Sessions and calls of the gateway may last for hours, and stopping the HTTP server waits for open requests.
        self._run(self._rollouts.stop())
        if self._front is not None:
            self._run(self._front.leave())
        self._run(self._http.stop())
        if self._grpc is not None:
            self._run(self._grpc.stop())
        if self._front is not None:
            self._run(self._front.stop())
        self.ingest.close()
        self.finished.close()
        self._run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._index.close()
        self._lock.release()

    def adopt(self, connection: socket.socket, received: bytes) -> None:
        """Serve a connection that another process accepted; `received` is what that process has read of it already.

        Any thread may call this.
        """
        self._http.adopt_soon(connection, received, self._loop)

    def keep_open(self, rollout_ids: Sequence[str]) -> None:
        """Begin the grace of these rollouts anew, because they are known to run."""
        self.ingest.tell()
        self.finished.keep_open(rollout_ids)

    def session(self, consumer: str) -> LocalSession:
        """Begin a session of a consumer in this process. Raises UsageError for an invalid name."""
        return LocalSession(consumer, self.delivery, self.finished, self.metrics)

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _make_grpc(self, address: Address) -> "GrpcServer":
        try:
            from art_otel.receiver.otlp_grpc import GrpcServer  # noqa: PLC0415 # an extra
        except ImportError as error:
            raise UsageError(f"OTLP/gRPC needs the extra: pip install 'art-otel[grpc]' ({error})") from error
        options = self.options
        return GrpcServer(self.ingest, self.bodies, self.metrics, address, token=options.token, tls=options.tls)

    def _application(self) -> ASGIApp:
        guarded = guard(self._routes(), self.options, self._refused)
        return guarded if self._front is None else self._front.application(guarded)

    def _routes(self) -> list[Route]:
        return [
            *(() if self._front is None else self._front.routes),
            *otlp_routes(self.ingest, self.bodies, self.metrics),
            *self._rollouts.routes,
            Route("/healthz", _healthy),
            Route("/metrics", self._metrics),
        ]

    def _refused(self, path: str, status: int, why: str) -> None:
        self.metrics.refused(status, why, path=path)

    async def _metrics(self, _: Request) -> PlainTextResponse:
        written = self.spool.counts.bytes + self.metrics.of_others("art_otel_spool_bytes_total")
        gauges = {
            "art_otel_open_rollouts": self.finished.open,
            # Both numbers grow while they are read, so their difference may be below 0 for a moment.
            "art_otel_lag_bytes": max(0, self.finished.earlier_bytes + written - self.finished.read_bytes),
            "art_otel_spool_bytes_total": self.spool.counts.bytes,
        }
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")


def guard(routes: Sequence[Route], options: ReceiverOptions, when_refused: WhenRefused) -> ASGIApp:
    """The routes as an application that answers only requests with the token; where none is set, only programs."""
    application = Starlette(routes=routes)
    if options.token is None:
        return WebPageCheck(application, options.http, when_refused)
    return TokenCheck(application, options.token, advice=_token_advice, when_refused=when_refused)


async def _cancel_others() -> None:
    """Cancel the tasks of the loop that still run, and wait for them, before the loop stops."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _healthy(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok\n")


def _token_advice(path: str) -> str:
    """How to send the token, in words for the user of this path."""
    if path.startswith("/v1/rollouts"):
        return "write art_otel.connect(…, token=TOKEN)"
    return "send the header 'Authorization: Bearer TOKEN' (OTEL_EXPORTER_OTLP_HEADERS='authorization=Bearer%20TOKEN')"


def _locked(folder: Path) -> FileLock:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", thread_local=False)  # another thread may stop the receiver than started it
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(f"another receiver uses {folder}: stop it, or give another folder") from None
    return lock


class ReceiveKeywords(ReceiverKeywords, SelectionOptions):
    """What `receive` takes: the settings of a receiver, and what its consumer selects."""


@asynccontextmanager
async def receive(
    *, listen: str = LISTEN, grpc: str | None = None, consumer: str = "trainer", **settings: Unpack[ReceiveKeywords]
) -> AsyncGenerator[ReceivedRollouts]:
    """Receive OTLP at `listen` (and `grpc`) and iterate over finished rollouts: `art-otel serve` and `connect` in one.

        async with art_otel.receive() as rollouts:
            async for group in rollouts.groups(size=8, timeout=60):
                ...

    The settings are the options of `art-otel serve` (`dir`, `grace`, `retain`, `fsync`, `scrub`, `scrub_patterns`,
    `rollout_spans`, `rollout_attributes`, `max_body_mib`, `token`, `tls_certificate`, `tls_key`) and what `connect`
    selects (`split`, `model`, `policy_version`, `min_policy_version`, `max_age`). Received spans are kept below `dir`
    (default: ART_OTEL_DIR, else .art). If the spans of a rollout are not counted, or if `rollout_attributes`
    (`["session.id"]`) join it of several traces, it has ended when no span came for `grace` seconds. Raises UsageError
    for an address or a setting that cannot be used.
    """
    of_receiver, selection = keywords_of_receiver(settings)
    receiver = Receiver(
        ReceiverOptions(http=Address.parse(listen), grpc=None if grpc is None else Address.parse(grpc), **of_receiver)
    )
    await asyncio.to_thread(receiver.start)
    try:
        async with ReceivedRollouts(
            receiver.url, receiver.session(consumer), ReceiverSelection(**selection)
        ) as rollouts:
            yield rollouts
    finally:
        await asyncio.to_thread(receiver.stop)
