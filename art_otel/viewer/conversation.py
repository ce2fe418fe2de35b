"""Conversation: messages as JSON values, as the page and its texts show them. Texts are verbatim."""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from art_otel.calls import Message
from art_otel.trajectories import ToolExecution

_KINDS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MEDIA: Final = frozenset({"image", "image_url", "input_image", "audio", "input_audio", "file", "input_file", "video"})
_LONGEST: Final = 2_000
"""Characters of a part that is neither text nor an image; `Raw` has all of it."""

_LONGEST_FAILURE: Final = 80
_FAILED: Final = re.compile(
    r"^(?:\w*(?:Error|Exception)\b|Traceback |(?i:error|failed)\b)|\b[1-9]\d* failed\b|\bexit (?:code|status):? [1-9]"
    r'|"(?i:is_?)?error":(?! ?(?:null|false|""|\{\}|\[\]))|"(?:ok|success)": ?false|"exit_?code": ?-?[1-9]'
    r'|"status": ?"(?i:error|failed|failure)"'
)
_IMAGES: Final = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8", "image/gif": b"GIF8", "image/webp": b"RIFF"}
"""What a browser shows without running anything of it, by the bytes with which it begins."""

_LARGEST: Final = 4 << 20
"""Characters of base64 of an image that is shown."""


def message_parts(message: Message) -> Iterator[dict[str, Any]]:
    """What a message is made of: reasoning, texts and media, a refusal, tool calls."""
    if message.reasoning is not None:
        yield _part("reasoning", message.reasoning)
    if message.parts is not None:
        yield from map(_recorded_part, _decoded(message.parts))
    elif message.content is not None:
        yield _part("tool_result" if message.role == "tool" else "text", message.content)
    if message.refusal is not None:
        yield _part("refusal", message.refusal)
    for call in message.tool_calls:
        yield {"kind": "tool_call", "text": call.arguments, "name": call.name, "callId": call.id}


def message_text(message: Message) -> str:
    """All that a message says, as one text."""
    return "\n".join(
        f"{part['name']}({part['text']})" if part["kind"] == "tool_call" else part["text"] or ""
        for part in message_parts(message)
    )


def failure_in(text: str) -> str | None:
    """The words with which the result of a tool says that it failed: in its first or last line, or in JSON."""
    lines = text.strip().splitlines()
    searched = [text] if text.startswith("{") else [*lines[:1], *lines[-1:]]
    found = next(filter(None, map(_FAILED.search, searched)), None)
    return None if found is None else found.string[found.start() :].splitlines()[0][:_LONGEST_FAILURE]


def show_execution(execution: ToolExecution, result: Message | None) -> dict[str, Any]:
    """What ran, and what came of it where the message says something else."""
    ended, came = execution.end_ns, _as_text(execution.result)
    said = None if result is None else message_text(result)
    is_equal = (
        said is not None and came is not None and (said.strip() == came.strip() or _decoded(said) == _decoded(came))
    )
    return {
        "name": execution.name,
        "result": None if is_equal else came,
        "error": execution.error,
        "durationMs": None if ended is None else (ended - execution.start_ns) / 1e6,
    }


def _as_text(value: object) -> str | None:
    """A JSON value as a person reads it; a text as it is."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _part(kind: str, text: str | None) -> dict[str, Any]:
    return {"kind": kind, "text": text}


def _recorded_part(part: object) -> dict[str, Any]:
    """A part of a content list. An image that stands in it is shown; nothing is ever fetched."""
    fields = cast(dict[str, object], part) if isinstance(part, dict) else {}
    kind = str(fields.get("type", ""))
    text = fields.get("text") if kind != "refusal" else fields.get("refusal")
    if kind in _KINDS and isinstance(text, str):
        return _part(_KINDS[kind], text)
    if kind not in _MEDIA:
        return _part("other", _shortened(cast(object, part)))
    data, mime_type = fields.get("data"), fields.get("mime_type")
    says = f"{mime_type or kind}, {len(data) * 3 // 4:,} bytes" if isinstance(data, str) else _shortened(fields)
    return {**_part("media", says), "image": _image(data) if isinstance(data, str) else None}


def _image(data: str) -> str | None:
    """The image of base64 text as a `data:` address; None where it is none that a browser only draws."""
    try:
        begins = b64decode(data[:16], validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = next((kind for kind, magic in _IMAGES.items() if begins.startswith(magic)), None)
    return None if kind is None or len(data) > _LARGEST else f"data:{kind};base64,{data}"


def _shortened(part: object) -> str:
    shown = _as_text(part) or ""
    rest = len(shown) - _LONGEST
    return shown if rest <= 0 else f"{shown[:_LONGEST]}… {rest:,} more characters"


def _decoded(parts: str) -> list[object]:
    try:
        decoded: object = msgspec.json.decode(parts)
    except (msgspec.DecodeError, RecursionError):
        return [parts]
    return cast(list[object], decoded) if isinstance(decoded, list) else [decoded]
