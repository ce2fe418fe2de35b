"""OTLP JSON: one ExportTraceServiceRequest or ExportLogsServiceRequest per line, traces and logs also mixed.

A collector's file exporter and the SDK's JSON file exporter write this. These forms are read, too, also between lines:

    a request over several lines, a JSON array of requests
    {"batches": […]}, {"trace": {"resourceSpans": …}}       answers of Tempo's query API
    {"result": {"resourceSpans": …}}                        answers of Jaeger v3's query API
    {"resource_spans": …}, {"trace_id": …}                  protobuf's names, or only a part of a request (a span, a
                                                            ScopeSpans, …), as apps' own programs write them

Invariant: a bad record costs only itself. A document that does not decode at once is converted record by record. A
document that is no JSON is lost; if it only ends too early, the whole records before its end are kept.

Source of the format: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/,
https://grafana.com/docs/tempo/latest/api_docs/, https://www.jaegertracing.io/docs/latest/apis/
"""

import binascii
import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET

from art_otel.sources.format import (
    NO_IDS,
    DroppedFields,
    Ids,
    Reading,
    Record,
    Refused,
    Site,
    SourceFormat,
    attribute_path,
    converted,
    too_long,
)
from art_otel.sources.json_documents import (
    Document,
    is_list,
    is_object,
    items_of,
    objects_in_head,
    parse_values,
    read_documents,
    read_documents_of,
    split_torn,
)
from art_otel.sources.otlp import records as otlp
from art_otel.sources.otlp.records import OtlpSpanBuilder, finite
from art_otel.spans import Quarantined, Value
from art_otel.spans.span import Kind

_BASE64_LENGTHS: Final = frozenset({24, 22, 12, 11})
"""Characters of a trace id and a span id in base64, padded or not; in hex they have 32 and 16."""

_RECORDS: Final[dict[str, tuple[Kind, type[otlp.OtlpMessage]]]] = {
    "spans": ("span", otlp.OtlpSpan),
    "logRecords": ("log", otlp.OtlpLogRecord),
}
_SHARED: Final = {"resource": otlp.OtlpResource, "scope": otlp.OtlpScope}
_HOLDERS: Final = {
    "trace",
    "result",
    "resourceSpans",
    "batches",
    "resourceLogs",
    "scopeSpans",
    "scopeLogs",
    *_RECORDS,
}
_UPPER: Final = re.compile("[A-Z]")
HOLDERS: Final = frozenset(_HOLDERS | {_UPPER.sub(lambda upper: f"_{upper[0].lower()}", name) for name in _HOLDERS})
"""The fields that lead to records, with JSON's names and with protobuf's names."""

_Requests: TypeAlias = otlp.ExportRequest | list[otlp.ExportRequest]
_SIGNALS: Final = ("resourceSpans", "resourceLogs", "resourceMetrics", "resourceProfiles", "batches")
_ENVELOPES: Final = ("trace", "result")
_PARTS: Final = (
    ("spans", "scopeSpans", "resourceSpans"),
    ("logRecords", "scopeLogs", "resourceLogs"),
)
"""The levels of a request, from the inside: records, the records of one scope, those of one resource."""

_ID_NAMES: Final = (("traceId", "trace_id"), ("spanId", "span_id"))
_SNAKE: Final = re.compile("_([a-z])")
_TIMES: Final = frozenset({"startTimeUnixNano", "timeUnixNano", "observedTimeUnixNano"})
_OF_RECORDS: Final = frozenset({"spanId", "body", "severityNumber", "eventName"})
_EMPTY_BYTES: Final = 1 << 10
_BEGINNING: Final = re.compile(r'\{\s*+"resource(?:Spans|Logs|Metrics|Profiles)"\s*+:')
_CUT: Final = re.compile(rb"\n(?=(?:\xef\xbb\xbf|\x1e)?" + _BEGINNING.pattern.encode() + rb")")
_decode: Final[Callable[[bytes | memoryview], _Requests]] = msgspec.json.Decoder(_Requests, strict=False).decode


def _detects(head: bytes) -> bool:
    return any(_is_request(as_request(value)) for value in objects_in_head(head))


def _is_request(value: Value) -> bool:
    return is_object(value) and (
        any(isinstance(value.get(name), list) for name in _SIGNALS)
        or any(_is_request(value.get(name)) for name in _ENVELOPES)
    )


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    return _records(read_documents(stream, reading.limits.max_message_bytes, _decode), reading)


def as_request(value: Value) -> Value:
    """Make a request of a part of one, and of protobuf's field names; any other value is returned unchanged.

        {"trace_id": …, "start_time_unix_nano": …}    ->    {"resourceSpans": [{"scopeSpans": [{"spans": […]}]}]}

    All names in a message are OTLP's (attributes are lists of keys and values), so all of them can be rewritten.
    """
    if not is_object(value) or _is_request(value):
        return value
    try:
        message = _in_camel_case(value)
    except RecursionError:  # the conversion of the value reports it
        return value
    if not is_object(message) or _is_request(message):
        return message
    for records, scopes, resources in _PARTS:
        if is_list(message.get(scopes)):
            return {resources: [message]}
        if _are_records(message.get(records)):
            return {resources: [{scopes: [message]}]}
        if _is_record(message):
            name = "spans" if "startTimeUnixNano" in message else "logRecords"
            if name == records:
                scoped = {records: [message], "scope": message.get("scope")}
                return {resources: [{scopes: [scoped], "resource": message.get("resource")}]}
    return value


def _in_camel_case(value: Value) -> Value:
    if is_list(value):
        return [_in_camel_case(item) for item in value]
    if not is_object(value):
        return value
    return {_SNAKE.sub(lambda match: match[1].upper(), name): _in_camel_case(item) for name, item in value.items()}


def _are_records(value: Value) -> bool:
    return is_list(value) and any(map(_is_record, value))


def _is_record(value: Value) -> bool:
    """Whether a value is a span or a log record: only these have OTLP's times, and attributes in a list."""
    return (
        is_object(value)
        and not _TIMES.isdisjoint(value)
        and not _OF_RECORDS.isdisjoint(value)
        and isinstance(value.get("attributes", []), list)
    )


FORMAT: Final = SourceFormat(name="otlp-json", detects=_detects, reads=_reads, cuts=_CUT)


def read_lines_of(lines: Iterable[bytes], reading: Reading) -> Iterator[Record]:
    """Read every record of lines in memory."""
    documents = (
        document._replace(line=number)
        for number, line in enumerate(lines, 1)
        for document in read_documents_of(line, _decode)
    )
    return _records(documents, reading)


def _records(documents: Iterable[Document[_Requests]], reading: Reading) -> Iterator[Record]:
    builder = JsonSpanBuilder(reading)
    for document in documents:
        location = f"{reading.path}:{document.line}"
        if document.data is None:
            yield too_long(location)
            continue
        reading.stats.replaced += document.replaced
        if document.value is UNSET:
            yield from _read_leniently(document, builder)
            continue
        requests = document.value if isinstance(document.value, list) else [document.value]
        is_empty = b":" not in bytes(document.data[:_EMPTY_BYTES])
        if not is_empty and not all(request.is_otlp for request in requests):
            yield from _read_leniently(document, builder)
            continue
        for request in requests:
            yield from _read(request, location, builder, is_empty=is_empty)


def _read(
    request: otlp.ExportRequest, location: str, builder: "JsonSpanBuilder", *, is_empty: bool
) -> Iterator[Record]:
    if not request.is_otlp and not is_empty:
        yield Refused("not OTLP", detail="it has neither resourceSpans nor resourceLogs").quarantine(location)
    for part in request.parts:
        builder.reading.stats.other_signals += part.has_other_signal
        yield from builder.traces(part.resource_spans or part.batches or None, location)
        yield from builder.logs(part.resource_logs or None, location)


def _read_leniently(document: Document[_Requests], builder: "JsonSpanBuilder") -> Iterator[Record]:
    """Read every record of a document that does not decode at once."""
    for piece in parse_values(bytes(document.data or b""), _BEGINNING):
        location = f"{builder.reading.path}:{document.line + piece.lines}"
        if not isinstance(piece.value, Refused):
            yield from _recover(piece.value, location, builder)
        elif piece.value.reason == "torn":
            whole, torn = split_torn(piece.text, HOLDERS)
            yield from _recover(whole, location, builder)
            yield piece.value.quarantine(location, ids=ids_of(torn, builder))
        else:
            yield piece.value.quarantine(location)


def _recover(value: Value, location: str, builder: "JsonSpanBuilder") -> Iterator[Record]:
    for item in map(as_request, items_of(value)):
        try:
            request, quarantined = recover_request(item, location, builder)
        except Refused as problem:
            yield problem.quarantine(location)
        else:
            yield from _read(request, location, builder, is_empty=not item)
            yield from quarantined


class JsonSpanBuilder(OtlpSpanBuilder):
    """Builds records of messages decoded from JSON: hex ids and base64 bytes."""

    def hex(self, raw: object, digits: int) -> str:  # noqa: ARG002 # their length tells
        """Read an id, as `OtlpSpanBuilder.hex` asks."""
        return hex_id(raw) if isinstance(raw, str) else ""

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, dropped: DroppedFields) -> dict[str, Value]:
        """Read attributes, as `OtlpSpanBuilder.attributes` asks."""
        flat: dict[str, Value] = {}
        for pair in pairs or ():
            value = pair.value
            if value is not None and (text := value.string_value) is not None:
                flat[pair.key] = text  # most values are texts or whole numbers: no call for these, here and below
            elif value is not None and (number := value.int_value) is not None:
                flat[pair.key] = number
            else:
                flat[pair.key] = self._value(value, (owner, pair.key), dropped, 1)
        return flat

    def value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields) -> Value:
        """Read a value, as `OtlpSpanBuilder.value` asks."""
        return value.string_value if value and value.string_value is not None else self._value(value, site, dropped, 1)

    def _value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields, depth: int) -> Value:
        """Read a value that is no text. `depth` is the nesting depth that a list or dict has here."""
        if value is None:
            return None
        if value.int_value is not None:
            return value.int_value
        if value.double_value is not None:
            return finite(value.double_value, site, dropped)
        if value.bool_value is not None:
            return value.bool_value
        if value.kvlist_value is not None:
            return self._dict(value.kvlist_value.values or (), site, dropped, depth)
        if value.array_value is not None:
            return self._list(value.array_value.values or (), site, dropped, depth)
        return None if value.bytes_value is None else _base64(value.bytes_value, site)

    def _dict(self, pairs: Iterable[otlp.KeyValue], site: Site, dropped: DroppedFields, depth: int) -> dict[str, Value]:
        self.check_depth(depth, site)
        flat: dict[str, Value] = {}
        for pair in pairs:
            value = pair.value
            if value is None or (text := value.string_value) is None:
                flat[pair.key] = self._value(value, site, dropped, depth + 1)
            else:
                flat[pair.key] = text
        return flat

    def _list(self, values: Iterable[otlp.AnyValue], site: Site, dropped: DroppedFields, depth: int) -> list[Value]:
        self.check_depth(depth, site)
        return [  # many lists are token ids: no call for whole numbers
            value.int_value
            if value.string_value is None and value.int_value is not None
            else self._item(value, site, dropped, depth + 1)
            for value in values
        ]

    def _item(self, value: otlp.AnyValue, site: Site, dropped: DroppedFields, depth: int) -> Value:
        text = value.string_value
        return self._value(value, site, dropped, depth) if text is None else text


def hex_id(text: str) -> str:
    """Write an id in lower-case hex. Protobuf's own JSON mapping writes base64, recognized by its length."""
    if len(text) in _BASE64_LENGTHS:
        with contextlib.suppress(ValueError):
            return _bytes_of(text).hex()
    return text.lower()


def _base64(text: str, site: Site) -> bytes:
    try:
        return _bytes_of(text)
    except ValueError as error:
        raise Refused("bad field", attribute_path(site), f"bytesValue is not base64: {error}") from error


def _bytes_of(text: str) -> bytes:
    """Decode base64, standard or URL-safe, padded or not, as protobuf's JSON mapping allows. Raises ValueError."""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    return binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)


def recover_request(
    value: Value, location: str, builder: OtlpSpanBuilder
) -> tuple[otlp.ExportRequest, list[Quarantined]]:
    """Convert a JSON object to a request, after its bad parts were taken out and quarantined. Raises Refused."""
    try:
        return converted(value, otlp.ExportRequest), []
    except Refused:
        quarantined = list(_take_out_bad(value, location, builder))
    try:
        return converted(value, otlp.ExportRequest), quarantined
    except Refused as problem:
        raise Refused("not OTLP", problem.where, problem.detail) from None


def ids_of(value: Value, builder: OtlpSpanBuilder) -> Ids:
    """Read the ids of an object that could not become a record; a bad id is None."""
    if not is_object(value):
        return NO_IDS
    trace_id, span_id = (value.get(name, value.get(other)) for name, other in _ID_NAMES)
    return builder.known_ids(trace_id, span_id)


def _take_out_bad(request: Value, location: str, builder: OtlpSpanBuilder) -> Iterator[Quarantined]:
    waiting = [request]
    while waiting:
        message = waiting.pop()
        for name, value in message.items() if is_object(message) else ():
            if name in _RECORDS and is_list(value):
                kind, record_type = _RECORDS[name]
                problems = [_problem_of(record, record_type) for record in value]
                for record, problem in zip(value, problems, strict=True):
                    if problem is not None:
                        yield problem.quarantine(location, kind, ids_of(record, builder))
                value[:] = [record for record, problem in zip(value, problems, strict=True) if problem is None]
            elif name in HOLDERS:
                waiting += reversed(value) if is_list(value) else [value]
            elif name in _SHARED and value is not None and (problem := _problem_of(value, _SHARED[name])) is not None:
                message[name] = None
                where = f"{name}.{problem.where}".rstrip(".")
                yield Refused(problem.reason, where, problem.detail).quarantine(location, partial=True)


def _problem_of(value: Value, message: type[otlp.OtlpMessage]) -> Refused | None:
    try:
        converted(value, message)
    except Refused as problem:
        return problem
    return None
