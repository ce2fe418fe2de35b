"""Chat: Chat Completions of OpenAI, with thoughts in `reasoning_content` as most other servers have them."""

import json
from collections.abc import Iterator

from tests.dialects.recording.apis.api import Api
from tests.dialects.recording.task import Answer, Asked, message, pieces, text_of


def asked(body: dict) -> Asked:
    """Read `messages` and `tools`."""
    messages = []
    for given in body["messages"]:
        calls = [
            [call.get("id"), call["function"]["name"], call["function"]["arguments"]]
            for call in given.get("tool_calls") or ()
        ]
        said = message(given["role"], text_of(given.get("content")), calls, given.get("reasoning_content"))
        messages.append(said | ({"tool_call_id": given["tool_call_id"]} if given.get("tool_call_id") else {}))
    functions = [tool["function"] for tool in body.get("tools") or ()]
    tools = [{"name": function["name"], "parameters": function.get("parameters")} for function in functions]
    return Asked(messages=messages, tools=tools)


def whole(body: dict, answer: Answer) -> dict:
    """One choice."""
    said: dict = {"role": "assistant", "content": answer.text, "reasoning_content": answer.thought}
    if answer.calls:
        said["tool_calls"] = [_call(*call) for call in answer.calls]
    choice = {"index": 0, "message": said, "finish_reason": answer.as_truth()["finish"], "logprobs": None}
    return _head(body, answer, "chat.completion") | {"choices": [choice], "usage": _usage(answer)}


def chunks(body: dict, answer: Answer) -> Iterator[dict]:
    """A word a chunk; arguments in two."""
    head = _head(body, answer, "chat.completion.chunk")
    deltas: list[dict] = [{"role": "assistant", "content": ""}, {"reasoning_content": answer.thought}]
    deltas += [{"content": piece} for piece in pieces(answer.text or "") if piece]
    for at, call in enumerate(answer.calls):
        whole_call = _call(*call)
        arguments = whole_call["function"]["arguments"]
        begun = whole_call | {"index": at, "function": whole_call["function"] | {"arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        deltas += [
            {"tool_calls": [{"index": at, "function": {"arguments": part}}]} for part in (arguments[:4], arguments[4:])
        ]
    for delta in deltas:
        yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": answer.as_truth()["finish"]}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield head | {"choices": [], "usage": _usage(answer)}


def _call(call_id: str, name: str, arguments: dict) -> dict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _head(body: dict, answer: Answer, kind: str) -> dict:
    return {"id": f"chatcmpl-{answer.number}", "object": kind, "created": 1_700_000_000, "model": body["model"]}


def _usage(answer: Answer) -> dict:
    asked_for, said = answer.input_tokens, answer.output_tokens
    return {
        "prompt_tokens": asked_for,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens": said,
        "completion_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": asked_for + said,
    }


CHAT = Api(
    name="openai.chat",
    asked=asked,
    whole=whole,
    chunks=chunks,
    thinks=lambda _: True,
    last=b"data: [DONE]\n\n",
)
