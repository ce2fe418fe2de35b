"""Forwarding: sends the gateway's spans, with their whole content, to an OpenTelemetry collector as well.

Invariant: no call waits for the collector's answer to its span, and the queue of spans is bounded. The spool has every
span. Spans that the collector does not get, because it is away for too long or refuses them, are counted, and the log
says so once for each outage. If the collector is a receiver of ours, it hears of each call before the agent has its
answer (`RunningCallsReport`).

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
from art_otel.exchange.exchange import FIRST_ERROR
from art_otel.model_gateway.addresses import baggage_of
from art_otel.model_gateway.rollouts import GatewayRollout, Rollouts
from art_otel.model_gateway.upstreams import Connections, UpstreamError
from art_otel.receiver.ingest import RUNNING_PATH, ReceiverMetrics, encode_lines, encode_request
from art_otel.spans import LogRecord, Span

logger = logging.getLogger(__name__)

Scrub: TypeAlias = Callable[[Iterable[Span | LogRecord]], Iterable[Span | LogRecord]]

Post: TypeAlias = Callable[[bytes, str], Awaitable[int]]
"""Sends a body to a path, and returns the status. Raises UpstreamError and TimeoutError."""

_AGAIN: Final = frozenset([429, 502, 503, 504])
"""Statuses after which OTLP says to send the same export again."""

_PATH: Final = "/v1/traces"
_HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
_TRIES: Final = 5
_FIRST_PAUSE: Final = 0.5
_TIMEOUT: Final = 10.0
_AT_ONCE: Final = 256
_EXPORT: Final = 1 << 20
"""An export of several spans has at most so many characters of content."""

_STOP_SECONDS: Final = 5.0
_MAX_WAITING: Final = 64 << 20
"""At most so many characters of content wait in the queue; further spans are not sent."""


class Forwarding:
    """Sends spans to the collector at `url`, after `scrub`. Raises UsageError for an invalid URL.

    The headers in OTEL_EXPORTER_OTLP_HEADERS are sent with each request, as OpenTelemetry's exporters do.
    `running_calls` tells a receiver of ours which calls run.
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
        """Start sending."""
        self._task = asyncio.create_task(self._run())

    def add(self, spans: Sequence[Span]) -> None:
        """Queue the spans that have ended. If the queue is too long they are counted as lost instead."""
        for span in spans:
            size = sum(len(value) for value in span.attributes.values() if isinstance(value, str))
            # An edition of an open rollout: OTLP has no spans that still run.
            if span.end_ns is None:
                continue
            if self._size + size > _MAX_WAITING:
                self._lose(1, "too many spans are waiting for it")
                continue
            self._waiting.append((span, size))
            self._size += size
        self._news.set()

    async def stop(self) -> None:
        """Send the queue for at most 5 seconds, and stop."""
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
        """Send an export to the collector's path, or to one below it, and return the status. Raises UpstreamError."""
        return await self._collector.post(f"{self._path}{below}", self._headers, body, seconds=_TIMEOUT)

    async def _send_all(self) -> None:
        """Send spans as they come, until `stop`, and then the rest of the queue."""
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
                # Only now, so that `stop` counts an export that it interrupts as lost.
                _, size = self._waiting.popleft()
                self._size -= size

    def _next(self) -> list[Span]:
        """The spans of the next export: few enough that encoding them does not block the event loop for long."""
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
            if status < FIRST_ERROR:
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
_ASK_AGAIN: Final = 60.0
_PER_GRACE: Final = 3
"""How often in a grace the receiver hears of the open rollouts. Else it would take a long call for the end of one."""


class RunningCallsReport:
    """Tells a receiver of ours which calls run, by editions of their rollouts' own spans (after `scrub`).

    Invariant: a receiver that hears from any gateway that a rollout is over knows of all calls that were answered
    before. So the end of an answer waits until the receiver has heard of the call, but at most one second. If the
    receiver does not answer in this time, no call waits again until it does; then it is told of all open rollouts.

    OTLP has no spans that still run. So the editions go to a path below that of traces (`post`), which only `art-otel
    serve` and gateways have. Any other collector refuses the path, and is asked again a minute later.
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
        """Report a call that begins.

        Returns a future that is done when the receiver has heard of it or could not be reached; None where the
        collector has no such path.
        """
        if not self._may_ask:
            return None
        span = self._rollouts.edition(rollout)
        self._waiting[span.span_id] = span
        self._news.set()
        # One future for all calls that the next report has.
        self._told = self._told or asyncio.get_running_loop().create_future()
        return self._told

    async def wait(self, told: "asyncio.Future[None]") -> None:
        """Wait for a future of `add`, at most a second; not at all while the receiver does not answer."""
        if not self._is_away:
            _, waiting = await asyncio.wait((told,), timeout=_WAIT)
            self._is_away = bool(waiting)

    async def run(self) -> None:
        """Send the reports, until the task is cancelled."""
        loop, every = asyncio.get_running_loop(), self._rollouts.grace / _PER_GRACE
        all_at, is_told = loop.time(), True
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), every)
            if self._may_ask and (not is_told or loop.time() - all_at >= every):
                all_at = loop.time()
                # After a failure, and three times in a grace, everything that is open is told again.
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
        """Send a report; False if it must be sent again, because the receiver did not answer or asked for that."""
        try:
            status = await self._post(body, RUNNING_PATH)
        except (UpstreamError, TimeoutError):
            return False
        if status in _AGAIN:
            return False
        if status >= FIRST_ERROR:
            self._not_before = asyncio.get_running_loop().time() + _ASK_AGAIN
        return True
