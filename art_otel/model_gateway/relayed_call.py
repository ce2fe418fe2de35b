"""A request on its way through the gateway, and who records it: what was asked, where it goes, what became of it.

RelayedCall     one request, from its beginning until it was answered and recorded
Recorder        where the gateway writes: its own receiver, or what a worker has of its parent's
AppRollouts     the app around a gateway, which has the spans of its rollouts' calls itself
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.types import Scope

from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.exchange import Exchange
from art_otel.exchange.translation import Translation
from art_otel.http import Bodies
from art_otel.model_gateway.addresses import RequestAddress, RequestTarget
from art_otel.model_gateway.own_answers import OwnAnswer
from art_otel.model_gateway.rollouts import GatewayRollout
from art_otel.model_gateway.upstreams import RawHeaders, Upstream
from art_otel.receiver.ingest import Ingest, ReceiverMetrics


@dataclass(kw_only=True, slots=True)
class RelayedCall:
    """A request on its way.

    `path`, with the query, and `headers` are those for its server. `dialect` is the one in which the agent asked for a
    completion; `asked` is what it asked, `exchange` the same as its server is asked it, which is recorded; all are None
    where it asks for none. `translation` leads from one to the other where the dialects differ. `may_sample` says that
    it may ask for a completion in a dialect that is not known.
    `own_answer` is what the gateway answers itself: the server is not asked.
    `told` is done when a receiver knows of it. `has_begun` says that the agent has the beginning of an answer, `is_cut`
    that it gets no end of it.
    `end_in_app` ends its span where that is one of the app around the gateway. `slot` is where a worker notes it as
    long as it is not recorded.
    """

    method: str
    target: RequestTarget
    path: str
    headers: RawHeaders
    body: bytes
    address: RequestAddress
    upstream: Upstream
    start_ns: int
    dialect: WireDialect | None = None
    asked: Exchange | None = None
    exchange: Exchange | None = None
    translation: Translation | None = None
    may_sample: bool = False
    own_answer: OwnAnswer | None = None
    rollout: GatewayRollout | None = None
    told: asyncio.Future[None] | None = None
    end_in_app: Callable[[], None] | None = None
    slot: int | None = None
    is_recorded: bool = False
    has_begun: bool = False
    is_cut: bool = False


class Recorder(Protocol):
    """Where a gateway writes."""

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

    def begin_call(self, rollout: GatewayRollout, start_ns: int) -> int | None:
        """Note a call where the parent finds it if this worker dies, and give its slot; None where all are taken."""
        ...

    def end_call(self, slot: int) -> None:
        """Forget a call that was recorded."""
        ...

    async def is_elsewhere(self, scope: Scope, body: bytes, key: str) -> bool:
        """Hand a request over where another worker has what `key` names, and say so."""
        ...


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
