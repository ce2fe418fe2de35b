"""Relayed call: one request on its way through the gateway, and what the gateway records it with."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

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
    """One request on its way.

    - `path` (with the query), `headers`: as the server gets them.
    - `dialect`: in which the agent asks for a completion; `asked`: the agent's request; `exchange`: the request and
      answer of the server, which is recorded. All three are None where the request asks for no completion.
    - `translation`: between `asked` and `exchange`, where the server does not speak the agent's dialect.
    - `may_sample`: the request may ask for a completion in a dialect that the gateway cannot read.
    - `own_answer`: the gateway's own answer; the server is not asked.
    - `told`: done when the collector of `--otlp` knows that the call runs.
    - `end_in_app`: ends the call's span, where the app around the gateway records the call.
    - `slot`: where a worker notes the call as long as it is not recorded.
    - `has_begun`: the agent has the beginning of the answer. `is_broken_off`: the agent will not get the end of it.
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
    is_broken_off: bool = False


class Recorder(Protocol):
    """What a gateway writes to: its own receiver, or, in a worker, the worker's stand-in for the parent's receiver."""

    @property
    def bodies(self) -> Bodies:
        """Reads the bodies of requests, within limits."""
        ...

    @property
    def metrics(self) -> ReceiverMetrics:
        """The counters of `/metrics`."""
        ...

    @property
    def ingest(self) -> Ingest:
        """Writes spans to the spool."""
        ...

    def keep_open(self, rollout_ids: Sequence[str]) -> None:
        """Begin the grace of these rollouts anew, because they are known to run."""
        ...
