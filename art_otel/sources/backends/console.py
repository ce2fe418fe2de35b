"""What the SDK's console exporters print: a JSON object a span, pretty-printed or a line each, amid other output.

Log records (`console_logs`) may stand among the spans.

Invariant: as `json_spans`; what a program printed besides is passed over, whatever it is.

Source of the format: `ReadableSpan.to_json` of opentelemetry-sdk (Python).
"""

import io
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from art_otel.sources.backends.console_logs import is_log, read_log
from art_otel.sources.backends.json_spans import Translator, read_objects, read_span
from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.backends.times import as_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.heads import objects_in_head
from art_otel.sources.json_text.kinds import is_object
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.spans import Quarantined, Resource, Scope, Value


class _Context(msgspec.Struct):
    trace_id: str | None = None
    span_id: str | None = None


class _Status(msgspec.Struct):
    status_code: str | None = None
    description: str | None = None


class _Event(msgspec.Struct):
    name: str | None = None
    timestamp: str | None = None
    attributes: dict[str, Value] | None = None


class _Link(msgspec.Struct):
    context: _Context
    attributes: dict[str, Value] | None = None


class _Resource(msgspec.Struct):
    attributes: dict[str, Value] | None = None


class _Span(msgspec.Struct):
    context: _Context
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


_TRANSLATOR: Final = Translator(message=_Span, trace_id="trace_id", span_id="span_id")
_OWN: Final = re.compile(r'"trace_id"\s*+:\s*+"0x')


def _detects(head: bytes) -> bool:
    return any(_is_span(value) or is_log(value) for value in objects_in_head(head))


def _is_span(value: Mapping[str, Value]) -> bool:
    context = value.get("context")
    return is_object(context) and str(context.get("trace_id")).startswith("0x")


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = PlainRecords(reading)
    for found in read_objects(stream, records, _TRANSLATOR, is_ours=_OWN.search):
        if isinstance(found, Quarantined):
            yield found
        elif _is_span(found.value):
            yield from read_span(found, records, _TRANSLATOR, _to_otlp)
        elif is_log(found.value):
            yield from read_log(found, records)


FORMAT: Final = Format(
    name="console",
    detects=_detects,
    reads=_reads,
    lacks=("instrumentation scope", "nanoseconds", "dropped counts"),
)


def _to_otlp(found: _Span, place: str) -> tuple[otlp.Span, Batch]:
    status = found.status or _Status()
    span = otlp.Span(
        trace_id=_TRANSLATOR.trace(found.context.trace_id),
        span_id=_TRANSLATOR.span(found.context.span_id),
        parent_span_id=_TRANSLATOR.span(found.parent_id),
        name=found.name,
        kind=found.kind and f"SPAN_KIND_{found.kind.removeprefix('SpanKind.')}",
        start_time_unix_nano=as_ns(found.start_time, "start_time"),
        end_time_unix_nano=as_ns(found.end_time, "end_time"),
        attributes=plain(found.attributes),
        events=[_event(event) for event in found.events or ()],
        links=[_link(link) for link in found.links or ()],
        status=otlp.Status(code=f"STATUS_CODE_{status.status_code or 'UNSET'}", message=status.description),
    )
    resource = Resource(attributes=(found.resource and found.resource.attributes) or {})
    return span, Batch(place=place, resource=resource, scope=Scope())


def _event(event: _Event) -> otlp.Event:
    return otlp.Event(
        name=event.name,
        time_unix_nano=as_ns(event.timestamp, "events.timestamp"),
        attributes=plain(event.attributes),
    )


def _link(link: _Link) -> otlp.Link:
    return otlp.Link(
        trace_id=_TRANSLATOR.trace(link.context.trace_id),
        span_id=_TRANSLATOR.span(link.context.span_id),
        attributes=plain(link.attributes),
    )
