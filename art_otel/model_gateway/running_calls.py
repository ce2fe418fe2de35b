"""Running calls: a receiver of ours at the other end of `--otlp` is told of each call before the agent has its answer.

Invariant: OTLP has no spans that have begun and not ended, so this goes to a path that only `art-otel serve` and
gateways have; others answer that there is none, and are asked again a minute later. What is told is the rollout's own
span as its gateway knows it. So a receiver that hears from any gateway that a rollout is over knows of all calls that
were answered before. The end of an answer waits for that a second at most, and then not again before the receiver
answers; when that is there again it is told of all that is open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeAlias

from art_otel.exchange.exchange import FIRST_REFUSAL
from art_otel.model_gateway.rollouts import GatewayRollout, Rollouts
from art_otel.model_gateway.upstreams import UpstreamError
from art_otel.receiver.ingest import RUNNING, encode_request
from art_otel.spans import LogRecord, Span

Scrub: TypeAlias = Callable[[Iterable[Span | LogRecord]], Iterable[Span | LogRecord]]

Post: TypeAlias = Callable[[bytes, str], Awaitable[int]]
"""Sends a body to a path, and gives the status. Raises UpstreamError, TimeoutError."""

AGAIN: Final = frozenset([429, 502, 503, 504])
"""Statuses after which OTLP wants the same export once more."""

_WAIT: Final = 1.0
_PAUSE: Final = 1.0
_ASK_AGAIN: Final = 60.0
_PER_GRACE: Final = 3
"""How often in a grace it is told what is open, so that it does not take a long call for the end of a rollout."""


class RunningCallsReport:
    """Tells a receiver of the calls of `rollouts`, after `scrub`. `post` sends to a path below that of its traces."""

    def __init__(self, post: Post, scrub: Scrub, rollouts: Rollouts) -> None:
        self._post = post
        self._scrub = scrub
        self._rollouts = rollouts
        self._waiting: dict[str, Span] = {}
        self._told: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self._is_away = False
        self._not_before = 0.0

    def add(self, rollout: GatewayRollout) -> "asyncio.Future[None] | None":
        """Tell of a call that begins. What is given is done when that is told, or in vain."""
        if not self._may_ask:
            return None
        span = self._rollouts.edition(rollout)
        self._waiting[span.span_id] = span
        self._news.set()
        self._told = self._told or asyncio.get_running_loop().create_future()
        return self._told

    async def wait(self, told: "asyncio.Future[None]") -> None:
        """Wait until it is told, if the receiver answers and that does not take long."""
        if not self._is_away:
            _, waiting = await asyncio.wait((told,), timeout=_WAIT)
            self._is_away = bool(waiting)

    async def run(self) -> None:
        """Tell until it is cancelled."""
        loop, every = asyncio.get_running_loop(), self._rollouts.grace / _PER_GRACE
        all_at, is_told = loop.time(), True
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), every)
            if self._may_ask and (not is_told or loop.time() - all_at >= every):
                all_at = loop.time()
                self._waiting |= {rollout.span_id: rollout for rollout in self._rollouts.open_editions()}
            self._news.clear()
            rollouts, told = self._waiting, self._told
            self._waiting, self._told = {}, None
            is_told = not rollouts or await self._send(encode_request(self._scrub(rollouts.values())))
            self._is_away = not is_told
            if told is not None:
                told.set_result(None)
            if not is_told:
                await asyncio.sleep(_PAUSE)
                self._news.set()

    @property
    def _may_ask(self) -> bool:
        return asyncio.get_running_loop().time() >= self._not_before

    async def _send(self, body: bytes) -> bool:
        """Send what was not told; False where nobody answers."""
        try:
            status = await self._post(body, RUNNING)
        except (UpstreamError, TimeoutError):
            return False
        if status in AGAIN:
            return False
        if status >= FIRST_REFUSAL:
            self._not_before = asyncio.get_running_loop().time() + _ASK_AGAIN
        return True
