"""Chat: a message as OpenAI's chat format has it, for SFT files and for chat templates.

Invariant: nothing a message says is lost on the way, but for the exact spelling of tool call arguments in a template.
Sources: OpenAI's chat completions API; `reasoning_content` as vLLM and Hugging Face's templates name it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from art_otel.calls import Message
from art_otel.trajectories import message_json

ChatMessage: TypeAlias = dict[str, Any]
"""`role`, `content` (None, text or a list of parts) and what else the message has: `tool_calls`, `tool_call_id`, …"""

_JsonObject: TypeAlias = dict[str, Any]

_FILE_FIELDS: Final = {"data": "file_data", "id": "file_id", "file_id": "file_id", "filename": "filename"}


def chat_message(message: Message) -> ChatMessage:
    """The message in OpenAI's words: arguments of tool calls as text, content that is more than text as parts."""
    said = message_json(message)
    if not is_text(message):
        said["content"] = [_openai_part(part) for part in _parts(message)]
    return said


def template_message(message: Message) -> ChatMessage:
    """The message as chat templates take it, in text alone: no content is "", a refusal is content.

    Arguments that are a JSON object are parsed: templates write them with `tojson`, which would encode text twice.
    """
    said = message_json(message)
    said["content"] = message.content or said.pop("refusal", None) or ""
    for call in cast(list[_JsonObject], said.get("tool_calls", [])):
        call["function"]["arguments"] = _parsed(call["function"]["arguments"])
    return said


def is_text(message: Message) -> bool:
    """Whether `content` says all that the message's parts say."""
    return all(part.get("type") == "text" for part in _parts(message))


def _parts(message: Message) -> list[_JsonObject]:
    found = None if message.parts is None else _decoded(message.parts)
    return [part for part in cast(list[_JsonObject], found) if _is_object(part)] if isinstance(found, list) else []


def _parsed(arguments: str) -> object:
    """Arguments as an object; as they are where they are none, or hold half a character, which no tokenizer takes."""
    if not arguments.strip():
        return {}
    try:
        found = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    return found if _is_object(found) else arguments


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _decoded(text: str) -> Any:  # noqa: ANN401 # any JSON value
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
