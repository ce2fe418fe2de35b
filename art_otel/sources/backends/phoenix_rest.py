"""Spans from Phoenix's REST API, as its client gives them: a list, an answer `{"data": […]}`, or a span a line.

Phoenix moves the attribute `openinference.span.kind` into `span_kind`; here it is an attribute again. Invariant: as
`store_spans`.

Source of the format: `GET /v1/projects/{project}/spans` (https://arize.com/docs/phoenix/sdk-api-reference/rest-api).
"""

from functools import partial
from typing import Final

import msgspec

from art_otel.sources.backends.store_spans import SpanContext, TranslatedSpan, Translator, plain, read_spans
from art_otel.sources.backends.values import as_ns, flatten
from art_otel.sources.format import SourceFormat
from art_otel.sources.json_documents import head_detector
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value

_SPAN_KIND: Final = "openinference.span.kind"
_UNKNOWN: Final = "UNKNOWN"


class PhoenixEvent(msgspec.Struct):
    """A moment in a span."""

    name: str | None = None
    timestamp: int | str | None = None
    attributes: dict[str, Value] | None = None


class PhoenixSpan(msgspec.Struct):
    """An operation. A dataframe may have times as numbers."""

    context: SpanContext
    name: str | None = None
    span_kind: str | None = None
    parent_id: str | None = None
    start_time: int | str | None = None
    end_time: int | str | None = None
    status_code: str | None = None
    status_message: str | None = None
    attributes: dict[str, Value] | None = None
    events: list[PhoenixEvent] | None = None


def to_otlp(row: PhoenixSpan) -> TranslatedSpan:
    """Translate a span. Raises Refused."""
    attributes = flatten(row.attributes or {})
    if row.span_kind and row.span_kind != _UNKNOWN:
        attributes.setdefault(_SPAN_KIND, row.span_kind)
    span = otlp.OtlpSpan(
        trace_id=row.context.trace_id,
        span_id=row.context.span_id,
        parent_span_id=row.parent_id,
        name=row.name,
        start_time_unix_nano=as_ns(row.start_time, "start_time"),
        end_time_unix_nano=as_ns(row.end_time, "end_time"),
        attributes=plain(attributes),
        events=[_event(event) for event in row.events or ()],
        status=otlp.OtlpStatus(code=f"STATUS_CODE_{row.status_code or 'UNSET'}", message=row.status_message),
    )
    return TranslatedSpan(span)


def _event(event: PhoenixEvent) -> otlp.OtlpEvent:
    time = as_ns(event.timestamp, "events.timestamp")
    return otlp.OtlpEvent(name=event.name, time_unix_nano=time, attributes=plain(flatten(event.attributes or {})))


FORMAT: Final = SourceFormat(
    name="phoenix-json",
    detects=head_detector(lambda span: span.keys() >= {"context", "span_kind"}),
    reads=partial(read_spans, translator=Translator(message=PhoenixSpan, to_otlp=to_otlp)),
    lacks=("resource attributes", "instrumentation scope", "span kind", "links", "nanoseconds", "dropped counts"),
)
