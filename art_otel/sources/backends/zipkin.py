"""Zipkin v2 JSON: lists of spans, as Zipkin's API and the exporters to Zipkin write them.

A list a trace, a list of such lists, a list a line, or a span a line. Tags are texts, so the types of attributes are
lost; the resource's attributes stand among the tags of its spans, and Zipkin's server makes names lower-case. A span
that shares the id of its client's (B3) gets one that is made of it, below the client's. Invariant: as `store_spans`.

Source of the format: https://zipkin.io/zipkin-api/ and, for what OTel puts into it,
https://opentelemetry.io/docs/specs/otel/trace/sdk_exporters/zipkin/ and the collector's Zipkin translator.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import msgspec

from art_otel.sources.backends.otel_tags import read_tags
from art_otel.sources.backends.store_spans import TranslatedSpan, Translator, plain, read_spans
from art_otel.sources.backends.values import Number, decode_exactly, us_to_ns
from art_otel.sources.format import SourceFormat
from art_otel.sources.json_documents import head_detector
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value

_SPAN_BYTES: Final = 8
_NAMES: Final = frozenset({"localEndpoint", "timestamp", "duration"})
_LINK: Final = re.compile(r"(?P<trace>[0-9a-f]*)\|(?P<span>[0-9a-f]*)\|")
_IS_COUNT: Final = re.compile("[0-9]{1,9}").fullmatch
_ATTRIBUTES: Final = msgspec.json.Decoder(dict[str, Value])
_NAMED: Final = msgspec.json.Decoder(dict[str, dict[str, Value]])


class _Note(NamedTuple):
    """What the text of an annotation says: a name, attributes, and how many were dropped."""

    name: str
    attributes: dict[str, Value]
    dropped: int


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


def _to_otlp(row: _Span) -> TranslatedSpan:
    tagged = read_tags(row.tags or {}, row.kind)
    links = list(_links(tagged.rest))
    start, duration = us_to_ns(row.timestamp, "timestamp"), us_to_ns(row.duration, "duration")
    span_id, parent_id = _ids(row)
    span = msgspec.structs.replace(
        tagged.span,
        trace_id=row.trace_id,
        span_id=span_id,
        parent_span_id=parent_id,
        name=row.name,
        start_time_unix_nano=start,
        end_time_unix_nano=None if start is None or duration is None else start + duration,
        events=[_event(annotation) for annotation in row.annotations or ()],
        links=links,
    )
    service = row.local_endpoint.service_name if row.local_endpoint else None
    return TranslatedSpan(span, {"service.name": service} if service else {}, tagged.scope)


def _ids(row: _Span) -> tuple[str | None, str | None]:
    """Give the ids of a span and of its parent; a server that shares its client's id gets another one."""
    if not row.shared or not row.id:
        return row.id, row.parent_id
    client_id = row.id.lower().zfill(2 * _SPAN_BYTES)
    return hashlib.blake2b(client_id.encode(), digest_size=_SPAN_BYTES).hexdigest(), client_id


def _links(tags: dict[str, Value]) -> Iterator[otlp.OtlpLink]:
    """Take out the collector's links: the tags `otlp.link.0`, … = `trace|span|state|attributes|dropped`."""
    for name in [name for name in tags if name.startswith("otlp.link.")]:
        tag = tags[name]
        match = _LINK.match(tag) if isinstance(tag, str) else None
        note = _collector_note(match.string[match.end() :]) if match else None
        if match and note:
            del tags[name]
            yield otlp.OtlpLink(trace_id=match["trace"], span_id=match["span"], attributes=plain(note.attributes))


def _event(annotation: _Annotation) -> otlp.OtlpEvent:
    text = annotation.value or ""
    note = _collector_note(text) or _sdk_note(text) or _Note(text, {}, 0)
    return otlp.OtlpEvent(
        time_unix_nano=us_to_ns(annotation.timestamp, "annotations.timestamp"),
        name=note.name,
        attributes=plain(note.attributes),
        dropped_attributes_count=note.dropped,
    )


def _collector_note(text: str) -> _Note | None:
    """Parse the collector's `name|{…}|dropped`."""
    head, _, number = text.rpartition("|")
    name, mark, attributes = head.partition("|{")
    if not mark or not _IS_COUNT(number):
        return None
    try:
        return _Note(name, _ATTRIBUTES.decode(f"{{{attributes}"), int(number))
    except (ValueError, RecursionError):
        return None


def _sdk_note(text: str) -> _Note | None:
    """Parse the SDKs' `"name": {…}`, or Python's `{"name": {…}}`."""
    if not text.startswith(('"', "{")):
        return None
    try:
        ((name, attributes),) = _NAMED.decode(text if text.startswith("{") else f"{{{text}}}").items()
    except (ValueError, RecursionError):
        return None
    return _Note(name, attributes, 0)


FORMAT: Final = SourceFormat(
    name="zipkin-json",
    # A score of Langfuse has its ids and a time, too.
    detects=head_detector(
        lambda span: span.keys() >= {"traceId", "id"} and bool(span.keys() & _NAMES) and "dataType" not in span
    ),
    reads=partial(
        read_spans,
        translator=Translator(
            message=_Span, to_otlp=_to_otlp, trace_id="traceId", span_id="id", padded=True, decode=decode_exactly
        ),
    ),
    not_in_format=(
        "types of attribute values",
        "case of names (Zipkin's server)",
        "nanoseconds",
        "which attributes are the resource's",
        "links (most exporters)",
    ),
)
