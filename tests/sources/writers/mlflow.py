"""Traces of MLflow, as the export in tests/exports/ has them and as the newest version writes them."""

import json

from tests.sources.writers.requests import base64_id, by_trace, plain


def write(requests: list[dict]) -> bytes:
    """A list of traces with base64 ids."""
    return json.dumps([_trace(trace_id, spans, base64_id) for trace_id, spans in by_trace(requests).items()]).encode()


def write_hex(requests: list[dict]) -> bytes:
    """A trace a line with hex ids."""
    traces = [_trace(trace_id, spans, str) for trace_id, spans in by_trace(requests).items()]
    return b"".join(json.dumps(trace).encode() + b"\n" for trace in traces)


def _trace(trace_id, spans, spelled):
    tags = {**{name: str(value) for name, value in spans[0].resource.items()}, "mlflow.trace.spansLocation": "x"}
    info = {"trace_id": f"tr-{trace_id}", "state": "OK", "tags": tags}
    return {"info": info, "data": {"spans": [_span(written, spelled) for written in spans]}}


def _span(written, spelled):
    span = written.span
    in_hex = spelled is str
    return {
        "trace_id": f"tr-{span['traceId']}" if in_hex else spelled(span["traceId"]),
        "span_id": spelled(span["spanId"]),
        "parent_span_id": spelled(span["parentSpanId"]) if span.get("parentSpanId") else None,
        "name": span["name"],
        "start_time_unix_nano": written.start,
        "end_time_unix_nano": written.end,
        "events": [
            {
                "name": event["name"],
                "time_unix_nano": int(event["timeUnixNano"]),
                "attributes": plain(event.get("attributes")),
            }
            for event in span.get("events", ())
        ],
        "status": {"code": written.status if in_hex else f"STATUS_CODE_{written.status}", "message": written.message},
        "attributes": {name: _text(value) for name, value in written.attributes.items()},
        **({"otel_trace_id": span["traceId"], "span_dict_version": 4} if in_hex else {"links": _links(span)}),
    }


def _links(span):
    """As `Link.to_dict` writes them: MLflow's own id of the trace, and a span id in hex."""
    return [
        {
            "trace_id": f"tr-{link['traceId']}",
            "span_id": link["spanId"],
            "attributes": plain(link.get("attributes")),
        }
        for link in span.get("links", ())
    ]


def _text(value):
    """MLflow keeps a text that is JSON as it is, and writes any other value as JSON."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            json.loads(value)
        except ValueError:
            return json.dumps(value)
        return value
    return json.dumps(value)
