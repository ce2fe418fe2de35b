"""Responses: OpenAI's Responses API, with a summary of the thoughts."""

import json
from collections.abc import Iterator

from tests.dialects.recording.apis.api import Api
from tests.dialects.recording.task import Answer, Asked, message, pieces, text_of


def asked(body: dict) -> Asked:
    """Read `instructions`, `input` and `tools`; items of one answer are one message."""
    given = body.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages = [message("system", body["instructions"], [])] if body.get("instructions") else []
    for item in items:
        said = _said(item)
        if messages and said["role"] == messages[-1]["role"] == "assistant":
            messages[-1] = _joined(messages[-1], said)
        else:
            messages.append(said)
    functions = [tool for tool in body.get("tools") or () if tool["type"] == "function"]
    tools = [{"name": tool["name"], "parameters": tool.get("parameters")} for tool in functions]
    return Asked(messages=messages, tools=tools)


def _said(item: dict) -> dict:
    match item.get("type", "message"):
        case "function_call":
            return message("assistant", None, [[item["call_id"], item["name"], item["arguments"]]])
        case "function_call_output":
            return {"role": "tool", "content": text_of(item["output"]), "tool_call_id": item["call_id"]}
        case "reasoning":
            return message("assistant", None, [], text_of(item.get("summary")))
        case _:
            return message(item["role"], text_of(item["content"]), [])


def _joined(first: dict, second: dict) -> dict:
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    text = (first["content"] or "") + (second["content"] or "") or None
    return message("assistant", text, calls, first.get("reasoning") or second.get("reasoning"))


def whole(body: dict, answer: Answer) -> dict:
    """A response with its items: thoughts, text, calls."""
    number = answer.number
    output: list[dict] = [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": answer.thought}]}
    ]
    if answer.text is not None:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        about = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        output.append(about | {"content": [part]})
    for at, (call_id, name, arguments) in enumerate(answer.calls):
        about = {"type": "function_call", "id": f"fc_{number}_{at}", "call_id": call_id, "status": "completed"}
        output.append(about | {"name": name, "arguments": json.dumps(arguments)})
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "model": body["model"],
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "output": output,
        "previous_response_id": body.get("previous_response_id"),
        "text": {"format": {"type": "text"}},
        "truncation": "disabled",
        "reasoning": {"effort": None, "summary": None},
        "usage": {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }


def chunks(body: dict, answer: Answer) -> Iterator[dict]:
    """Events, numbered."""
    for number, event in enumerate(_events(whole(body, answer))):
        yield event | {"sequence_number": number}


def _events(response: dict) -> Iterator[dict]:
    yield {"type": "response.created", "response": response | {"status": "in_progress", "output": [], "usage": None}}
    for at, item in enumerate(response["output"]):
        empty = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {}}[item["type"]]
        yield {"type": "response.output_item.added", "output_index": at, "item": item | empty}
        where = {"output_index": at, "item_id": item["id"]}
        if item["type"] == "message":
            yield from _part_events(where | {"content_index": 0}, item["content"][0])
        if item["type"] == "function_call":
            said = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **where, **said}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    yield {"type": "response.completed", "response": response}


def _part_events(where: dict, part: dict) -> Iterator[dict]:
    yield {"type": "response.content_part.added", **where, "part": part | {"text": ""}}
    for piece in pieces(part["text"]):
        yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


RESPONSES = Api(name="openai.responses", asked=asked, whole=whole, chunks=chunks, thinks=lambda _: True)
