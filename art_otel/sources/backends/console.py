"""What the SDK's console exporters print: a JSON object a span, pretty-printed or a line each, amid other output.

Log records (`console_logs`) may stand among the spans.

Invariant: as `store_spans`; what a program printed besides is passed over, whatever it is.

Source of the format: `ReadableSpan.to_json` of opentelemetry-sdk (Python).
"""

import io
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from art_otel.sources.backends.store_spans import (
    LocatedObject,
    PlainSpanBuilder,
    SpanContext,
    TranslatedSpan,
    Translator,
    plain,
    read_objects,
    read_span,
)
from art_otel.sources.backends.values import as_ns
from art_otel.sources.format import Reading, Record, Refused, SourceFormat, converted
from art_otel.sources.json_documents import head_detector, is_object
from art_otel.sources.otlp import records as otlp
from art_otel.sources.otlp.records import ScopeBatch
from art_otel.spans import Quarantined, Resource, Scope, Value


class _Log(msgspec.Struct):
    body: Value = None
    attributes: dict[str, Value] | None = None
    dropped_attributes: int | None = None
    timestamp: str | None = None
    observed_timestamp: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None


def is_log(value: Mapping[str, Value]) -> bool:
    """Whether an object is a log record."""
    return value.keys() >= {"body", "severity_number", "trace_id"}


def read_log(item: LocatedObject, builder: PlainSpanBuilder) -> Iterator[Record]:
    """Read the log record in one object, or the Quarantined that says why there is none."""
    try:
        message = _log_to_otlp(converted(item.value, _Log, strict=True))
    except Refused as problem:
        ids = builder.known_ids(item.value.get("trace_id"), item.value.get("span_id"))
        yield problem.quarantine(item.location, "log", ids)
        return
    yield from builder.log_record(message, ScopeBatch(location=item.location, resource=Resource(), scope=Scope()))


def _log_to_otlp(log: _Log) -> otlp.OtlpLogRecord:
    return otlp.OtlpLogRecord(
        trace_id=log.trace_id,
        span_id=log.span_id,
        time_unix_nano=as_ns(log.timestamp, "timestamp"),
        observed_time_unix_nano=as_ns(log.observed_timestamp, "observed_timestamp"),
        body=log.body,  # pyright: ignore[reportArgumentType] # PlainSpanBuilder takes plain values
        attributes=plain(log.attributes),
        event_name=log.event_name,
        dropped_attributes_count=log.dropped_attributes,
    )


class _Status(msgspec.Struct):
    status_code: str | None = None
    description: str | None = None


class _Event(msgspec.Struct):
    name: str | None = None
    timestamp: str | None = None
    attributes: dict[str, Value] | None = None


class _Link(msgspec.Struct):
    context: SpanContext
    attributes: dict[str, Value] | None = None


class _Resource(msgspec.Struct):
    attributes: dict[str, Value] | None = None


class _Span(msgspec.Struct):
    context: SpanContext
    name: str | None = None
    kind: str | None = None
    parent_id: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    status: _Status | None = None
    attributes: dict[str, Value] | None = None
    events: list[_Event] | None = None
    links: list[_Link] | None = None
    resource: _Resource | None = None


def _to_otlp(row: _Span) -> TranslatedSpan:
    status = row.status or _Status()
    span = otlp.OtlpSpan(
        trace_id=row.context.trace_id,
        span_id=row.context.span_id,
        parent_span_id=row.parent_id,
        name=row.name,
        kind=row.kind and f"SPAN_KIND_{row.kind.removeprefix('SpanKind.')}",
        start_time_unix_nano=as_ns(row.start_time, "start_time"),
        end_time_unix_nano=as_ns(row.end_time, "end_time"),
        attributes=plain(row.attributes),
        events=[_event(event) for event in row.events or ()],
        links=[_link(link) for link in row.links or ()],
        status=otlp.OtlpStatus(code=f"STATUS_CODE_{status.status_code or 'UNSET'}", message=status.description),
    )
    return TranslatedSpan(span, resource=(row.resource and row.resource.attributes) or {})


def _event(event: _Event) -> otlp.OtlpEvent:
    time = as_ns(event.timestamp, "events.timestamp")
    return otlp.OtlpEvent(name=event.name, time_unix_nano=time, attributes=plain(event.attributes))


def _link(link: _Link) -> otlp.OtlpLink:
    context = link.context
    return otlp.OtlpLink(trace_id=context.trace_id, span_id=context.span_id, attributes=plain(link.attributes))


_TRANSLATOR: Final = Translator(message=_Span, to_otlp=_to_otlp)
_IS_RECORD: Final = re.compile(r'"trace_id"\s*+:\s*+"0x').search


def _is_span(value: dict[str, Value]) -> bool:
    context = value.get("context")
    return is_object(context) and str(context.get("trace_id")).startswith("0x")


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    builder = _TRANSLATOR.builder(reading)
    for item in read_objects(stream, builder, _TRANSLATOR, is_record=_IS_RECORD):
        if isinstance(item, Quarantined):
            yield item
        elif _is_span(item.value):
            yield from read_span(item.value, item.location, builder, _TRANSLATOR)
        elif is_log(item.value):
            yield from read_log(item, builder)


FORMAT: Final = SourceFormat(
    name="console",
    detects=head_detector(lambda value: _is_span(value) or is_log(value)),
    reads=_reads,
    not_in_format=("instrumentation scope", "nanoseconds", "dropped counts"),
)
