"""Messages: Anthropic's API, also as Bedrock's InvokeModel has it."""

import base64
import json
from collections.abc import Iterator

from tests.dialects.recording.apis.api import Api
from tests.dialects.recording.apis.aws import EVENT_STREAM, event
from tests.dialects.recording.task import Answer, Asked, message, pieces, text_of


def asked(body: dict) -> Asked:
    """Read `system`, `messages` and `tools`; each result of a tool is a message."""
    messages = [message("system", text_of(body["system"]), [])] if body.get("system") else []
    for given in body["messages"]:
        content = given["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        messages += [
            {"role": "tool", "content": text_of(block.get("content")), "tool_call_id": block["tool_use_id"]}
            for block in blocks
            if block["type"] == "tool_result"
        ]
        said = _said(given["role"], blocks)
        messages += [said] if len(said) > 2 or said["content"] is not None else []
    tools = [{"name": tool["name"], "parameters": tool.get("input_schema")} for tool in body.get("tools") or ()]
    return Asked(messages=messages, tools=tools)


def _said(role: str, blocks: list[dict]) -> dict:
    text = "".join(block["text"] for block in blocks if block["type"] == "text") or None
    thought = "".join(block["thinking"] for block in blocks if block["type"] == "thinking") or None
    uses = [block for block in blocks if block["type"] == "tool_use"]
    return message(role, text, [[use["id"], use["name"], json.dumps(use["input"])] for use in uses], thought)


def whole(body: dict, answer: Answer) -> dict:
    """A message of blocks: thinking, text, tool uses."""
    blocks: list[dict] = [] if answer.text is None else [{"type": "text", "text": answer.text}]
    if answer.thought is not None:
        blocks.insert(0, {"type": "thinking", "thinking": answer.thought, "signature": "c2ln"})
    blocks += [
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        for call_id, name, arguments in answer.calls
    ]
    return {
        "id": f"msg_{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": blocks,
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3,
            "output_tokens": answer.output_tokens,
            "service_tier": "standard",
        },
    }


def chunks(body: dict, answer: Answer) -> Iterator[dict]:
    """Events of a stream, block by block."""
    said = whole(body, answer)
    begun = said | {"content": [], "stop_reason": None, "usage": said["usage"] | {"output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for at, block in enumerate(said["content"]):
        empty, deltas = _block_deltas(block)
        yield {"type": "content_block_start", "index": at, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    stopped = {"stop_reason": said["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stopped, "usage": said["usage"]}
    yield {"type": "message_stop"}


def _block_deltas(block: dict) -> tuple[dict, list[dict]]:
    match block["type"]:
        case "text":
            return block | {"text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        case "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            return block | {"thinking": "", "signature": ""}, [thought, signed]
        case _:
            text = json.dumps(block["input"])
            parts = [{"type": "input_json_delta", "partial_json": part} for part in (text[:5], text[5:])]
            return block | {"input": {}}, parts


def _thinks(body: dict) -> bool:
    return (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")


def _chunk(chunk: dict) -> bytes:
    return event("chunk", {"bytes": base64.b64encode(json.dumps(chunk).encode()).decode()})


MESSAGES = Api(name="anthropic", asked=asked, whole=whole, chunks=chunks, thinks=_thinks)
INVOKE = Api(
    name="bedrock.invoke",
    asked=asked,
    whole=whole,
    chunks=chunks,
    thinks=_thinks,
    framed=_chunk,
    stream_type=EVENT_STREAM,
)
