"""Messages: a chat message as a chat template takes it.

Invariant: content is text. What a template cannot be told raises FormatError, whose text is the reason.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from art_otel.exporting import ExportStats, Value, text_message

Message: TypeAlias = dict[str, Any]

NO_OBJECT: Final = "tool call arguments that are no plain JSON object kept as text"

_INT64: Final = range(-(2**63), 2**63)


def template_messages(
    messages: Sequence[Message], arguments: Literal["object", "text"], stats: ExportStats
) -> list[Message]:
    """OpenAI chat messages for a template. Raises FormatError."""
    return [_message(message, arguments, stats) for message in messages]


def tools_json(tools: Sequence[Value] | None) -> str | None:
    """The tools as JSON, None where there are none."""
    return json.dumps(tools, ensure_ascii=False) if tools else None


def _message(message: Message, arguments: Literal["object", "text"], stats: ExportStats) -> Message:
    plain = text_message(message, stats)
    if "tool_calls" in plain and arguments == "object":
        plain["tool_calls"] = [_with_object(call, stats) for call in plain["tool_calls"]]
    return plain


def _with_object(call: Mapping[str, Any], stats: ExportStats) -> Message:
    function = call["function"]
    parsed = _object(function["arguments"])
    if parsed is None:
        stats.changed[NO_OBJECT] += 1
        return dict(call)
    return {**call, "function": {**function, "arguments": parsed}}


def _object(arguments: str) -> Message | None:
    """The object that the text says; None for none, and for what the reader of `datasets` refuses in JSON."""
    if not arguments.strip():
        return {}
    try:
        value: object = msgspec.json.decode(arguments)
        return cast(Message, value) if isinstance(value, dict) and _is_plain(cast(object, value)) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, cast(dict[str, object], value).values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast(list[object], value)))
    return not isinstance(value, int) or value in _INT64
