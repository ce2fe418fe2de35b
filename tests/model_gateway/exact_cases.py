"""Requests to a real vLLM with a reasoning and a tool parser, and the answers to them in a form that can be compared.

What differs between two answers to one request is taken out: ids, times, and where a stream is cut into pieces.
"""

import json
import re
from collections.abc import Iterator, Sequence

import httpx

from tests.model_gateway.gateways import user

TOOL = {
    "name": "look",
    "description": "Look somewhere",
    "parameters": {
        "type": "object",
        "properties": {"where": {"enum": ["up", "down"]}},
        "required": ["where"],
        "additionalProperties": False,
    },
}
CHAT_TOOL = {"type": "function", "function": TOOL}
MESSAGES_TOOL = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}
AGENTS_TOOLS = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents",
    "tools": [{"type": "function", **TOOL}],
}
"""As Codex offers what it does with other agents."""

CUSTOM_TOOL = {"type": "custom", "name": "edit", "description": "Edit"}
CUSTOM_CALL = 'Editing.<tool_call>\n{"name": "edit", "arguments": {"input": "*** Begin\\n\\u00fc"}}\n</tool_call>'

SAMPLING_PARAMS_DEFAULT = 16
"""The `max_tokens` that vLLM's render leaves out of what it gives."""

PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}


def requests(model: str) -> Sequence[tuple[str, dict]]:
    """Requests of every dialect, streamed and not, at temperature 0."""
    usage = {"stream_options": {"include_usage": True}}
    asks = [
        ("/v1/chat/completions", {"messages": user("Say hello"), "max_tokens": SAMPLING_PARAMS_DEFAULT}),
        ("/v1/chat/completions", {"messages": user("Say it"), "max_tokens": 12, **PLAIN}),
        ("/v1/chat/completions", {"messages": user("Twice"), "max_tokens": 6, "n": 2, "temperature": 1.0, **PLAIN}),
        ("/v1/chat/completions", {"messages": user("Odds"), "max_tokens": 6, "logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", {"messages": user("Ids"), "max_tokens": 6, "return_token_ids": True, **PLAIN}),
        ("/v1/chat/completions", {"messages": user("Look"), "max_tokens": 60, "tools": [CHAT_TOOL], **PLAIN}),
        (
            "/v1/chat/completions",
            {"messages": user("Look"), "max_tokens": 60, "tools": [CHAT_TOOL], "tool_choice": "required", **PLAIN},
        ),
        ("/v1/chat/completions", {"messages": user("Stop"), "max_tokens": 30, "stop": ["e"], **PLAIN}),
        (
            "/v1/chat/completions",
            {"messages": user("Shown"), "max_tokens": 30, "stop": ["e"], "include_stop_str_in_output": True, **PLAIN},
        ),
        ("/v1/chat/completions", {"messages": "wrong"}),
        ("/v1/completions", {"prompt": "Once upon", "max_tokens": 8}),
        ("/v1/completions", {"prompt": "Once upon", "max_tokens": 8, "logprobs": 2}),
        ("/v1/completions", {"prompt": "Once upon", "max_tokens": 30, "stop": ["e"]}),
        ("/v1/messages", {"messages": user("Say hello"), "max_tokens": SAMPLING_PARAMS_DEFAULT}),
        ("/v1/messages?beta=true", {"messages": user("Say it"), "system": "Be brief.", "max_tokens": 12, **PLAIN}),
        (
            "/v1/messages",
            {"messages": user("Look"), "max_tokens": 60, "tools": [MESSAGES_TOOL], "tool_choice": {"type": "auto"}},
        ),
        ("/v1/messages", {"messages": user("Stop"), "max_tokens": 30, "stop_sequences": ["e"], **PLAIN}),
        ("/v1/messages", {"messages": user("Hi")}),
        ("/v1/responses", {"input": "Say hello", "max_output_tokens": 12}),
        ("/v1/responses", {"input": "Say it", "instructions": "Be brief.", "max_output_tokens": 12, **PLAIN}),
        (
            "/v1/responses",
            {"input": "Look", "max_output_tokens": 20, "tools": [{"type": "function", **TOOL}], **PLAIN},
        ),
        (
            "/v1/responses",
            {
                "input": "Look",
                "max_output_tokens": 60,
                "tools": [AGENTS_TOOLS],
                "tool_choice": "required",
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"summary": "auto"},
                "store": False,
                **PLAIN,
            },
        ),
        (
            "/v1/responses",
            {
                "input": "Edit",
                "max_output_tokens": 90,
                "tools": [CUSTOM_TOOL, {"type": "function", **TOOL}],
                "structured_outputs": {"choice": [CUSTOM_CALL]},  # a random model calls nothing by itself
                "text": {"verbosity": "low"},
                "store": True,
                **PLAIN,
            },
        ),
        ("/v1/responses", {"input": "Hi", "previous_response_id": "resp_none"}),
    ]
    return [
        (path, {"model": model, "temperature": 0.0, "seed": 7, **ask, **more})
        for path, ask in asks
        for more in ({}, {"stream": True, **(usage if path.startswith(("/v1/chat", "/v1/comp")) else {})})
    ]


def comparable(answer: httpx.Response) -> object:
    """The status and body of an answer, without what differs from answer to answer."""
    if "text/event-stream" not in answer.headers.get("content-type", ""):
        return answer.status_code, _without(answer.json())
    events = [line[5:].strip() for line in answer.text.splitlines() if line.startswith("data:")]
    bodies = [event if event == "[DONE]" else _without(json.loads(event)) for event in events]
    return answer.status_code, [*_joined(bodies)]


_LEFT_OUT = {
    "id", "created", "created_at", "item_id", "call_id", "signature", "sequence_number", "system_fingerprint",
    "completion_tokens_details", "output_tokens_details", "input_tokens_details", "prompt_tokens_details",
}  # fmt: skip
_ID = re.compile(r"(chatcmpl|resp|msg)[-_][0-9a-f]{8,}")


def _without(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without(item) for name, item in value.items() if name not in _LEFT_OUT}
    if isinstance(value, list):
        return [_without(item) for item in value]
    return _ID.sub("", value) if isinstance(value, str) else value


def _joined(bodies: Sequence[object]) -> Iterator[object]:
    """Events of one kind behind each other, as one; of chunks the choices of one index."""
    last: dict | None = None
    chunks: dict[int, dict] = {}
    for body in bodies:
        if isinstance(body, dict) and body.get("choices"):
            for choice in body["choices"]:
                chunks[choice["index"]] = _add(chunks.get(choice["index"], {}), choice)
        elif isinstance(body, dict) and last is not None and _is_same_delta(last, body):
            last = _add(last, body)
        else:
            if last is not None:
                yield last
            last = body if isinstance(body, dict) else None
            if last is None:
                yield body
    if last is not None:
        yield last
    yield dict(sorted(chunks.items()))


def _is_same_delta(one: dict, other: dict) -> bool:
    kind = str(one.get("type"))
    return kind == other.get("type") and kind.endswith("delta") and kind != "message_delta"


_WORDS = ("type", "role", "object", "model", "item_id")


def _add(one: dict, other: dict) -> dict:
    """Two pieces as one: texts and lists behind each other, and what has an index under it."""
    joined = dict(one)
    for name, item in other.items():
        before = joined.get(name)
        if name == "tool_calls":
            calls = {call["index"]: call for call in before or ()}
            for call in item or ():
                calls[call["index"]] = _add(calls.get(call["index"], {}), call)
            joined[name] = [*calls.values()]
        elif isinstance(before, dict) and isinstance(item, dict):
            joined[name] = _add(before, item)
        elif (isinstance(before, str) and isinstance(item, str) and name not in _WORDS) or (
            isinstance(before, list) and isinstance(item, list)
        ):
            joined[name] = before + item
        elif item is not None or before is None:
            joined[name] = item
    return joined
