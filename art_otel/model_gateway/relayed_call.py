"""A request on its way through the gateway: what was asked, where it goes, and what became of it so far."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from art_otel.exchange.api_dialects import CHAT
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.exchange import Exchange
from art_otel.exchange.translation import Translation
from art_otel.model_gateway.addresses import RequestAddress, RequestTarget
from art_otel.model_gateway.call_spans import now_ns
from art_otel.model_gateway.connections import RawHeaders
from art_otel.model_gateway.own_answers import OwnAnswer
from art_otel.model_gateway.rollouts import GatewayRollout
from art_otel.model_gateway.upstreams import Upstream


@dataclass(kw_only=True, slots=True)
class RelayedCall:
    """A request on its way.

    `asked` is what the agent asked, `exchange` the same as its server is asked it, which is recorded; both are None
    where it asks for no completion. `may_sample` says that it may ask for one in a dialect that is not known.
    `own_answer` is what the gateway answers itself: the server is not asked.
    `told` is done when a receiver knows of it. `has_begun` says that the agent has the beginning of an answer, `is_cut`
    that it gets no end of it.
    `end_in_app` ends its span where that is one of the app around the gateway. `slot` is where a worker notes it as
    long as it is not recorded.
    """

    method: str
    target: RequestTarget
    headers: RawHeaders
    body: bytes
    address: RequestAddress
    upstream: Upstream
    rollout: GatewayRollout | None = None
    asked: Exchange | None = None
    exchange: Exchange | None = None
    may_sample: bool = False
    own_answer: OwnAnswer | None = None
    start_ns: int = field(default_factory=now_ns)
    told: asyncio.Future[None] | None = None
    end_in_app: Callable[[], None] | None = None
    slot: int | None = None
    is_recorded: bool = False
    has_begun: bool = False
    is_cut: bool = False

    @property
    def path(self) -> str:
        """Path and query for the server."""
        if self.translation is not None:
            return CHAT.path
        return f"{self.target.path}?{self.target.query}" if self.target.query else self.target.path

    @property
    def dialect(self) -> WireDialect | None:
        """The dialect in which the agent asked, if it asked for a completion."""
        if self.translation is not None:
            return self.translation.dialect
        return None if self.exchange is None else self.exchange.dialect

    @property
    def translation(self) -> Translation | None:
        """How the agent asked, where the server is asked in another dialect."""
        return None if self.exchange is None else self.exchange.translation
