"""What the SDK's own console exporters print, amid what a program prints."""

import io
import warnings

from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from tests.sources.writers.requests import plain, spans_of, value_of

PRINTED = (
    'Traceback: {"a": 1\n',
    "step {1} of [3\n",
    'it said "hello {\n',
    "}\n]\n",
    '{"json": {"of": "others"}}\n',
    "",
)


def write(requests: list[dict]) -> bytes:
    """Pretty-printed spans, as the exporter prints them by default."""
    out = io.StringIO()
    exporter = ConsoleSpanExporter(out=out)
    for number, written in enumerate(spans_of(requests)):
        out.write(PRINTED[number % len(PRINTED)])
        exporter.export([_readable(written)])
    return out.getvalue().encode()


def write_lines(requests: list[dict]) -> bytes:
    """A span a line, with the formatter that people use for log files."""
    out = io.StringIO()
    exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
    exporter.export([_readable(written) for written in spans_of(requests)])
    return out.getvalue().encode()


def write_with_logs(requests: list[dict], logs: list[dict]) -> bytes:
    """Log records behind the spans, each in another way."""
    out = io.StringIO(write(requests).decode())
    out.seek(0, io.SEEK_END)
    exporters = (
        ConsoleLogRecordExporter(out=out),
        ConsoleLogRecordExporter(out=out, formatter=lambda record: record.to_json(indent=None) + "\n"),
    )
    records = [
        record
        for request in logs
        for batch in request["resourceLogs"]
        for scoped in batch["scopeLogs"]
        for record in scoped["logRecords"]
    ]
    for number, record in enumerate(records):
        out.write(PRINTED[number % len(PRINTED)])
        exporters[number % 2].export([_readable_log(record)])
    return out.getvalue().encode()


def _readable_log(record):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # ids without a context
        found = LogRecord(
            timestamp=int(record["timeUnixNano"]) if "timeUnixNano" in record else None,
            observed_timestamp=int(record["observedTimeUnixNano"]),
            trace_id=int(record["traceId"], 16),
            span_id=int(record["spanId"], 16),
            body=value_of(record.get("body")),
            attributes=plain(record.get("attributes")),
        )
    found.event_name = record.get("eventName")
    return ReadableLogRecord(found, Resource({}))


def _readable(written):
    span = written.span
    parent = span.get("parentSpanId")
    return ReadableSpan(
        name=span["name"],
        context=_context(span["traceId"], span["spanId"]),
        parent=_context(span["traceId"], parent) if parent else None,
        resource=Resource(written.resource),
        attributes=written.attributes,
        events=[_event(event) for event in span.get("events", ())],
        links=[
            Link(_context(one["traceId"], one["spanId"]), plain(one.get("attributes"))) for one in span.get("links", ())
        ],
        kind=SpanKind[written.kind] if written.kind != "UNSPECIFIED" else SpanKind.INTERNAL,
        status=Status(StatusCode[written.status], written.message or None),
        start_time=written.start,
        end_time=written.end,
    )


def _context(trace_id, span_id):
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False)


def _event(event):
    return Event(event["name"], plain(event.get("attributes")), int(event["timeUnixNano"]))
