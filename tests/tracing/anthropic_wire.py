"""Anthropic wire: completions in the JSON of Anthropic's Messages, whole or as the events of a stream.

Invariant: a stream's events joined are the whole answer. There are no token ids: no server gives them here.

Source of the format: https://docs.anthropic.com/en/api/messages-streaming
"""

import json
from collections.abc import Iterator

from tests.tracing import policy


def message(body: dict, response_id: str) -> dict:
    """A whole message."""
    messages, tools = chat_messages(body), [{"function": _function(tool)} for tool in body.get("tools") or ()] or None
    one = policy.sample(messages, tools, 0)
    content: list[dict] = [{"type": "thinking", "thinking": one.reasoning, "signature": "s"}] if one.reasoning else []
    content += [{"type": "text", "text": one.text}] if one.text else []
    content += [
        {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": _arguments(call)}
        for call in one.tool_calls
    ]
    prompt = policy.prompt_ids(messages, tools)
    return {
        "id": response_id.replace("chatcmpl", "msg"),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "tool_use" if one.tool_calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": len(prompt), "output_tokens": len(one.token_ids)},
    }


def events(body: dict, response_id: str) -> Iterator[dict]:
    """The same as events."""
    whole = message(body, response_id)
    usage = whole["usage"]
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(whole["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _begun(block)}
        yield {"type": "ping"}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def chat_messages(body: dict) -> list[dict]:
    """The conversation as OpenAI's chat messages."""
    messages = [{"role": "system", "content": _text(body["system"])}] if body.get("system") else []
    for one in body["messages"]:
        blocks = [{"type": "text", "text": one["content"]}] if isinstance(one["content"], str) else one["content"]
        results = [block for block in blocks if block["type"] == "tool_result"]
        messages += [
            {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _text(block["content"])}
            for block in results
        ]
        calls = [
            {"id": block["id"], "function": {"name": block["name"], "arguments": json.dumps(block["input"])}}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        if not results:
            messages.append({"role": one["role"], "content": _text(blocks), **({"tool_calls": calls} if calls else {})})
    return messages


def _begun(block: dict) -> dict:
    empty = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items()}


def _deltas(block: dict) -> Iterator[dict]:
    if block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": ""}
        for piece in policy.pieces(json.dumps(block["input"])):
            yield {"type": "input_json_delta", "partial_json": piece}
        return
    kind = block["type"]
    for piece in policy.pieces(block[kind]):
        yield {"type": f"{kind}_delta", kind: piece}
    if kind == "thinking":
        yield {"type": "signature_delta", "signature": block["signature"]}


def _function(tool: dict) -> dict:
    return {"name": tool["name"], "parameters": tool["input_schema"]}


def _arguments(call: dict) -> dict:
    return json.loads(call["function"]["arguments"])


def _text(content: str | list) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
