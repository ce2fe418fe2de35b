"""TemplateMessage: a message as chat templates take it.

Invariant: nothing a message says is lost on the way, but for the exact spelling of tool call arguments.
"""

from typing import Any, TypeAlias, cast

import msgspec

from art_otel.calls import Message
from art_otel.trajectories import ChatMessage, message_json

_JsonObject: TypeAlias = dict[str, Any]


def template_message(message: Message) -> ChatMessage:
    """The message as chat templates take it, in text alone: no content is "", a refusal is content.

    Arguments that are a JSON object are parsed: templates write them with `tojson`, which would encode text twice.
    """
    chat = message_json(message)
    chat["content"] = message.content or chat.pop("refusal", None) or ""
    for call in cast(list[_JsonObject], chat.get("tool_calls", [])):
        call["function"]["arguments"] = _parsed(call["function"]["arguments"])
    return chat


def _parsed(arguments: str) -> object:
    """Arguments as an object; as they are where they are none, or hold half a character, which no tokenizer takes."""
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if _is_object(value) else arguments


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
