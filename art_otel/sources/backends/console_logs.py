"""What the SDK's ConsoleLogRecordExporter prints: a JSON object a log record, which `console` finds among spans.

Invariant: as `console`.

Source of the format: `ReadableLogRecord.to_json` of opentelemetry-sdk (Python).
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from art_otel.sources.backends.json_spans import Found, Spelling, decode_object
from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.backends.times import as_ns
from art_otel.sources.format import Record
from art_otel.sources.json_text.frame import Frame
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.sources.refusals import Refused
from art_otel.spans import Resource, Scope, Value

_TOLD_DEPTH: Final = 8
"""Beyond it a body is not passed over to see what follows, so that only a broken record before it hides its record."""


def _any_value(depth: int) -> bytes:
    """A pattern of any JSON value with at most so many lists and objects inside each other."""
    text, inner = rb'"(?:[^"\\]++|\\.)*+"', rb""
    for _ in range(depth):
        inner = rb'[\[{](?:[^\[\]{}"]++|%b%b)*+[\]}]' % (text, inner and b"|" + inner)
    return rb"(?:%b|[\w.+-]++|%b)" % (text, inner)


class _Log(msgspec.Struct):
    body: Value = None
    attributes: dict[str, Value] | None = None
    dropped_attributes: int | None = None
    timestamp: str | None = None
    observed_timestamp: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None


LOGS: Final = Spelling(
    frame=Frame(
        begins=re.compile(
            rb'\{\s*+"body"\s*+:\s*+%b\s*+,\s*+"severity_number"\s*+:' % _any_value(_TOLD_DEPTH), re.DOTALL
        ),
        names=frozenset({b"body", b"severity_number", b"trace_id"}),
    ),
    decoder=msgspec.json.Decoder(_Log),
    trace_id=re.compile(rb'"trace_id"\s*+:\s*+"(0x[0-9a-fA-F]{32})"'),
    span_id=re.compile(rb'"span_id"\s*+:\s*+"(0x[0-9a-fA-F]{16})"'),
)


def read_log(found: Found, records: PlainRecords) -> Iterator[Record]:
    """The log record in one object, or the Quarantined that says why there is none."""
    try:
        message = _message(decode_object(LOGS.decoder, found.data))
    except Refused as problem:
        yield problem.damage(found.place, "log", LOGS.ids(found.data, records))
        return
    yield from records.log_record(message, Batch(place=found.place, resource=Resource(), scope=Scope()))


def _message(log: _Log) -> otlp.LogRecord:
    return otlp.LogRecord(
        trace_id=LOGS.trace(log.trace_id),
        span_id=LOGS.span(log.span_id),
        time_unix_nano=as_ns(log.timestamp, "timestamp"),
        observed_time_unix_nano=as_ns(log.observed_timestamp, "observed_timestamp"),
        body=log.body,  # pyright: ignore[reportArgumentType] # PlainRecords takes plain values
        attributes=plain(log.attributes),
        event_name=log.event_name,
        dropped_attributes_count=log.dropped_attributes,
    )
