"""Spans from Phoenix's REST API, as its client gives them: a list, an answer `{"data": […]}`, or a span a line.

Phoenix moves the attribute `openinference.span.kind` into `span_kind`; here it is an attribute again. Invariant: as
`json_spans`.

Source of the format: `GET /v1/projects/{project}/spans` (https://arize.com/docs/phoenix/sdk-api-reference/rest-api).
"""

import io
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from art_otel.sources.backends.json_spans import Spelling, read_spans
from art_otel.sources.backends.nested import flatten
from art_otel.sources.backends.plain_records import plain
from art_otel.sources.backends.times import as_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.frame import Frame
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


_SPELLING: Final = Spelling(
    frame=Frame(
        begins=re.compile(
            rb'\{\s*+"id"\s*+:\s*+"[^"\\]*+"\s*+,\s*+"name"\s*+:\s*+"(?:[^"\\]++|\\.)*+"\s*+,\s*+"context"'
        ),
        names=frozenset({b"context", b"start_time"}),
        around=re.compile(rb'\{\s*+"data"\s*+:\s*+\['),
    ),
    decoder=msgspec.json.Decoder(_Span),
    trace_id=re.compile(rb'"trace_id"\s*+:\s*+"([0-9a-fA-F]{32})"'),
    span_id=re.compile(rb'"span_id"\s*+:\s*+"([0-9a-fA-F]{16})"'),
)


def _detects(head: bytes) -> bool:
    return _SPELLING.frame.first_keys(head) >= {b"context", b"span_kind"}


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    return read_spans(stream, reading, _SPELLING, _build)


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


def _build(found: _Span, place: str) -> tuple[otlp.Span, Batch]:
    attributes = flatten(found.attributes or {})
    if found.span_kind and found.span_kind != _UNKNOWN:
        attributes.setdefault(_SPAN_KIND, found.span_kind)
    span = otlp.Span(
        trace_id=_SPELLING.trace(found.context.trace_id),
        span_id=_SPELLING.span(found.context.span_id),
        parent_span_id=_SPELLING.span(found.parent_id),
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
