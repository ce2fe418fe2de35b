"""Ingest: writes exports (requests of OTLP exporters) to the spool, and answers OTLP/HTTP.

    POST /v1/traces ─► read body ─► queue ─► thread: decode, scrub, encode ─► spool (─► fsync) ─► 200

Invariant: an export is acknowledged only when its lines are in the spool file (with `fsync`: on the disk itself). If
they cannot be written, the export is refused and its exporter sends it again. Waiting exports take no more memory than
the budget of bodies. The answers of OTLP/HTTP:

    200  stored; `partial_success` says if records were quarantined     413  too large
    400  no OTLP          401  no token          403  a web page        415  another content type
    408  too slow         431  too many headers                         429, 503  send it again

Every refused request and every quarantined record is counted under its reason (`ReceiverMetrics`). The log has the
first of each kind, the tenth, the hundredth.

Sources: https://opentelemetry.io/docs/specs/otlp/#otlphttp,
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import asyncio
import base64
import contextlib
import json
import logging
import queue
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2  # pyright: ignore[reportMissingTypeStubs] # it has none
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from art_otel.attributes import GATEWAY_SCOPE
from art_otel.conventions.content_names import CONTENT_NAMES
from art_otel.http import Bodies
from art_otel.receiver.export import (
    Encoding,
    Export,
    ExportRefusedError,
    ReceivedRecords,
    Signal,
    WrittenRecords,
    read_export,
)
from art_otel.scrubbing import RecordScrubber, SecretRules
from art_otel.scrubbing.scrubber import scrub_records, scrub_span
from art_otel.sources import Record
from art_otel.spans import Event, JsonObject, Link, LogRecord, Resource, Scope, Span, Value
from art_otel.spool import SpooledLine, SpoolWriter

logger = logging.getLogger(__name__)

_MAX_WAITING: Final = 1024
"""How many exports wait for the writer; the next one is refused with 429."""
WhenWritten: TypeAlias = Callable[[Sequence[tuple[Sequence[Record], SpooledLine]]], None]
"""Called with written records, each list with the line in which its records stand."""

_MAX_TOGETHER: Final = 64
"""How many exports share one sync of the disk."""

_MAX_UNTOLD: Final = 64
"""How many short lines of the gateway's calls may wait before `when_written` hears of them."""
_SHORT_LINE: Final = 64 << 10
"""A line of fewer bytes is short."""


class IngestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`max_bytes` is the limit of one export after decompression.

    With `fsync` an acknowledged export survives a power failure, not only a killed process. `secrets` says what is
    scrubbed.
    """

    max_bytes: int = 256 << 20
    fsync: bool = False
    secrets: SecretRules = SecretRules()


class Ingest:
    """Writes exports to a spool, in a thread of its own, and calls `when_written` for each.

    The spans of calls that a gateway in this program writes (`write`) may wait for a later call of `when_written`, or
    for `tell`: such a span ends no rollout, and its agent is waiting for the answer.
    """

    def __init__(
        self, spool: SpoolWriter, options: IngestOptions, metrics: "ReceiverMetrics", when_written: WhenWritten | None
    ) -> None:
        self._spool = spool
        self._options = options
        self._metrics = metrics
        self._when_written = when_written
        self._untold: list[tuple[Sequence[Record], SpooledLine]] = []
        self._lock = threading.RLock()
        self._scrubber = RecordScrubber.of(options.secrets, CONTENT_NAMES)
        self._own_lines = SpanLines()
        self._commits = GroupCommit(spool.sync) if options.fsync else None
        self._waiting: queue.Queue[tuple[Export, Future[WrittenRecords]] | None] = queue.Queue(_MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name="art-otel ingest", daemon=True)
        self._thread.start()

    async def take(self, export: Export) -> WrittenRecords:
        """Write an export; return how many records were written and quarantined. Raises ExportRefusedError."""
        done: Future[WrittenRecords] = Future()
        try:
            self._waiting.put_nowait((export, done))
        except queue.Full:
            raise ExportRefusedError(429, "more data arrives than can be written") from None
        # A client that hangs up must not cancel the write: its spans are in the queue.
        return await asyncio.shield(asyncio.wrap_future(done))

    def write(self, spans: Sequence[Span]) -> None:
        """Write spans of this program at once. The caller awaits `synced` before it counts on them.

        Raises ExportRefusedError where the disk refuses them.
        """
        scrubber = self._scrubber
        self._spool_lines(
            [self._own_lines.line(span if scrubber is None else scrub_span(span, scrubber)) for span in spans],
            may_wait={span.scope.name for span in spans} == {GATEWAY_SCOPE},
        )
        self._metrics.stored(spans=len(spans), log_records=0, rejected={})

    async def synced(self) -> bool:
        """Wait until the disk itself has the written spans; False where it refuses. Without `fsync` True at once."""
        return self._commits is None or await self._commits.wait()

    def scrubbed(self, records: Iterable[Span | LogRecord]) -> Iterable[Span | LogRecord]:
        """The records without secrets, as they go into the spool."""
        return records if self._scrubber is None else scrub_records(records, self._scrubber)

    def close(self) -> None:
        """Write the exports that wait, call `when_written` for them, and end the thread."""
        self._waiting.put(None)
        self._thread.join()
        self.tell()
        if self._commits is not None:
            self._commits.close()
            self._spool.sync()
        self._spool.close()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            together = [first]
            ends = False
            with contextlib.suppress(queue.Empty):
                # All exports that wait by now share one sync of the disk.
                while len(together) < _MAX_TOGETHER and not ends:
                    more = self._waiting.get_nowait()
                    if more is None:
                        ends = True
                    else:
                        together.append(more)
            self._write(together)
            if ends:
                return

    def _write(self, exports: list[tuple[Export, "Future[WrittenRecords]"]]) -> None:
        written: list[tuple[WrittenRecords, Future[WrittenRecords]]] = []
        for export, done in exports:
            try:
                written.append((self._write_one(read_export(export, self._options.max_bytes)), done))
            except ExportRefusedError as refused:
                done.set_exception(refused.with_traceback(None))  # its frames hold what was decompressed
            except Exception as error:  # whatever is wrong with one export, the next one is written
                logger.exception("art-otel: an export could not be read; it is refused")
                done.set_exception(ExportRefusedError(500, f"it could not be read: {type(error).__name__}"))
        is_safe = not self._options.fsync or self._spool.sync()
        for stored, done in written:
            if is_safe:
                self._metrics.stored(spans=stored.spans, log_records=stored.log_records, rejected=stored.rejected)
                done.set_result(stored)
            else:
                done.set_exception(_unwritable())

    def _write_one(self, received: ReceivedRecords) -> WrittenRecords:
        lines = encode_lines(self.scrubbed(received.records))
        if lines:
            self._spool_lines(lines)
        return received.counts()

    def tell(self) -> None:
        """Call `when_written` for the lines that it has not heard of."""
        with self._lock:
            untold, self._untold = self._untold, []
            if untold and self._when_written is not None:
                self._when_written(untold)

    def _spool_lines(self, lines: "Sequence[OtlpLine]", *, may_wait: bool = False) -> None:
        with self._lock:  # held during both, so that `when_written` hears of lines in the order of the spool
            written = self._spool.write(b"".join([line.text for line in lines]))
            if written is None:
                raise _unwritable()
            if self._when_written is not None:
                spooled_lines = [written] if len(lines) == 1 else written.cut([len(line.text) for line in lines])
                self._untold += zip([line.records for line in lines], spooled_lines, strict=True)
                if not may_wait or written.size >= _SHORT_LINE or len(self._untold) >= _MAX_UNTOLD:
                    self.tell()


UNWRITABLE: Final = "the spool cannot be written: the disk may be full"


def _unwritable() -> ExportRefusedError:
    return ExportRefusedError(503, UNWRITABLE)


_ENCODINGS: Final[dict[str, Encoding]] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_TYPES: Final = {encoding: kind for kind, encoding in _ENCODINGS.items()}


RUNNING_PATH: Final = "/running"
"""The end of the path for the starts of spans that still run. No exporter sends those; only our gateways do."""


def otlp_routes(ingest: Ingest, bodies: Bodies, metrics: "ReceiverMetrics") -> list[Route]:
    """`POST /v1/traces`, `POST /v1/traces/running` and `POST /v1/logs`."""

    def route(signal: Signal) -> Callable[[Request], Awaitable[Response]]:
        async def post(request: Request) -> Response:
            try:
                encoding = _encoding_of(request)
                async with bodies.read(request.scope, request.receive) as body:
                    compression = request.headers.get("content-encoding", "").strip().lower()
                    export = Export(body=body, signal=signal, encoding=encoding, compression=compression)
                    return _answer(signal, encoding, await ingest.take(export))
            except HTTPException as refused:
                metrics.refused(refused.status_code, refused.detail)
                return _refusal(request, refused.status_code, refused.detail)
            except ExportRefusedError as refused:
                metrics.refused(refused.status, str(refused))
                return _refusal(request, refused.status, str(refused))

        return post

    return [
        Route("/v1/traces", route("traces"), methods=["POST"]),
        Route(f"/v1/traces{RUNNING_PATH}", route("traces"), methods=["POST"]),
        Route("/v1/logs", route("logs"), methods=["POST"]),
    ]


def encode_response(signal: Signal, stored: WrittenRecords) -> bytes:
    """The body of an answer in protobuf, with the number of quarantined records and the first reason."""
    count = sum(stored.rejected.values())
    if signal == "traces":
        response = trace_service_pb2.ExportTraceServiceResponse()
        if count:
            response.partial_success.rejected_spans = count
    else:
        response = logs_service_pb2.ExportLogsServiceResponse()
        if count:
            response.partial_success.rejected_log_records = count
    if count:
        response.partial_success.error_message = stored.why
    return response.SerializeToString()


def _encoding_of(request: Request) -> Encoding:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _ENCODINGS:
        raise HTTPException(415, f"Content-Type {kind!r}: send {' or '.join(_ENCODINGS)}")
    return _ENCODINGS[kind]


def _answer(signal: Signal, encoding: Encoding, stored: WrittenRecords) -> Response:
    if encoding == "protobuf":
        return Response(encode_response(signal, stored), media_type=_TYPES[encoding])
    count = sum(stored.rejected.values())
    field = "rejectedSpans" if signal == "traces" else "rejectedLogRecords"
    partial = {"partialSuccess": {field: str(count), "errorMessage": stored.why}} if count else {}
    return Response(json.dumps(partial), media_type=_TYPES[encoding])


def _refusal(request: Request, status: int, why: str) -> Response:
    """An error as OTLP wants it: a google.rpc.Status in the encoding of the request."""
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    if request.headers.get("content-type", "").startswith("application/x-protobuf"):
        text = why.encode()
        return Response(b"\x12" + _varint(len(text)) + text, status, headers, "application/x-protobuf")
    return Response(json.dumps({"message": why}), status, headers, "application/json")


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


class GroupCommit:
    """Syncs the disk for many waiters at once. `sync` runs in a thread of its own, so the event loop never blocks.

        A asks ─► sync 1 runs ──────► A is answered
        B, C ask meanwhile ─────────► sync 2 runs ─► B and C are answered

    B and C cannot share sync 1, which may have begun before their lines were written.
    """

    def __init__(self, sync: Callable[[], bool]) -> None:
        self._sync = sync
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="art-otel fsync")
        self._running: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    async def wait(self) -> bool:
        """Wait until the disk has all that was written before this call; False where it refuses."""
        if self._next is None:
            self._next = asyncio.create_task(self._flush(self._running))
        return await asyncio.shield(self._next)  # one waiter that is cancelled must not cancel it for the others

    async def _flush(self, before: "asyncio.Task[bool] | None") -> bool:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._next = self._next, None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._sync)

    def close(self) -> None:
        """End the thread after the sync that runs."""
        self._thread.shutdown()


_KINDS: Final = {"unspecified": 0, "internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUS: Final = {"unset": 0, "ok": 1, "error": 2}
_encode: Final = msgspec.json.Encoder().encode


class OtlpLine(NamedTuple):
    """The records of one trace, and the text of their line, with its newline."""

    records: list[Span | LogRecord]
    text: bytes


def encode_request(records: Iterable[Span | LogRecord]) -> bytes:
    """The OTLP JSON of one export request with all records."""
    return _encode(_request(records, _Resources()))


def encode_lines(records: Iterable[Span | LogRecord]) -> list[OtlpLine]:
    """Encode records as lines of OTLP JSON, one line for each trace."""
    by_trace: dict[str, list[Span | LogRecord]] = {}
    for record in records:
        by_trace.setdefault(record.trace_id, []).append(record)
    resources = _Resources()
    return [OtlpLine(of_trace, _encode(_request(of_trace, resources)) + b"\n") for of_trace in by_trace.values()]


class SpanLines:
    """Encodes a program's own spans as lines, one span a line. Its resource and its few scopes are encoded once."""

    def __init__(self) -> None:
        self._heads: dict[tuple[int, Scope], tuple[Resource, bytes]] = {}

    def line(self, span: Span) -> OtlpLine:
        """The line of one span."""
        key = (id(span.resource), span.scope)
        if key not in self._heads:
            resource = {"attributes": _pairs(span.resource.attributes)}
            scope = {"name": span.scope.name, "version": span.scope.version}
            head = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":%b,"spans":[' % (
                _encode(resource),
                _encode(scope),
            )
            self._heads[key] = (span.resource, head)  # held: else a new resource might get the same `id()`
        return OtlpLine([span], b"%b%b]}]}]}\n" % (self._heads[key][1], _encode(_span(span))))


class _Resources:
    """Encodes each resource once: the spans of a request share a few."""

    def __init__(self) -> None:
        self._encoded: dict[int, tuple[Resource, msgspec.Raw]] = {}

    def encode(self, resource: Resource) -> msgspec.Raw:
        encoded = self._encoded.get(id(resource))
        if encoded is None:
            raw = msgspec.Raw(_encode({"attributes": _pairs(resource.attributes)}))
            encoded = self._encoded[id(resource)] = (resource, raw)
        return encoded[1]


def _request(records: Iterable[Span | LogRecord], resources: _Resources) -> JsonObject:
    request: JsonObject = {}
    last: tuple[Resource, Scope] | None = None
    for record in records:
        if isinstance(record, LogRecord):
            batches = request.setdefault("resourceLogs", [{"scopeLogs": [{"logRecords": []}]}])
            batches[0]["scopeLogs"][0]["logRecords"].append(_log_record(record))
            continue
        if last is None or last[0] is not record.resource or last[1] != record.scope:
            last = (record.resource, record.scope)
            scope = {"name": record.scope.name, "version": record.scope.version}
            request.setdefault("resourceSpans", []).append(
                {"resource": resources.encode(record.resource), "scopeSpans": [{"scope": scope, "spans": []}]}
            )
        request["resourceSpans"][-1]["scopeSpans"][0]["spans"].append(_span(record))
    return request


def _span(span: Span) -> JsonObject:
    encoded: JsonObject = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(span.start_ns),
    }
    if span.parent_span_id is not None:
        encoded["parentSpanId"] = span.parent_span_id
    if span.end_ns is not None:
        encoded["endTimeUnixNano"] = str(span.end_ns)
    if span.attributes:
        encoded["attributes"] = _pairs(span.attributes)
    if span.events:
        encoded["events"] = [_event(event) for event in span.events]
    if span.links:
        encoded["links"] = [_link(link) for link in span.links]
    if span.status != "unset" or span.status_message:
        encoded["status"] = {"code": _STATUS[span.status], "message": span.status_message}
    for name, count in (
        ("droppedAttributesCount", span.dropped_attributes_count),
        ("droppedEventsCount", span.dropped_events_count),
        ("droppedLinksCount", span.dropped_links_count),
    ):
        if count:
            encoded[name] = count
    return encoded


def _event(event: Event) -> JsonObject:
    return {
        "name": event.name,
        "timeUnixNano": str(event.time_ns),
        "attributes": _pairs(event.attributes),
        "droppedAttributesCount": event.dropped_attributes_count,
    }


def _link(link: Link) -> JsonObject:
    return {"traceId": link.trace_id, "spanId": link.span_id, "attributes": _pairs(link.attributes)}


def _log_record(log: LogRecord) -> JsonObject:
    return {
        "traceId": log.trace_id,
        "spanId": log.span_id,
        "eventName": log.event_name,
        "timeUnixNano": str(log.time_ns),
        "body": _value(log.body),
        "attributes": _pairs(log.attributes),
        "droppedAttributesCount": log.dropped_attributes_count,
    }


def _pairs(attributes: Mapping[str, Value]) -> list[JsonObject]:
    return [
        {"key": key, "value": {"stringValue": value} if isinstance(value, str) else _value(value)}
        for key, value in attributes.items()
    ]


def _value(value: Value) -> JsonObject:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if value is None:
        return {}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs(cast("Mapping[str, Value]", value))}}
    return {"arrayValue": {"values": [_value(entry) for entry in value]}}


_HELP: Final = {
    "art_otel_received_requests_total": ("counter", "Received exports, by outcome."),
    "art_otel_stored_spans_total": ("counter", "Spans written to the spool."),
    "art_otel_stored_log_records_total": ("counter", "Log records written to the spool."),
    "art_otel_rejected_records_total": ("counter", "Records of stored exports that were quarantined, by reason."),
    "art_otel_spool_bytes_total": ("counter", "Bytes written to the spool."),
    "art_otel_finished_rollouts_total": ("counter", "Trajectories of finished rollouts, including revisions."),
    "art_otel_refused_questions_total": ("counter", "Requests of consumers that were refused, by status."),
    "art_otel_unmatched_rewards_total": ("counter", "Rewards for rollouts that have no other span yet."),
    "art_otel_handed_out_total": ("counter", "Trajectories delivered to consumers."),
    "art_otel_acknowledged_total": ("counter", "Trajectories that consumers acknowledged."),
    "art_otel_gateway_calls_total": ("counter", "Agents' calls that the gateway wrote to the spool."),
    "art_otel_gateway_unrecorded_calls_total": ("counter", "Agents' calls that could not be written."),
    "art_otel_gateway_upstream_errors_total": (
        "counter",
        "Requests for which the model server could not be reached or broke off.",
    ),
    "art_otel_gateway_forwarded_spans_total": ("counter", "Spans that the collector of `--otlp` accepted."),
    "art_otel_gateway_unforwarded_spans_total": (
        "counter",
        "Spans that the collector did not accept; the spool has them.",
    ),
    "art_otel_gateway_prompts_total": ("counter", "Calls with exact tokens, by how their prompt was made."),
    "art_otel_open_rollouts": ("gauge", "Rollouts or traces with spans that were not delivered yet."),
    "art_otel_lag_bytes": ("gauge", "Bytes of the spool that were not searched for finished rollouts yet."),
}


class ReceiverMetrics:
    """The counters and gauges of `/metrics`. Any thread may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._others: dict[str, Counter[tuple[str, str]]] = {}
        """The counters of other processes (a gateway's workers), by the name of the process."""

    def add(self, name: str, count: int = 1, labels: str = "") -> None:
        """Add to a counter. `labels` are in the syntax of Prometheus: `{status="200"}`."""
        with self._lock:
            self._counts[name, labels] += count

    def stored(self, *, spans: int, log_records: int, rejected: Mapping[str, int]) -> None:
        """Count an export that was written; `rejected` has the number of its quarantined records, by reason."""
        with self._lock:
            self._counts["art_otel_received_requests_total", '{status="200"}'] += 1
            self._counts["art_otel_stored_spans_total", ""] += spans
            self._counts["art_otel_stored_log_records_total", ""] += log_records
        for reason, count in rejected.items():
            self.add("art_otel_rejected_records_total", count, f'{{reason="{reason}"}}')

    def refused(self, status: int, why: str, *, path: str = "/v1/traces") -> None:
        """Count a refused request: an export, or, by its path, a question of a consumer."""
        is_question = path.startswith("/v1/rollouts")
        name = "art_otel_refused_questions_total" if is_question else "art_otel_received_requests_total"
        labels = f'{{status="{status}"}}'
        self.add(name, labels=labels)
        count = self._counts[name, labels]
        # The 1st, the 10th, the 100th and so on: a flood does not fill the log.
        if count == 10 ** (len(str(count)) - 1):
            what = "a question of a consumer" if is_question else "an export"
            logger.warning("art-otel: %s is refused with %d (%d so far): %s", what, status, count, why)

    def counts(self) -> list[tuple[str, str, int]]:
        """All counters of this process as (name, labels, count), to be sent to the process that calls `take`."""
        with self._lock:
            return [(name, labels, count) for (name, labels), count in self._counts.items()]

    def take(self, other: str, counts: Iterable[tuple[str, str, int]]) -> None:
        """Add the counters of another process, in the place of the ones that it sent before."""
        with self._lock:
            self._others[other] = Counter({(name, labels): count for name, labels, count in counts})

    def of_others(self, name: str) -> int:
        """The sum of a counter over the other processes."""
        with self._lock:
            return sum(counts[name, ""] for counts in self._others.values())

    def text(self, gauges: Mapping[str, int]) -> str:
        """All counters, and the given gauges, in the text format of Prometheus."""
        with self._lock:
            counts = sum(self._others.values(), Counter(self._counts))
        counts.update({(name, ""): value for name, value in gauges.items()})
        return "".join(_lines(counts))


def _lines(counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for name, (kind, explanation) in _HELP.items():
        yield f"# HELP {name} {explanation}\n# TYPE {name} {kind}\n"
        of_name = sorted((labels, value) for (other, labels), value in counts.items() if other == name)
        yield from (f"{name}{labels} {value}\n" for labels, value in of_name or [("", 0)])
