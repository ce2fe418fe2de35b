"""Dumps for benchmarks: rollouts of growing conversations, as a collector's file exporter writes them."""

import base64
import json
import random
from array import array
from pathlib import Path

MESSAGE_BYTES = 1_000
PROMPT_TOKENS = 250
COMPLETION_TOKENS = 200


def write_conversations(path: Path, rollouts: int, calls: int) -> None:
    """Write `rollouts` traces of `calls` chat calls each; every prompt repeats the whole history, with packed ids."""
    chance = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for rollout in range(rollouts):
            file.write(json.dumps(_request(rollout, calls, chance)) + "\n")


def _request(rollout: int, calls: int, chance: random.Random) -> dict:
    spans = []
    messages = [_message("system", "You are helpful. " * 10)]
    ids = array("i", _ids(chance, PROMPT_TOKENS))
    for call in range(calls):
        messages.append(_message("user", _text(chance)))
        ids.extend(_ids(chance, PROMPT_TOKENS))
        answer = _text(chance)
        sampled = array("i", _ids(chance, COMPLETION_TOKENS))
        logprobs = array("f", [-chance.random() for _ in range(COMPLETION_TOKENS)])
        spans.append(_chat(rollout, call, messages, answer, ids, sampled, logprobs))
        messages.append(_message("assistant", answer))
        ids.extend(sampled)
    spans.append(_root(rollout, calls, chance.random()))
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [_pair("service.name", "agent")]},
                "scopeSpans": [{"scope": {"name": "benchmark"}, "spans": spans}],
            }
        ]
    }


def _chat(rollout: int, call: int, messages: list, answer: str, ids: array, sampled: array, logprobs: array) -> dict:
    out = [{**_message("assistant", answer), "finish_reason": "stop"}]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "Qwen/Qwen3-8B",
        "gen_ai.response.model": "Qwen/Qwen3-8B",
        "gen_ai.response.id": f"chatcmpl-{rollout}-{call}",
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps(out),
        "art.tokens.prompt": _packed("i4", ids),
        "art.tokens.completion.0": _packed("i4", sampled),
        "art.logprobs.completion.0": _packed("f4", logprobs),
    }
    numbers = [
        {"key": "gen_ai.request.temperature", "value": {"doubleValue": 0.7}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": str(len(ids))}},
        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": str(len(sampled))}},
    ]
    return {
        "traceId": f"{rollout + 1:032x}",
        "spanId": f"{call + 2:016x}",
        "parentSpanId": f"{1:016x}",
        "name": "chat Qwen/Qwen3-8B",
        "kind": 3,
        "startTimeUnixNano": str(10**18 + call * 10**9),
        "endTimeUnixNano": str(10**18 + call * 10**9 + 5 * 10**8),
        "attributes": [_pair(key, value) for key, value in attributes.items()] + numbers,
        "status": {},
    }


def _root(rollout: int, calls: int, reward: float) -> dict:
    return {
        "traceId": f"{rollout + 1:032x}",
        "spanId": f"{1:016x}",
        "name": "rollout benchmark",
        "kind": 1,
        "startTimeUnixNano": str(10**18 - 1),
        "endTimeUnixNano": str(10**18 + calls * 10**9),
        "attributes": [
            _pair("art.rollout.id", f"r{rollout:06d}"),
            _pair("art.group.id", f"g{rollout // 8}"),
            {"key": "art.reward", "value": {"doubleValue": reward}},
        ],
        "status": {},
    }


def _pair(key: str, value: str) -> dict:
    return {"key": key, "value": {"stringValue": value}}


def _message(role: str, text: str) -> dict:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _text(chance: random.Random) -> str:
    words = [
        "the",
        "agent",
        "looks",
        "at",
        "weather",
        "tools",
        "and",
        "answers",
        "with",
        "care",
        "because",
        "users",
        "ask",
        "again",
    ]
    return " ".join(chance.choices(words, k=MESSAGE_BYTES // 6))[:MESSAGE_BYTES]


def _ids(chance: random.Random, count: int) -> list[int]:
    return [chance.randrange(150_000) for _ in range(count)]


def _packed(mark: str, numbers: array) -> str:
    return f"{mark}:{len(numbers)}:{base64.b64encode(numbers.tobytes()).decode()}"
