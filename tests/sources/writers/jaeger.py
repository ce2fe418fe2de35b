"""Jaeger's UI JSON as a collector and Jaeger make it of OTLP."""

import json

from tests.sources.writers.requests import by_trace, plain, text_of


def write(requests: list[dict]) -> bytes:
    """`GET /api/traces?…`, or what the UI downloads."""
    traces = [_trace(trace_id, spans) for trace_id, spans in by_trace(requests).items()]
    return json.dumps({"data": traces, "total": 0, "limit": 0, "offset": 0, "errors": None}).encode()


def _trace(trace_id, spans):
    resources = []
    for written in spans:
        if written.resource not in resources:
            resources.append(written.resource)
    processes = {f"p{number}": _process(resource) for number, resource in enumerate(resources, 1)}
    rows = [_span(written, f"p{resources.index(written.resource) + 1}") for written in spans]
    return {"traceID": trace_id.lstrip("0"), "spans": rows, "processes": processes, "warnings": None}


def _process(resource):
    others = {name: value for name, value in resource.items() if name != "service.name"}
    return {"serviceName": resource.get("service.name", "OTLPResourceNoServiceName"), "tags": _tags(others)}


def _span(written, process_id):
    span = written.span
    references = [_reference("FOLLOWS_FROM", link) for link in span.get("links", ())]
    if span.get("parentSpanId"):
        parent = {"traceId": span["traceId"], "spanId": span["parentSpanId"]}
        references.insert(0, _reference("CHILD_OF", parent))
    tags = {**written.attributes, "otel.scope.name": written.scope.get("name", ""), **written.dropped_tags()}
    if written.kind != "UNSPECIFIED":
        tags["span.kind"] = written.kind.lower()
    if written.status != "UNSET":
        tags["otel.status_code"] = written.status
    if written.status == "ERROR":
        tags["error"] = True
    if written.message:
        tags["otel.status_description"] = written.message
    return {
        "traceID": span["traceId"].lstrip("0"),
        "spanID": span["spanId"].lstrip("0"),
        "flags": 1,
        "operationName": span["name"],
        "references": references,
        "startTime": written.start // 1000,
        "duration": written.end // 1000 - written.start // 1000,
        "tags": [*_tags(tags), {"key": "internal.span.format", "type": "string", "value": "otlp"}],
        "logs": [_log(event) for event in span.get("events", ())],
        "processID": process_id,
        "warnings": None,
    }


def _reference(kind, target):
    return {"refType": kind, "traceID": target["traceId"].lstrip("0"), "spanID": target["spanId"].lstrip("0")}


def _log(event):
    fields = {"event": event["name"], **plain(event.get("attributes"))}
    return {"timestamp": int(event["timeUnixNano"]) // 1000, "fields": _tags(fields)}


def _tags(values):
    return [_tag(name, value) for name, value in values.items()]


def _tag(name, value):
    if isinstance(value, bool):
        return {"key": name, "type": "bool", "value": value}
    if isinstance(value, int):
        return {"key": name, "type": "int64", "value": value if abs(value) < 2**53 else str(value)}
    if isinstance(value, float):
        return {"key": name, "type": "float64", "value": int(value) if value.is_integer() else value}
    return {"key": name, "type": "string", "value": text_of(value)}
