"""What the SDK's console exporters print: a JSON object a span, pretty-printed or a line each, amid other output.

Log records (`console_logs`) may stand among the spans.

Invariant: as `json_spans`; what a program printed besides is passed over, whatever it is.

Source of the format: `ReadableSpan.to_json` of opentelemetry-sdk (Python).
"""

import io
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from art_otel.sources.backends.console_logs import LOGS, read_log
from art_otel.sources.backends.json_spans import Found, Spelling, read_span, too_long
from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.backends.times import as_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.frame import Frame
from art_otel.sources.json_text.objects import Piece, read_objects
from art_otel.sources.json_text.scan import object_keys
from art_otel.sources.large_values import without_large_values
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.spans import Resource, Scope, Value

_BEGINS: Final = rb'\{\s*+"name"\s*+:\s*+"(?:[^"\\\n]++|\\.)*+"\s*+,\s*+"context"\s*+:\s*+\{\s*+"trace_id"\s*+:\s*+"0x'

_OWN: Final = re.compile(rb'"trace_id"\s*+:\s*+"0x')


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


_SPELLING: Final = Spelling(
    frame=Frame(begins=re.compile(_BEGINS), names=frozenset({b"name", b"context", b"start_time"})),
    decoder=msgspec.json.Decoder(_Span),
    trace_id=re.compile(rb'"trace_id"\s*+:\s*+"(0x[0-9a-fA-F]{32})"'),
    span_id=re.compile(rb'"span_id"\s*+:\s*+"(0x[0-9a-fA-F]{16})"'),
)


_RECORDS: Final = Frame(
    begins=re.compile(b"%b|%b" % (_BEGINS, LOGS.frame.begins.pattern), re.DOTALL), names=_SPELLING.frame.names
)


def _detects(head: bytes) -> bool:
    return _RECORDS.begins.search(head) is not None


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = PlainRecords(reading)
    for piece in read_objects(stream, _RECORDS, reading.limits.max_message_bytes):
        place = f"{reading.path}:{piece.line}"
        if piece.kind == "too long":
            yield too_long(place)
        elif piece.kind != "between":
            found = _read(piece, Found(data=piece.data, place=place), records)
            yield from without_large_values(found, len(piece.data), place, reading.limits)


def _read(piece: Piece, found: Found, records: PlainRecords) -> Iterable[Record]:
    """The record of one object; none of one that a program printed."""
    if _OWN.search(found.data) is None:
        return ()
    if _SPELLING.frame.begins.match(found.data):
        return read_span(found, records, _SPELLING, _build)
    names = object_keys(found.data, 0, len(found.data))
    if names >= LOGS.frame.names or LOGS.frame.begins.match(found.data):
        return read_log(found, records)
    is_span = piece.kind == "broken" or names >= _SPELLING.frame.names
    return read_span(found, records, _SPELLING, _build) if is_span else ()


FORMAT: Final = Format(
    name="console",
    detects=_detects,
    reads=_reads,
    lacks=("instrumentation scope", "nanoseconds", "dropped counts"),
)


def _build(found: _Span, place: str) -> tuple[otlp.Span, Batch]:
    status = found.status or _Status()
    span = otlp.Span(
        trace_id=_SPELLING.trace(found.context.trace_id),
        span_id=_SPELLING.span(found.context.span_id),
        parent_span_id=_SPELLING.span(found.parent_id),
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
        trace_id=_SPELLING.trace(link.context.trace_id),
        span_id=_SPELLING.span(link.context.span_id),
        attributes=plain(link.attributes),
    )
