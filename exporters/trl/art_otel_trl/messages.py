"""Messages: a chat message as a chat template takes it.

Invariant: content is text. What a template cannot be told raises FormatError, whose text is the reason.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from art_otel.exporting import Notes
from art_otel.spans import Value

Message: TypeAlias = dict[str, Any]

REFUSAL: Final = "refusals given as content"
NO_OBJECT: Final = "tool call arguments that are no plain JSON object kept as text"
MORE_THAN_TEXT: Final = "content that is more than text"

_INT64: Final = range(-(2**63), 2**63)


class FormatError(Exception):
    """TRL has no words for it; the text is the reason, of a few for all."""


def template_messages(messages: Sequence[Message], arguments: Literal["object", "text"], notes: Notes) -> list[Message]:
    """OpenAI chat messages for a template. Raises FormatError."""
    return [_message(message, arguments, notes) for message in messages]


def tools_json(tools: Sequence[Value] | None) -> str | None:
    """The tools as JSON, None where there are none."""
    return json.dumps(tools, ensure_ascii=False) if tools else None


def _message(message: Message, arguments: Literal["object", "text"], notes: Notes) -> Message:
    said = {name: value for name, value in message.items() if name != "refusal"}
    if not isinstance(said["content"], str | None):
        raise FormatError(MORE_THAN_TEXT)
    if not said["content"] and "refusal" in message:
        notes.changed[REFUSAL] += 1
        said["content"] = message["refusal"]
    said["content"] = said["content"] or ""
    if "tool_calls" in said and arguments == "object":
        said["tool_calls"] = [_with_object(call, notes) for call in said["tool_calls"]]
    return said


def _with_object(call: Mapping[str, Any], notes: Notes) -> Message:
    function = call["function"]
    found = _object(function["arguments"])
    if found is None:
        notes.changed[NO_OBJECT] += 1
        return dict(call)
    return {**call, "function": {**function, "arguments": found}}


def _object(arguments: str) -> Message | None:
    """The object that the text says; None for none, and for what the reader of `datasets` refuses in JSON."""
    if not arguments.strip():
        return {}
    try:
        found: object = msgspec.json.decode(arguments)
        return cast(Message, found) if isinstance(found, dict) and _is_plain(cast(object, found)) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, cast(dict[str, object], value).values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast(list[object], value)))
    return not isinstance(value, int) or value in _INT64
