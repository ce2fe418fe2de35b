"""Zipkin v2 JSON, as the collector's exporter makes it of OTLP and as the Python SDK's exporter writes it."""

import json

from tests.sources.writers.requests import by_trace, plain, text_of


def write_from_collector(requests: list[dict]) -> bytes:
    """A list a line: events as `name|{…}|0`, links as tags."""
    traces = by_trace(requests).values()
    return b"".join(
        json.dumps([_span(written, collector=True) for written in spans]).encode() + b"\n" for spans in traces
    )


def write_from_sdk(requests: list[dict]) -> bytes:
    """A list of lists, as Zipkin's API gives traces: events as `{"name": {…}}`."""
    traces = by_trace(requests).values()
    return json.dumps([[_span(written, collector=False) for written in spans] for spans in traces], indent=1).encode()


def _span(written, *, collector):
    span = written.span
    resource = {name: value for name, value in written.resource.items() if name != "service.name"}
    tags = {**resource, **written.attributes, **written.dropped_tags()}
    tags["otel.library.name"] = written.scope.get("name", "")
    if written.status != "UNSET":
        tags["otel.status_code"] = "Error" if collector and written.status == "ERROR" else written.status
    if written.status == "ERROR":
        tags["error"] = "true" if collector else written.message
    if collector:
        tags.update(_links(span))
        tags.update({"otel.status_description": written.message} if written.message else {})
        tags.update({"span.kind": "internal"} if written.kind == "INTERNAL" else {})
    found = {
        "traceId": span["traceId"],
        "parentId": span.get("parentSpanId") or None,
        "id": span["spanId"],
        "kind": written.kind if written.kind not in ("INTERNAL", "UNSPECIFIED") else None,
        "name": span["name"],
        "timestamp": written.start // 1000 if collector else written.start / 1000,
        "duration": written.end // 1000 - written.start // 1000,
        "localEndpoint": {"serviceName": written.resource.get("service.name", "unknown")},
        "annotations": [_annotation(event, collector) for event in span.get("events", ())],
        "tags": {name: text_of(value) for name, value in tags.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


def _annotation(event, collector):
    attributes, name = plain(event.get("attributes")), event["name"]
    value = f"{name}|{json.dumps(attributes)}|0" if collector else json.dumps({name: attributes}, sort_keys=True)
    return {"timestamp": int(event["timeUnixNano"]) // 1000, "value": value if attributes or not collector else name}


def _links(span):
    return {
        f"otlp.link.{number}": f"{link['traceId']}|{link['spanId']}||{json.dumps(plain(link.get('attributes')))}|0"
        for number, link in enumerate(span.get("links", ()))
    }
