"""Receiver: OTLP in, finished rollouts out.

    exporters ─► OTLP/HTTP, OTLP/gRPC ─► Intake ─► spool ─► FinishedRollouts ─► Deliveries ─► sessions of consumers
                                                               │    ▲
                                                               ▼    │
                                                              Builder: a process

Invariant: FinishedRollouts hears of a span when it stands in the spool, or finds it there after a restart. So what was
acknowledged is handed out, also after a crash, and a slow consumer slows nobody down. One receiver at a time uses a
folder.
"""

import asyncio
import os
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from filelock import FileLock, Timeout
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from art_otel.errors import UsageError
from art_otel.http import Address, Bodies, BodyLimits, HttpServer, Tls, TokenCheck
from art_otel.receiver.building.finished import Finished, FinishedRollouts
from art_otel.receiver.delivery.acknowledged import acknowledged_ids
from art_otel.receiver.delivery.deliveries import Deliveries
from art_otel.receiver.delivery.local_session import LocalSession
from art_otel.receiver.delivery.rollouts_http import RolloutRoutes
from art_otel.receiver.ingest.intake import Intake, IntakeOptions
from art_otel.receiver.ingest.otlp_http import otlp_routes
from art_otel.receiver.metrics import Metrics
from art_otel.spool import SpoolWriter, remove_old_runs

if TYPE_CHECKING:
    from art_otel.receiver.ingest.otlp_grpc import GrpcServer

RECEIVED: Final = Path("spool", "received")
"""Where, below the folder, what was received is kept: a dump that `art-otel convert` reads."""

CONSUMERS: Final = "consumers"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverOptions:
    """`grace` seconds of quiet end a rollout whose spans are not counted; `retain` seconds are old runs kept.

    `grpc` is None for no gRPC. A `token` has to be sent with every request.
    """

    http: Address = field(default=Address("127.0.0.1", 4318))
    grpc: Address | None = None
    folder: Path = Path(".art")
    grace: float = 60.0
    retain: float | None = None
    rollout_spans: tuple[str, ...] = ()
    token: str | None = None
    tls: Tls | None = None
    bodies: BodyLimits = field(default_factory=BodyLimits)
    intake: IntakeOptions = field(default_factory=IntakeOptions)


class Receiver:
    """Runs in threads of its own, whatever the program around it does."""

    def __init__(self, options: ReceiverOptions) -> None:
        self.options = options
        self.metrics = Metrics()
        self._folder = options.folder / RECEIVED
        self._lock = _locked(self._folder)
        if options.retain is not None:
            remove_old_runs(self._folder, options.retain)
        run = self._folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
        self.spool = SpoolWriter(run)
        self._held_before = sum(file.stat().st_size for file in self._folder.rglob("*.otlp.jsonl"))
        self.deliveries = Deliveries(options.folder / CONSUMERS)
        self.finished = FinishedRollouts(
            self._folder,
            self._offer,
            grace=options.grace,
            acknowledged=acknowledged_ids(options.folder / CONSUMERS),
            rollout_spans=options.rollout_spans,
        )
        self._intake = Intake(self.spool, options.intake, self.metrics, self.finished.add)
        self._bodies = Bodies(options.bodies)
        self._rollouts = RolloutRoutes(self.session, self._bodies)
        self._http = HttpServer(self._application(), options.http, options.tls)
        self._grpc = None if options.grpc is None else self._make_grpc(options.grpc)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="art-otel receiver", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens for HTTP."""
        return self._http.url

    @property
    def grpc_port(self) -> int | None:
        """The port for gRPC; None where there is none."""
        return None if self._grpc is None else self._grpc.port

    def start(self) -> None:
        """Listen. Raises UsageError where an address or a certificate cannot be used."""
        self.finished.start()
        self._thread.start()
        try:
            self._run(self._http.start())
            if self._grpc is not None:
                self._run(self._grpc.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Answer what has come, write it, and end. What is still open is found again by the next one."""
        self._run(self._rollouts.stop())
        self._run(self._http.stop())
        if self._grpc is not None:
            self._run(self._grpc.stop())
        self._intake.close()
        self.finished.close()
        self.deliveries.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._lock.release()

    def session(self, consumer: str) -> LocalSession:
        """Begin a session of a consumer in this process. Raises UsageError for a name that is none."""
        return LocalSession(consumer, self.deliveries, self.finished, self.metrics)

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _offer(self, finished: Sequence[Finished]) -> None:
        self.metrics.add("art_otel_finished_rollouts_total", len(finished))
        self.deliveries.offer(finished)

    def _make_grpc(self, address: Address) -> "GrpcServer":
        try:
            from art_otel.receiver.ingest.otlp_grpc import GrpcServer  # noqa: PLC0415 # an extra
        except ImportError as error:
            raise UsageError(f"OTLP/gRPC needs the extra: pip install 'art-otel[grpc]' ({error})") from error
        options = self.options
        return GrpcServer(self._intake, self._bodies, self.metrics, address, token=options.token, tls=options.tls)

    def _application(self) -> ASGIApp:
        routes = [
            *otlp_routes(self._intake, self._bodies, self.metrics),
            *self._rollouts.routes,
            Route("/healthz", _healthy),
            Route("/metrics", self._metrics),
        ]
        application = Starlette(routes=routes)
        return application if self.options.token is None else TokenCheck(application, self.options.token)

    async def _metrics(self, _: Request) -> PlainTextResponse:
        written = self.spool.counts.bytes
        gauges = {
            "art_otel_open_rollouts": self.finished.open,
            "art_otel_lag_bytes": max(0, self._held_before + written - self.finished.read_bytes),
            "art_otel_spool_bytes_total": written,
        }
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")


async def _healthy(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok\n")


def _locked(folder: Path) -> FileLock:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", thread_local=False)  # who stops a receiver may be another thread
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(f"another receiver uses {folder}: stop it, or give another folder") from None
    return lock
