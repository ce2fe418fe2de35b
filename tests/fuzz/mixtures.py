"""Mixtures: dumps of spans whose attributes, events and log records were drawn from all recordings at once.

Conventions meet in one span, rollouts share traces, parents form cycles, and rewards judge anything.
"""

import json
import random
from functools import cache
from typing import Any

from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions.bodies.tokens import encode_ids, encode_logprobs
from tests.dumps import attribute, make_span, request_of
from tests.fuzz import hostile
from tests.fuzz.corpus import recordings

Chance = random.Random
SPAN_NAMES = (
    *("rollout x", "rollout y", "step 1", "step 2", "reward z", "openai.chat", "chat m", "Response", "invoke_agent a"),
    *("execute_tool t", "agentops.task.run", "work", ""),
)
KEYS = (
    *(
        "role",
        "content",
        "parts",
        "type",
        "text",
        "id",
        "name",
        "arguments",
        "tool_calls",
        "function",
        "message",
        "index",
    ),
    *("finish_reason", "token_ids", "logprobs", "choices", "messages", "input", "output", "usage", "model", "tools"),
    *("instructions", "prompt", "reasoning", "summary", "response", "image_url", "url"),
)
TOKENS = (
    *("art.tokens.prompt", "art.tokens.completion.0", "art.tokens.completion.1", "art.response.choices"),
    *("art.logprobs.completion.0", "art.logprobs.completion.1"),
)
WORDS = (
    "user",
    "assistant",
    "tool",
    "text",
    "tool_call",
    "tool_call_response",
    "reasoning",
    "function_call",
    "message",
)
TEXTS = (
    "r",
    "r2",
    "1",
    "0.5",
    "NaN",
    "true",
    "chat",
    "LLM",
    "AGENT",
    "x" * 300,
    "i4:2:AQAAAAIAAAA=",
    "f4:2:AACAvwAAgL8=",
)


@cache
def _drawn() -> tuple[list[Any], list[Any], list[Any]]:
    """Attributes, events and log records of all recordings, each once."""
    found: tuple[dict, dict, dict] = ({}, {}, {})
    for path in recordings():
        for line in path.read_text(encoding="utf-8").splitlines():
            _collect(json.loads(line), found)
    attributes, events, logs = ([json.loads(text) for text in kept] for kept in found)
    return attributes, events, logs


def _collect(value: Any, found: tuple[dict, dict, dict]) -> None:
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _collect(child, found)
    if isinstance(value, dict):
        for kept, items in zip(
            found, (value.get("attributes"), value.get("events"), value.get("logRecords")), strict=True
        ):
            kept.update({json.dumps(item): None for item in items or ()})


def mix(chance: Chance) -> bytes:
    """A dump of one to twelve spans and some log records, a request a line."""
    spans = [_span(chance) for _ in range(chance.randrange(1, 13))]
    size = chance.choice((1, 3, 12))
    lines = [request_of(*spans[at : at + size]) for at in range(0, len(spans), size)]
    _, _, logs = _drawn()
    for _ in range(chance.choice((0, 0, 1, 3))):
        log = {
            **chance.choice(logs),
            "traceId": f"{chance.randrange(1, 3):032x}",
            "spanId": f"{chance.randrange(1, 9):016x}",
        }
        lines.append({"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _span(chance: Chance) -> dict:
    start = chance.randrange(1, 50)
    _, events, _ = _drawn()
    links = [{"traceId": f"{chance.randrange(1, 3):032x}", "spanId": f"{chance.randrange(1, 9):016x}"}]
    return make_span(
        chance.randrange(1, 9),
        chance.choice((None, *range(1, 9))),
        trace=chance.randrange(1, 3),
        name=chance.choice(SPAN_NAMES),
        kind=chance.choice((1, 3)),
        startTimeUnixNano=str(start),
        endTimeUnixNano=chance.choice(("0", str(start), str(start + chance.randrange(50)))),
        attributes=_attributes(chance),
        events=chance.choices(events, k=chance.choice((0, 0, 1, 2))) + _evaluations(chance),
        links=links if chance.random() < 0.3 else [],
        status=chance.choice(({}, {}, {"code": 2}, {"code": 2, "message": "m"})),
    )


def _attributes(chance: Chance) -> list[dict]:
    """Those of a whole recorded call, or any ones; then token ids, and what conventions look for."""
    given, _, _ = _drawn()
    attributes = (
        list(chance.choice(_calls())) if chance.random() < 0.5 else chance.choices(given, k=chance.randrange(12))
    )
    if chance.random() < 0.4:
        attributes += [{"key": name, "value": attribute(_tokens(name, chance))} for name in chance.sample(TOKENS, 3)]
    attributes += [_known(chance) for _ in range(chance.randrange(8))]
    return attributes if chance.random() < 0.8 else chance.sample(attributes, len(attributes) // 2)


def _tokens(name: str, chance: Chance) -> object:
    """The value of one of our own attributes of tokens, as the capture writes it or nearly so."""
    count = chance.randrange(4)
    if name.startswith("art.logprobs."):
        return encode_logprobs(Logprobs.of([-chance.random() for _ in range(count)]))
    if name.startswith("art.tokens."):
        return encode_ids(TokenIds.of([chance.choice((0, 1, 2, 2**31 - 1)) for _ in range(count)]))
    message = {"role": "assistant", "content": chance.choice(TEXTS)}
    choices = [{"index": at, "message": message, "finish_reason": "stop"} for at in range(count)]
    return json.dumps(choices)


@cache
def _calls() -> list[list[dict]]:
    """The attributes of every recorded call."""
    found: list[list[dict]] = []
    for path in recordings():
        for line in path.read_text(encoding="utf-8").splitlines():
            for batch in json.loads(line).get("resourceSpans", ()):
                spans = [span for scoped in batch["scopeSpans"] for span in scoped["spans"]]
                found += [span["attributes"] for span in spans if len(span.get("attributes", ())) > 8]
    return found


def _known(chance: Chance) -> dict:
    """An attribute that conventions look for, with any value."""
    value = chance.choice(
        (chance.choice(TEXTS), chance.randrange(-2, 9), chance.random(), True, list(TEXTS[:2]), _json(chance))
    )
    return {"key": hostile.name(chance), "value": attribute(value)}


def _evaluations(chance: Chance) -> list[dict]:
    if chance.random() < 0.8:
        return []
    names = ("name", "score.value", "score.label", "explanation")
    known = [{"key": f"gen_ai.evaluation.{name}", "value": _known(chance)["value"]} for name in names]
    return [{"timeUnixNano": str(chance.randrange(9)), "name": "gen_ai.evaluation.result", "attributes": known}]


def _json(chance: Chance) -> str:
    """JSON text of messages, choices or bodies with odd members."""

    def value(depth: int) -> str:
        kind = chance.randrange(6 if depth else 3)
        if kind == 0:
            return (
                hostile.value(chance) if chance.random() < 0.1 else chance.choice(hostile.OTHERS + hostile.NUMBERS[:3])
            )
        if kind <= 2:
            return json.dumps(chance.choice(WORDS))
        if kind == 3:
            return "[" + ",".join(value(depth - 1) for _ in range(chance.randrange(4))) + "]"
        return "{" + ",".join(f'"{chance.choice(KEYS)}":{value(depth - 1)}' for _ in range(chance.randrange(6))) + "}"

    return chance.choice(("[" + value(4) + "]", value(5), "[" + value(3) + "," + value(3) + "]"))
