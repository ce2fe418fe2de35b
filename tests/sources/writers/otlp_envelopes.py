"""OTLP JSON as Tempo's and Jaeger's query APIs answer it: base64 ids, names of enums, an envelope."""

import copy
import json

from tests.sources.writers.requests import KINDS, STATUSES, base64_id


def write_tempo_v1(requests: list[dict]) -> bytes:
    """`GET /api/traces/{id}`."""
    return json.dumps({"batches": _batches(requests)}).encode()


def write_tempo_v2(requests: list[dict]) -> bytes:
    """`GET /api/v2/traces/{id}`, pretty-printed."""
    return json.dumps({"trace": {"resourceSpans": _batches(requests)}, "metrics": {}}, indent=2).encode()


def write_jaeger_v3(requests: list[dict]) -> bytes:
    """`GET /api/v3/traces`: an answer a line."""
    answers = [{"result": {"resourceSpans": [batch]}} for batch in _batches(requests)]
    return b"".join(json.dumps(answer).encode() + b"\n" for answer in answers)


def _batches(requests):
    batches = copy.deepcopy([batch for request in requests for batch in request.get("resourceSpans", ())])
    for span in [span for batch in batches for scoped in batch["scopeSpans"] for span in scoped["spans"]]:
        for owner in (span, *span.get("links", ())):
            for name in ("traceId", "spanId", "parentSpanId"):
                if owner.get(name):
                    owner[name] = base64_id(owner[name])
        span["kind"] = f"SPAN_KIND_{KINDS[span.get('kind', 0)]}"
        if "code" in span.get("status", {}):
            span["status"]["code"] = f"STATUS_CODE_{STATUSES[span['status']['code']]}"
    return batches
