"""Spans, log records and events with only what a test is about."""

import json

from art_otel.conventions import parse_call
from art_otel.spans import Event, LogRecord, Scope, Span

TRACE_ID = "1" * 32
SPAN_ID = "2" * 16


def span(attributes=None, *, name="chat", kind="client", scope="test", version="", events=(), **fields):
    return Span(
        trace_id=TRACE_ID,
        span_id=fields.pop("span_id", SPAN_ID),
        name=name,
        kind=kind,
        start_ns=fields.pop("start_ns", 10),
        end_ns=fields.pop("end_ns", 20),
        attributes=attributes or {},
        events=tuple(events),
        scope=Scope(name=scope, version=version),
        **fields,
    )


def event(name, attributes=None, time_ns=15):
    return Event(name=name, time_ns=time_ns, attributes=attributes or {})


def log(name, body=None, attributes=None, time_ns=15):
    return LogRecord(
        trace_id=TRACE_ID, span_id=SPAN_ID, event_name=name, time_ns=time_ns, body=body, attributes=attributes or {}
    )


def call(attributes, logs=(), **fields):
    return parse_call(span(attributes, **fields), logs)


def openinference(request, response=None, **fields):
    """A call as OpenInference records it: the bodies of the request and of its response."""
    attributes = {"openinference.span.kind": "LLM", "input.value": json.dumps(request)}
    if response is not None:
        attributes["output.value"] = json.dumps(response)
    return call(attributes, kind="internal", **fields)


def genai(input_messages=None, output_messages=None, attributes=None, **fields):
    """A call as GenAI's attributes record it: message lists as JSON text."""
    found = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **(attributes or {})}
    if input_messages is not None:
        found["gen_ai.input.messages"] = json.dumps(input_messages)
    if output_messages is not None:
        found["gen_ai.output.messages"] = json.dumps(output_messages)
    return call(found, **fields)
