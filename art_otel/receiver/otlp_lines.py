"""OTLP lines: records as lines of OTLP JSON, one a trace.

Invariant: reading the lines gives equal records, in the order of each trace. What belongs to no trace has a line too.

Source of the format: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast

import msgspec

from art_otel.spans import Event, JsonObject, Link, LogRecord, Resource, Scope, Span, Value

_KINDS: Final = {"unspecified": 0, "internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUS: Final = {"unset": 0, "ok": 1, "error": 2}
_encode: Final = msgspec.json.Encoder().encode


class OtlpLine(NamedTuple):
    """The records of a trace, and the line, with its end, that they are read from."""

    records: list[Span | LogRecord]
    text: bytes


def encode_request(records: Iterable[Span | LogRecord]) -> bytes:
    """One export of all records."""
    return _encode(_request(records, _Resources()))


def encode_lines(records: Iterable[Span | LogRecord]) -> list[OtlpLine]:
    """The lines of the records."""
    by_trace: dict[str, list[Span | LogRecord]] = {}
    for record in records:
        by_trace.setdefault(record.trace_id, []).append(record)
    resources = _Resources()
    return [OtlpLine(of_trace, _encode(_request(of_trace, resources)) + b"\n") for of_trace in by_trace.values()]


class SpanLines:
    """The lines of a program's own spans, one by one. Its resource and its few scopes are encoded once."""

    def __init__(self) -> None:
        self._heads: dict[tuple[int, Scope], tuple[Resource, bytes]] = {}

    def line(self, span: Span) -> OtlpLine:
        """The line of a span."""
        key = (id(span.resource), span.scope)
        if key not in self._heads:
            resource = {"attributes": _pairs(span.resource.attributes)}
            scope = {"name": span.scope.name, "version": span.scope.version}
            head = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":%b,"spans":[' % (
                _encode(resource),
                _encode(scope),
            )
            self._heads[key] = (span.resource, head)  # held, so that no other gets its id
        return OtlpLine([span], b"%b%b]}]}]}\n" % (self._heads[key][1], _encode(_span(span))))


class _Resources:
    """Resources that are encoded once: the spans of a request share a few."""

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
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


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
