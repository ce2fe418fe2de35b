"""Forwarding: the spans that the gateway makes go to an OpenTelemetry collector as well, with their whole content.

Invariant: no call waits for the collector, and what waits for it is bounded. The spool has every span; what the
collector does not get, because it is away for too long or refuses it, is counted, and the log says it once an outage.

Source of the protocol: https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from art_otel.conventions.exchanges import whole
from art_otel.errors import UsageError
from art_otel.exchange.exchange import FIRST_REFUSAL
from art_otel.model_gateway.addresses import baggage_of
from art_otel.model_gateway.rollouts import Rollouts
from art_otel.model_gateway.running_calls import AGAIN, RunningCallsReport, Scrub
from art_otel.model_gateway.upstreams import Connections, UpstreamError
from art_otel.receiver.ingest import encode_lines
from art_otel.receiver.metrics import ReceiverMetrics
from art_otel.spans import Span

logger = logging.getLogger(__name__)

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
            if status not in AGAIN:
                break
        self._lose(spans, why)

    def _lose(self, spans: int, why: str) -> None:
        self._metrics.add("art_otel_gateway_unforwarded_spans_total", spans)
        if not self._is_out:
            self._is_out = True
            logger.warning("art-otel: spans do not reach the collector at %s: %s. The spool has them", self._url, why)
