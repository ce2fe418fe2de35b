"""Gemini: Google's generateContent and streamGenerateContent."""

import json
from collections.abc import Iterator

from tests.dialects.recording.apis.api import Api
from tests.dialects.recording.task import Answer, Asked, message, pieces


def asked(body: dict) -> Asked:
    """Read `systemInstruction`, `contents` and `tools`; each function response is a message."""
    system = body.get("systemInstruction") or {}
    messages = [message("system", "".join(part["text"] for part in system["parts"]), [])] if system else []
    for given in body["contents"]:
        parts = given["parts"]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        messages += [
            {
                "role": "tool",
                "content": json.dumps(one.get("response"), ensure_ascii=False),
                "tool_call_id": one.get("id"),
            }
            for one in results
        ]
        said = _said("assistant" if given.get("role") == "model" else "user", parts)
        messages += [said] if len(said) > 2 or said["content"] is not None else []
    declared = [one for tool in body.get("tools") or () for one in tool.get("functionDeclarations") or ()]
    tools = [
        {"name": one["name"], "parameters": one.get("parametersJsonSchema", one.get("parameters"))} for one in declared
    ]
    return Asked(messages=messages, tools=tools)


def _said(role: str, parts: list[dict]) -> dict:
    text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought")) or None
    thought = "".join(part["text"] for part in parts if part.get("thought")) or None
    functions = [part["functionCall"] for part in parts if "functionCall" in part]
    calls = [[one.get("id"), one["name"], json.dumps(one.get("args"))] for one in functions]
    return message(role, text, calls, thought)


def whole(body: dict, answer: Answer) -> dict:
    """A candidate with all parts."""
    return _response(body, answer, _parts(answer), is_last=True)


def chunks(body: dict, answer: Answer) -> Iterator[dict]:
    """A part a chunk; texts in words."""
    parts = [
        part | {"text": piece} if "text" in part else part
        for part in _parts(answer)
        for piece in pieces(part.get("text", ""))
    ]
    for at, part in enumerate(parts):
        yield _response(body, answer, [part], is_last=at == len(parts) - 1)


def _parts(answer: Answer) -> list[dict]:
    thoughts: list[dict] = [] if answer.thought is None else [{"text": answer.thought, "thought": True}]
    calls = [{"functionCall": {"id": call_id, "name": name, "args": args}} for call_id, name, args in answer.calls]
    texts = [] if answer.text is None else [{"text": answer.text}]
    return [*thoughts, *texts, *calls]


def _response(body: dict, answer: Answer, parts: list[dict], *, is_last: bool) -> dict:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    usage = {
        "promptTokenCount": answer.input_tokens,
        "candidatesTokenCount": answer.output_tokens,
        "totalTokenCount": answer.input_tokens + answer.output_tokens,
        "thoughtsTokenCount": 4,
        "cachedContentTokenCount": 3,
    }
    return {
        "candidates": [candidate | ({"finishReason": "STOP"} if is_last else {})],
        "usageMetadata": usage,
        "modelVersion": body["model"],
        "responseId": f"gem_{answer.number}",
    }


def _thinks(body: dict) -> bool:
    config = (body.get("generationConfig") or {}).get("thinkingConfig") or {}
    return bool(config.get("includeThoughts") or config.get("include_thoughts"))


GEMINI = Api(name="gemini", asked=asked, whole=whole, chunks=chunks, thinks=_thinks)
