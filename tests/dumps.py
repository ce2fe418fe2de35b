"""OTLP JSON requests in tests: take dumps apart into single spans, and put spans together again in any way."""

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Request = dict[str, Any]


def explode(*dumps: Path) -> list[Request]:
    """Every span and log record of the dumps as a request of its own."""
    single: list[Request] = []
    for dump in dumps:
        for line in dump.read_text(encoding="utf-8").splitlines():
            single.extend(_single(json.loads(line)))
    return single


def _single(request: Request) -> Iterable[Request]:
    for top, middle, leaf in (("resourceSpans", "scopeSpans", "spans"), ("resourceLogs", "scopeLogs", "logRecords")):
        for resource in request.get(top, []):
            for scope in resource[middle]:
                for record in scope[leaf]:
                    inner = {**{key: value for key, value in scope.items() if key != leaf}, leaf: [record]}
                    yield {top: [{**{key: value for key, value in resource.items() if key != middle}, middle: [inner]}]}


def joined(requests: Iterable[Request]) -> Request:
    """One request of several."""
    whole: Request = {}
    for request in requests:
        for top, parts in copy.deepcopy(request).items():
            whole.setdefault(top, []).extend(parts)
    return whole


def write_lines(path: Path, requests: Iterable[Request]) -> Path:
    """Write a dump as a collector's file exporter does: a request a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8")
    return path


def attribute(value: object) -> dict[str, Any]:
    """An OTLP AnyValue."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [attribute(item) for item in value]}}
    return {"stringValue": value}


def make_span(number: int, parent: int | None = None, *, trace: int = 1, **fields: Any) -> dict[str, Any]:
    """An OTLP span; `attributes` is a plain dict, or whatever should stand in its place."""
    span = {
        "traceId": f"{trace:032x}",
        "spanId": f"{number:016x}",
        "name": f"span {number}",
        "kind": 1,
        "startTimeUnixNano": str(1_000_000 + number),
        "endTimeUnixNano": str(2_000_000 + number),
        "status": {},
    }
    if parent is not None:
        span["parentSpanId"] = f"{parent:016x}"
    attributes = fields.pop("attributes", {})
    if isinstance(attributes, dict):
        attributes = [{"key": key, "value": attribute(value)} for key, value in attributes.items()]
    span["attributes"] = attributes
    return {**span, **fields}


def chat_span(number: int, parent: int | None, prompt: list[str], answer: str | None, **fields: Any) -> dict[str, Any]:
    """A chat call in current GenAI attributes; the prompt's messages are user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "parts": [{"type": "text", "content": text}]} for at, text in enumerate(prompt)]
    known = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": json.dumps(messages),
        **fields.pop("attributes", {}),
    }
    if answer is not None:
        out = [{"role": "assistant", "parts": [{"type": "text", "content": answer}], "finish_reason": "stop"}]
        known["gen_ai.output.messages"] = json.dumps(out)
    return make_span(number, parent, name="chat m", kind=3, attributes=known, **fields)


def request_of(*spans: dict[str, Any], scope: str = "test", resource: dict[str, Any] | None = None) -> Request:
    """A request that holds the spans."""
    attributes = [{"key": key, "value": attribute(value)} for key, value in (resource or {}).items()]
    return {
        "resourceSpans": [
            {"resource": {"attributes": attributes}, "scopeSpans": [{"scope": {"name": scope}, "spans": list(spans)}]}
        ]
    }
