"""Recordings read into Span and LogRecord: just enough OTLP JSON for this room's tests."""

import json
from functools import cache
from pathlib import Path

from art_otel.calls import InferenceCall
from art_otel.conventions import parse_call, role_of
from art_otel.spans import Event, LogRecord, Resource, Scope, Span

RECORDINGS = Path(__file__).parent.parent / "recordings"
MODES = ("openinference", "traceloop", "genai_span", "genai_event", "otelv2_span", "otelv2_legacy")
KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")


def value(recorded):
    kind, inner = next(iter(recorded.items()), ("", None))
    if kind == "arrayValue":
        return [value(item) for item in inner.get("values", [])]
    if kind == "kvlistValue":
        return attributes(inner.get("values"))
    return int(inner) if kind == "intValue" else inner


def attributes(recorded):
    return {entry["key"]: value(entry["value"]) for entry in recorded or []}


def entries(path, resources, scopes, records):
    for line in path.read_text().splitlines():
        for resource in json.loads(line)[resources]:
            for scope in resource[scopes]:
                for record in scope[records]:
                    yield resource, scope, record


def span(resource, scope, record):
    return Span(
        trace_id=record["traceId"],
        span_id=record["spanId"],
        parent_span_id=record.get("parentSpanId") or None,
        name=record["name"],
        kind=KINDS[record.get("kind", 0)],
        start_ns=int(record["startTimeUnixNano"]),
        end_ns=int(record["endTimeUnixNano"]),
        attributes=attributes(record.get("attributes")),
        events=tuple(
            Event(name=e["name"], time_ns=int(e["timeUnixNano"]), attributes=attributes(e.get("attributes")))
            for e in record.get("events", [])
        ),
        status=STATUSES[record.get("status", {}).get("code", 0)],
        status_message=record.get("status", {}).get("message", ""),
        scope=Scope(name=scope["scope"]["name"], version=scope["scope"].get("version", "")),
        resource=Resource(attributes=attributes(resource["resource"].get("attributes"))),
        dropped_attributes_count=record.get("droppedAttributesCount", 0),
    )


def log_record(record):
    return LogRecord(
        trace_id=record["traceId"],
        span_id=record["spanId"],
        event_name=record.get("eventName", ""),
        time_ns=int(record.get("timeUnixNano") or record["observedTimeUnixNano"]),
        body=value(record["body"]) if "body" in record else None,
        attributes=attributes(record.get("attributes")),
    )


@cache
def spans(mode: str, scenario: str) -> tuple[Span, ...]:
    """The spans in the order they started."""
    path = RECORDINGS / mode / f"{scenario}.jsonl"
    found = [span(*entry) for entry in entries(path, "resourceSpans", "scopeSpans", "spans")]
    return tuple(sorted(found, key=lambda one: one.start_ns))


@cache
def logs(mode: str, scenario: str) -> tuple[LogRecord, ...]:
    path = RECORDINGS / mode / f"{scenario}.logs.jsonl"
    if not path.exists():
        return ()
    return tuple(log_record(record) for *_, record in entries(path, "resourceLogs", "scopeLogs", "logRecords"))


@cache
def calls(mode: str, scenario: str) -> tuple[InferenceCall, ...]:
    """The calls of a recording in the order they started."""
    return tuple(
        parse_call(one, [log for log in logs(mode, scenario) if log.key == one.key])
        for one in spans(mode, scenario)
        if role_of(one) == "inference"
    )
