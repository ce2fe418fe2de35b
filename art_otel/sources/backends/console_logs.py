"""What the SDK's ConsoleLogRecordExporter prints: a JSON object a log record, which `console` finds among spans.

Invariant: as `console`.

Source of the format: `ReadableLogRecord.to_json` of opentelemetry-sdk (Python).
"""

from collections.abc import Iterator, Mapping

import msgspec

from art_otel.sources.backends.plain_spans import PlainSpanBuilder, plain
from art_otel.sources.backends.store_spans import JsonObject
from art_otel.sources.backends.times import as_ns
from art_otel.sources.format import Record
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.sources.refusals import Refused, converted
from art_otel.spans import Resource, Scope, Value


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


def read_log(item: JsonObject, builder: PlainSpanBuilder) -> Iterator[Record]:
    """Read the log record in one object, or the Quarantined that says why there is none."""
    try:
        message = _to_otlp(converted(item.value, _Log, strict=True))
    except Refused as problem:
        ids = builder.known_ids(item.value.get("trace_id"), item.value.get("span_id"))
        yield problem.quarantine(item.location, "log", ids)
        return
    yield from builder.log_record(message, Batch(location=item.location, resource=Resource(), scope=Scope()))


def _to_otlp(log: _Log) -> otlp.LogRecord:
    return otlp.LogRecord(
        trace_id=log.trace_id,
        span_id=log.span_id,
        time_unix_nano=as_ns(log.timestamp, "timestamp"),
        observed_time_unix_nano=as_ns(log.observed_timestamp, "observed_timestamp"),
        body=log.body,  # pyright: ignore[reportArgumentType] # PlainSpanBuilder takes plain values
        attributes=plain(log.attributes),
        event_name=log.event_name,
        dropped_attributes_count=log.dropped_attributes,
    )
