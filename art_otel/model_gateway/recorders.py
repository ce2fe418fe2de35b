"""Recorders: what stands around a gateway and records its calls: a receiver, an app, a parent process."""

from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.requests import Request

from art_otel.exchange.exchange import Exchange
from art_otel.http import Bodies
from art_otel.model_gateway.addresses import RequestAddress
from art_otel.model_gateway.in_flight import CallsInFlight
from art_otel.receiver.ingest import Ingest
from art_otel.receiver.metrics import ReceiverMetrics


class AppRollouts(Protocol):
    """The rollouts that run in the gateway's own process, whose calls its tracer records."""

    def begin(self, exchange: Exchange, address: RequestAddress, server: str) -> Callable[[], None] | None:
        """Begin the span of a call, and give what ends it; None where its rollout is none of them."""
        ...

    def reached_limit(self, address: RequestAddress, max_calls: int | None) -> int | None:
        """How many calls a rollout may have, where it has had them; None where another may begin, or it is none."""
        ...

    def note_unread(self, request: str, start_ns: int, address: RequestAddress, server: str) -> bool:
        """Record a request that could not be read; False where its rollout is none of them."""
        ...

    def has(self, rollout_id: str) -> bool:
        """Whether a rollout is one of them."""
        ...


class Recorder(Protocol):
    """Where a gateway writes: its own receiver, or what a worker has of its parent's."""

    @property
    def bodies(self) -> Bodies:
        """The bodies of requests."""
        ...

    @property
    def metrics(self) -> ReceiverMetrics:
        """What is counted."""
        ...

    @property
    def ingest(self) -> Ingest:
        """What writes to the spool."""
        ...

    def keep_open(self, rollout_ids: Sequence[str]) -> None:
        """Let no grace end rollouts that are known to run."""
        ...


class WorkerRecorder(Recorder, Protocol):
    """That of a gateway which is one of several workers."""

    calls: CallsInFlight

    async def is_elsewhere(self, request: Request, body: bytes, key: str) -> bool:
        """Hand a request over where another worker has what `key` names, and say so."""
        ...
