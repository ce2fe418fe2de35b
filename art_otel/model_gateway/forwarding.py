"""Forwarding: the spans that the gateway makes go to an OpenTelemetry collector as well, with their whole content.

Invariant: no call waits for the collector, and what waits for it is bounded. The spool has every span; what the
collector does not get, because it is away for too long or refuses it, is counted, and the log says it once an outage.
A receiver of ours at the other end is told of each call before the agent has its answer (`RunningCallsReport`).

Source of the protocol: https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from art_otel.conventions.exchanges import whole
from art_otel.errors import UsageError
from art_otel.exchange.exchange import FIRST_REFUSAL
from art_otel.model_gateway.addresses import baggage_of
from art_otel.model_gateway.rollouts import GatewayRollout, Rollouts
from art_otel.model_gateway.upstreams import Connections, UpstreamError
from art_otel.receiver.ingest import RUNNING, ReceiverMetrics, encode_lines, encode_request
from art_otel.spans import LogRecord, Span

logger = logging.getLogger(__name__)

Scrub: TypeAlias = Callable[[Iterable[Span | LogRecord]], Iterable[Span | LogRecord]]

Post: TypeAlias = Callable[[bytes, str], Awaitable[int]]
"""Sends a body to a path, and gives the status. Raises UpstreamError, TimeoutError."""

_AGAIN: Final = frozenset([429, 502, 503, 504])
"""Statuses after which OTLP wants the same export once more."""

_PATH: Final = "/v1/traces"
_HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
_TRIES: Final = 5
_FIRST_PAUSE: Final = 0.5
_TIMEOUT: Final = 10.0
_AT_ONCE: Final = 256
_EXPORT: Final = 1 << 20
"""Characters of content in one export, if it has several spans."""

_STOP_SECONDS: Final = 5.0
_MAX_WAITING: Final = 64 << 20
"""Characters of content that wait."""


class Forwarding:
    """Sends spans to `url`, after `scrub`. Raises UsageError where that is no address.

    As for OpenTelemetry's exporters, OTEL_EXPORTER_OTLP_HEADERS are sent with each request. `running_calls` tells a
    receiver of ours of what runs.
    """

    def __init__(self, url: str, scrub: Scrub, metrics: ReceiverMetrics, rollouts: Rollouts) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--otlp {url!r} is not the address of a collector: write http://HOST:4318")
        self._path = parts.path if parts.path.strip("/") else _PATH
        self._url = parts._replace(path=self._path, netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._collector = Connections(parts._replace(path="").geturl())
        self._headers = [
            (name.encode(), value.encode())
            for name, value in {"content-type": "application/json", **baggage_of(os.environ.get(_HEADERS, ""))}.items()
        ]
        self._scrub = scrub
        self.running_calls = RunningCallsReport(self._post, scrub, rollouts)
        self._metrics = metrics
        self._waiting: deque[tuple[Span, int]] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._is_out = False
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send."""
        self._task = asyncio.create_task(self._run())

    def add(self, spans: Sequence[Span]) -> None:
        """Take what has ended. Where too much waits it is not sent."""
        for span in spans:
            size = sum(len(value) for value in span.attributes.values() if isinstance(value, str))
            if span.end_ns is None:
                continue
            if self._size + size > _MAX_WAITING:
                self._lose(1, "too many spans are waiting for it")
                continue
            self._waiting.append((span, size))
            self._size += size
        self._news.set()

    async def stop(self) -> None:
        """Send what waits, for some seconds, and end."""
        self._is_ending = True
        self._news.set()
        if self._task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._task, _STOP_SECONDS)
        if self._waiting:
            self._lose(len(self._waiting), "the gateway ended")

    async def _run(self) -> None:
        telling = asyncio.create_task(self.running_calls.run())
        try:
            await self._send_all()
        finally:
            telling.cancel()
            self._collector.close()

    async def _post(self, body: bytes, below: str = "") -> int:
        """Send an export to the collector's path, or one below, and give the status. Raises UpstreamError."""
        return await self._collector.post(f"{self._path}{below}", self._headers, body, seconds=_TIMEOUT)

    async def _send_all(self) -> None:
        """Send what comes, and at the end what waits."""
        while self._waiting or not self._is_ending:
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                continue
            together = self._next()
            scrubbed = self._scrub(together)
            for line in encode_lines(whole(span) if isinstance(span, Span) else span for span in scrubbed):
                await self._send(line.text, len(line.records))
            for _ in together:
                _, size = self._waiting.popleft()
                self._size -= size

    def _next(self) -> list[Span]:
        """As many spans as one export may have, so that neither the loop nor the collector takes too much at once."""
        size, together = 0, list[Span]()
        for span, more in islice(self._waiting, _AT_ONCE):
            if together and size + more > _EXPORT:
                break
            together.append(span)
            size += more
        return together

    async def _send(self, body: bytes, spans: int) -> None:
        """Send one export, again where the collector may take it later."""
        why = ""
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
            try:
                status = await self._post(body)
            except (UpstreamError, TimeoutError) as error:
                why = str(error) or type(error).__name__
                continue
            if status < FIRST_REFUSAL:
                self._metrics.add("art_otel_gateway_forwarded_spans_total", spans)
                self._is_out = False
                return
            why = f"it answers {status}"
            if status not in _AGAIN:
                break
        self._lose(spans, why)

    def _lose(self, spans: int, why: str) -> None:
        self._metrics.add("art_otel_gateway_unforwarded_spans_total", spans)
        if not self._is_out:
            self._is_out = True
            logger.warning("art-otel: spans do not reach the collector at %s: %s. The spool has them", self._url, why)


_WAIT: Final = 1.0
_PAUSE: Final = 1.0
_ASK__AGAIN: Final = 60.0
_PER_GRACE: Final = 3
"""How often in a grace it is told what is open, so that it does not take a long call for the end of a rollout."""


class RunningCallsReport:
    """Tells a receiver of the calls of `rollouts`, after `scrub`. `post` sends to a path below that of its traces.

    Invariant: OTLP has no spans that have begun and not ended, so this goes to a path that only `art-otel serve` and
    gateways have; others answer that there is none, and are asked again a minute later. What is told is the rollout's
    own span as its gateway knows it. So a receiver that hears from any gateway that a rollout is over knows of all
    calls that were answered before. The end of an answer waits for that a second at most, and then not again before
    the receiver answers; when that is there again it is told of all that is open.
    """

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
        if status in _AGAIN:
            return False
        if status >= FIRST_REFUSAL:
            self._not_before = asyncio.get_running_loop().time() + _ASK__AGAIN
        return True
