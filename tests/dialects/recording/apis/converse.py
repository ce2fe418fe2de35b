"""Converse: Bedrock's Converse and ConverseStream."""

import json
from collections.abc import Iterator

from tests.dialects.recording.apis.api import Api
from tests.dialects.recording.apis.aws import EVENT_STREAM, event
from tests.dialects.recording.task import Answer, Asked, message, pieces, text_of


def asked(body: dict) -> Asked:
    """Read `system`, `messages` and `toolConfig`; each result of a tool is a message."""
    messages = [message("system", text_of(body["system"]), [])] if body.get("system") else []
    for given in body["messages"]:
        results = [block["toolResult"] for block in given["content"] if "toolResult" in block]
        messages += [
            {"role": "tool", "content": text_of(one["content"]), "tool_call_id": one["toolUseId"]} for one in results
        ]
        uses = [block["toolUse"] for block in given["content"] if "toolUse" in block]
        calls = [[use["toolUseId"], use["name"], json.dumps(use["input"])] for use in uses]
        texts = [block["text"] for block in given["content"] if "text" in block]
        messages += [message(given["role"], "".join(texts) or None, calls)] if texts or calls else []
    specs = [tool["toolSpec"] for tool in (body.get("toolConfig") or {}).get("tools") or () if "toolSpec" in tool]
    tools = [{"name": spec["name"], "parameters": spec["inputSchema"]["json"]} for spec in specs]
    return Asked(messages=messages, tools=tools)


def whole(_: dict, answer: Answer) -> dict:
    """A message of blocks."""
    uses = [
        {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        for call_id, name, arguments in answer.calls
    ]
    said = {"role": "assistant", "content": [*([] if answer.text is None else [{"text": answer.text}]), *uses]}
    return {"output": {"message": said}, "stopReason": _stop(answer), "usage": _usage(answer), "metrics": _METRICS}


def chunks(_: dict, answer: Answer) -> Iterator[dict]:
    """Events, each under its name."""
    yield {"messageStart": {"role": "assistant"}}
    if answer.text is not None:
        for piece in pieces(answer.text):
            yield {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": piece}}}
        yield {"contentBlockStop": {"contentBlockIndex": 0}}
    for at, (call_id, name, arguments) in enumerate(answer.calls, start=0 if answer.text is None else 1):
        where = {"contentBlockIndex": at}
        yield {"contentBlockStart": where | {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}}
        yield {"contentBlockDelta": where | {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
        yield {"contentBlockStop": where}
    yield {"messageStop": {"stopReason": _stop(answer)}}
    yield {"metadata": {"usage": _usage(answer), "metrics": _METRICS}}


_METRICS = {"latencyMs": 1}


def _stop(answer: Answer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _usage(answer: Answer) -> dict:
    asked_for, said = answer.input_tokens, answer.output_tokens
    return {"inputTokens": asked_for, "outputTokens": said, "totalTokens": asked_for + said}


def _framed(chunk: dict) -> bytes:
    ((kind, payload),) = chunk.items()
    return event(kind, payload)


CONVERSE = Api(
    name="bedrock.converse", asked=asked, whole=whole, chunks=chunks, framed=_framed, stream_type=EVENT_STREAM
)
