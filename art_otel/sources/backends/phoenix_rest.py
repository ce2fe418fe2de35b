"""Spans from Phoenix's REST API, as its client gives them: a list, an answer `{"data": […]}`, or a span a line.

Phoenix moves the attribute `openinference.span.kind` into `span_kind`; here it is an attribute again. Invariant: as
`json_spans`.

Source of the format: `GET /v1/projects/{project}/spans` (https://arize.com/docs/phoenix/sdk-api-reference/rest-api).
"""

import io
from collections.abc import Iterator
from typing import Final

import msgspec

from art_otel.sources.backends.json_spans import Translator, read_spans
from art_otel.sources.backends.nested import flatten
from art_otel.sources.backends.plain_records import plain
from art_otel.sources.backends.times import as_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.heads import objects_in_head
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.spans import Resource, Scope, Value

_SPAN_KIND: Final = "openinference.span.kind"
_UNKNOWN: Final = "UNKNOWN"


class _Context(msgspec.Struct):
    trace_id: str | None = None
    span_id: str | None = None


class _Event(msgspec.Struct):
    name: str | None = None
    timestamp: str | None = None
    attributes: dict[str, Value] | None = None


class _Span(msgspec.Struct):
    context: _Context
    name: str | None = None
    span_kind: str | None = None
    parent_id: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    status_code: str | None = None
    status_message: str | None = None
    attributes: dict[str, Value] | None = None
    events: list[_Event] | None = None


_TRANSLATOR: Final = Translator(message=_Span, trace_id="trace_id", span_id="span_id")


def _detects(head: bytes) -> bool:
    return any(span.keys() >= {"context", "span_kind"} for span in objects_in_head(head))


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    return read_spans(stream, reading, _TRANSLATOR, _to_otlp)


FORMAT: Final = Format(
    name="phoenix-json",
    detects=_detects,
    reads=_reads,
    lacks=(
        "resource attributes",
        "instrumentation scope",
        "span kind",
        "links",
        "nanoseconds",
        "dropped counts",
    ),
)


def _to_otlp(found: _Span, place: str) -> tuple[otlp.Span, Batch]:
    attributes = flatten(found.attributes or {})
    if found.span_kind and found.span_kind != _UNKNOWN:
        attributes.setdefault(_SPAN_KIND, found.span_kind)
    span = otlp.Span(
        trace_id=_TRANSLATOR.trace(found.context.trace_id),
        span_id=_TRANSLATOR.span(found.context.span_id),
        parent_span_id=_TRANSLATOR.span(found.parent_id),
        name=found.name,
        start_time_unix_nano=as_ns(found.start_time, "start_time"),
        end_time_unix_nano=as_ns(found.end_time, "end_time"),
        attributes=plain(attributes),
        events=[_event(event) for event in found.events or ()],
        status=otlp.Status(code=f"STATUS_CODE_{found.status_code or 'UNSET'}", message=found.status_message),
    )
    return span, Batch(place=place, resource=Resource(), scope=Scope())


def _event(event: _Event) -> otlp.Event:
    return otlp.Event(
        name=event.name,
        time_unix_nano=as_ns(event.timestamp, "events.timestamp"),
        attributes=plain(event.attributes),
    )
