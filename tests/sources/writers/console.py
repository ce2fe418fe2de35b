"""What the SDK's own ConsoleSpanExporter prints, amid what a program prints."""

import io

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from tests.sources.writers.requests import plain, spans_of

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
