"""Zipkin v2 JSON: lists of spans, as Zipkin's API and the exporters to Zipkin write them.

A list a trace, a list of such lists, a list a line, or a span a line. Tags are texts, so the types of attributes are
lost; the resource's attributes stand among the tags of its spans, and Zipkin's server makes names lower-case. A span
that shares the id of its client's (B3) gets one that is made of it, below the client's. Invariant: as `json_spans`.

Source of the format: https://zipkin.io/zipkin-api/ and, for what OTel puts into it,
https://opentelemetry.io/docs/specs/otel/trace/sdk_exporters/zipkin/ and the collector's Zipkin translator.
"""

import hashlib
import io
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from art_otel.sources.backends.json_spans import Translator, read_spans
from art_otel.sources.backends.otel_tags import read_tags
from art_otel.sources.backends.plain_records import plain
from art_otel.sources.backends.times import Number, decode_exactly, us_to_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.heads import objects_in_head
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch, scope_of
from art_otel.spans import Resource, Value

_SPAN_BYTES: Final = 8
_NAMES: Final = frozenset({"localEndpoint", "timestamp", "duration"})
_LINK: Final = re.compile(r"(?P<trace>[0-9a-f]*)\|(?P<span>[0-9a-f]*)\|")
_NUMBER: Final = re.compile(r"[0-9]+")
_MAX_DIGITS: Final = 9
_ATTRIBUTES: Final = msgspec.json.Decoder(dict[str, Value])
_NAMED: Final = msgspec.json.Decoder(dict[str, dict[str, Value]])


class _Counted(NamedTuple):
    """The collector's `before|{…}|number`: attributes, and how many were dropped."""

    before: str
    attributes: str
    number: str


class _Endpoint(msgspec.Struct, rename="camel"):
    service_name: str | None = None


class _Annotation(msgspec.Struct):
    timestamp: Number | None = None
    value: str | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str | None = None
    id: str | None = None
    parent_id: str | None = None
    name: str | None = None
    kind: str | None = None
    shared: bool | None = None
    timestamp: Number | None = None
    duration: Number | None = None
    local_endpoint: _Endpoint | None = None
    tags: dict[str, Value] | None = None
    annotations: list[_Annotation] | None = None


_TRANSLATOR: Final = Translator(message=_Span, trace_id="traceId", span_id="id", padded=True)


def _detects(head: bytes) -> bool:
    return any(span.keys() >= {"traceId", "id"} and span.keys() & _NAMES for span in objects_in_head(head))


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    return read_spans(stream, reading, _TRANSLATOR, _to_otlp, decode_exactly)


FORMAT: Final = Format(
    name="zipkin-json",
    detects=_detects,
    reads=_reads,
    lacks=(
        "types of attribute values",
        "case of names (Zipkin's server)",
        "nanoseconds",
        "resource attributes apart from the span's",
        "links (most exporters)",
    ),
)


def _to_otlp(found: _Span, place: str) -> tuple[otlp.Span, Batch]:
    told = read_tags(found.tags or {}, found.kind)
    links = list(_links(told.attributes))
    start = us_to_ns(found.timestamp, "timestamp")
    taken = us_to_ns(found.duration, "duration")
    dropped_attributes, dropped_events, dropped_links = told.dropped
    span_id, parent_id = _ids(found)
    span = otlp.Span(
        trace_id=_TRANSLATOR.trace(found.trace_id),
        span_id=span_id,
        parent_span_id=parent_id,
        name=found.name,
        kind=told.kind,
        start_time_unix_nano=start,
        end_time_unix_nano=None if start is None or taken is None else start + taken,
        attributes=plain(told.attributes),
        events=[_event(one) for one in found.annotations or ()],
        links=links,
        status=told.status,
        dropped_attributes_count=dropped_attributes,
        dropped_events_count=dropped_events,
        dropped_links_count=dropped_links,
    )
    service = found.local_endpoint.service_name if found.local_endpoint else None
    resource = Resource(attributes={"service.name": service} if service else {})
    return span, Batch(place=place, resource=resource, scope=scope_of(told.scope))


def _ids(found: _Span) -> tuple[str | None, str | None]:
    """The ids of a span and of its parent."""
    given = _TRANSLATOR.span(found.id)
    if not found.shared or given is None:
        return given, _TRANSLATOR.span(found.parent_id)
    return hashlib.blake2b(given.encode(), digest_size=_SPAN_BYTES).hexdigest(), given


def _links(tags: dict[str, Value]) -> Iterator[otlp.Link]:
    """Links as the collector writes them: `otlp.link.0`, … = `trace|span|state|attributes|dropped`."""
    for name in [name for name in tags if name.startswith("otlp.link.")]:
        tag = tags[name]
        if not isinstance(tag, str) or (link := _LINK.match(tag)) is None:
            continue
        counted = _counted(tag[link.end() :])
        attributes = _decoded(counted.attributes) if counted else None
        if attributes is not None:
            del tags[name]
            yield otlp.Link(trace_id=link["trace"], span_id=link["span"], attributes=plain(attributes))


def _event(annotation: _Annotation) -> otlp.Event:
    """An event. Its attributes are `name|{…}|dropped` (collector), `"name": {…}` (SDKs) or `{"name": {…}}` (Python)."""
    text = annotation.value or ""
    counted = _counted(text)
    if counted and len(counted.number) > _MAX_DIGITS:
        counted = None
    attributes = _decoded(counted.attributes) if counted else None
    name = counted.before if counted and attributes is not None else text
    if counted is None and text.startswith(('"', "{")):
        name, attributes = _named(text)
    return otlp.Event(
        time_unix_nano=us_to_ns(annotation.timestamp, "annotations.timestamp"),
        name=name,
        attributes=plain(attributes),
        dropped_attributes_count=int(counted.number) if counted and attributes is not None else 0,
    )


def _counted(text: str) -> _Counted | None:
    head, _, number = text.rpartition("|")
    before, mark, attributes = head.partition("|{")
    if not mark or not attributes.endswith("}") or not _NUMBER.fullmatch(number):
        return None
    return _Counted(before, f"{{{attributes}", number)


def _named(text: str) -> tuple[str, dict[str, Value] | None]:
    try:
        ((name, attributes),) = _NAMED.decode(text if text.startswith("{") else f"{{{text}}}").items()
    except (ValueError, RecursionError):
        return text, None
    return name, attributes


def _decoded(text: str) -> dict[str, Value] | None:
    try:
        return _ATTRIBUTES.decode(text)
    except (ValueError, RecursionError):
        return None
