"""Messages as OpenAI's chat format has them.

Invariant: nothing a message says is lost on the way: arguments of tool calls are text, and content that is more than
text is a list of parts. Sources: OpenAI's chat completions API; `reasoning_content` as vLLM and Hugging Face's
templates name it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from art_otel.calls import Message

ChatMessage: TypeAlias = dict[str, Any]
"""`role`, `content` (None, text or a list of parts) and what else the message has: `tool_calls`, `tool_call_id`, …"""

_JsonObject: TypeAlias = dict[str, Any]

_FILE_FIELDS: Final = {"data": "file_data", "id": "file_id", "file_id": "file_id", "filename": "filename"}


def chat_message(message: Message) -> ChatMessage:
    """Write the message in OpenAI's format, with its reasoning as `reasoning_content`."""
    fields = message_json(message)
    if not is_text(message):
        fields["content"] = [_openai_part(part) for part in _parts(message)]
    return fields


def request_message(message: Message) -> ChatMessage:
    """Write the message as a request may have it: without the reasoning, which not every server accepts."""
    fields = chat_message(message)
    fields.pop("reasoning_content", None)
    return fields


def is_text(message: Message) -> bool:
    """Whether `content` says all that the message's parts say."""
    return all(part.get("type") == "text" for part in _parts(message))


def _parts(message: Message) -> list[_JsonObject]:
    decoded = None if message.parts is None else _decoded(message.parts)
    parts = cast(list[object], decoded) if isinstance(decoded, list) else []
    return [cast(_JsonObject, part) for part in parts if isinstance(part, dict)]


def _decoded(text: str) -> object:
    """The JSON value, None for text that is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _openai_part(part: _JsonObject) -> _JsonObject:
    """A part in OpenAI's words; one that OpenAI has no words for stays as it is."""
    kind = part.get("type")
    if kind == "image" and (url := _url(part)) is not None:
        detail = {"detail": part["detail"]} if "detail" in part else {}
        return {"type": "image_url", "image_url": {"url": url, **detail}}
    if kind == "audio" and "data" in part:
        audio_format = str(part.get("mime_type", "")).rpartition("/")[2] or "wav"
        return {"type": "input_audio", "input_audio": {"data": part["data"], "format": audio_format}}
    if kind == "file" and ("data" in part or "id" in part or "file_id" in part):
        return {"type": "file", "file": {new: part[old] for old, new in _FILE_FIELDS.items() if old in part}}
    return part


def _url(part: Mapping[str, Any]) -> str | None:
    if "data" in part:
        return f"data:{part.get('mime_type', '')};base64,{part['data']}"
    return part.get("url")


def message_json(message: Message) -> dict[str, Any]:
    """A message of text as OpenAI's chat format has it; what it does not have is left out."""
    calls = [
        without_none(id=call.id, type="function", function={"name": call.name, "arguments": call.arguments})
        for call in message.tool_calls
    ]
    optional = without_none(
        name=message.name,
        reasoning_content=message.reasoning,
        refusal=message.refusal,
        tool_calls=calls or None,
        tool_call_id=message.tool_call_id,
    )
    return {"role": message.role, "content": message.content, **optional}


def without_none(**fields: object) -> dict[str, Any]:
    """The fields that are known."""
    return {name: value for name, value in fields.items() if value is not None}
