"""Phoenix's REST answers, as the export in tests/exports/ has them."""

import json

from tests.sources.writers.requests import iso, plain, spans_of


def write(requests: list[dict]) -> bytes:
    """A page of `GET /v1/projects/{project}/spans`."""
    return json.dumps({"data": [_span(written) for written in spans_of(requests)], "next_cursor": None}).encode()


def _span(written):
    attributes = written.attributes
    return {
        "id": "U3BhbjoxMjYw",
        "name": written.span["name"],
        "context": {"trace_id": written.span["traceId"], "span_id": written.span["spanId"]},
        "span_kind": attributes.pop("openinference.span.kind", "UNKNOWN"),
        "parent_id": written.span.get("parentSpanId") or None,
        "start_time": iso(written.start),
        "end_time": iso(written.end),
        "status_code": written.status,
        "status_message": written.message,
        "attributes": attributes,
        "events": [
            {
                "name": event["name"],
                "timestamp": iso(int(event["timeUnixNano"])),
                "attributes": plain(event.get("attributes")),
            }
            for event in written.span.get("events", ())
        ],
    }
