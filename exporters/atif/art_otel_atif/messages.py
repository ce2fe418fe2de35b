"""Messages: what one message says, in ATIF's fields and, where it has none, in `extra`.

Invariant: nothing that a message says is dropped, but for the difference between no content and empty content.

Source: `harbor.models.trajectories` (`step`, `tool_call`) of Harbor 0.25.0.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from art_otel.calls import Message, ToolCall
from art_otel.exporting import ExportStats
from art_otel_atif.content import Media, atif_content
from art_otel_atif.metrics import without_none

JsonObject: TypeAlias = dict[str, Any]

NO_ID: Final = "tool calls without an id given one"
NO_OBJECT: Final = "arguments that are no JSON object written as {}, their text in extra"
OTHER_PARTS: Final = "content that ATIF has no words for put into extra"

_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_USUAL_ROLES: Final = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """`content` is None where there is none; `fields` are those that only steps of the agent have."""

    content: str | list[JsonObject] | None
    fields: JsonObject
    extra: JsonObject


def render(message: Message, media: Media, stats: ExportStats, *, agent: bool, step: int) -> Rendered:
    """The message in the words of a step; `step` is its id, which tool calls without an id are named after."""
    content, unsupported = atif_content(message, media)
    stats.changed[OTHER_PARTS] += bool(unsupported)
    extra = {
        "role": None if message.role in _USUAL_ROLES else message.role,
        "name": message.name,
        "refusal": message.refusal,
        "parts": unsupported or None,
    }
    if agent:
        calls = [_tool_call(call, f"call-{step}-{position}", stats) for position, call in enumerate(message.tool_calls)]
        fields = {"reasoning_content": message.reasoning, "tool_calls": calls or None}
        return Rendered(content=content, fields=without_none(fields), extra=without_none(extra))
    extra |= {"reasoning": message.reasoning, "tool_calls": message.tool_calls or None}
    return Rendered(content=content, fields={}, extra=without_none(extra))


def _tool_call(call: ToolCall, substitute: str, stats: ExportStats) -> JsonObject:
    """Arguments as an object, as ATIF wants them; in `extra` the text as it was sampled, where it is known."""
    stats.changed[NO_ID] += call.id is None
    is_object = _is_object(call.arguments)
    stats.changed[NO_OBJECT] += not is_object
    return {
        "tool_call_id": substitute if call.id is None else call.id,
        "function_name": call.name,
        # As it is, so that numbers and the order of keys stay.
        "arguments": msgspec.Raw(call.arguments.encode()) if is_object else {},
        **({"extra": {"arguments": call.arguments}} if call.exact or not is_object else {}),
    }


def _is_object(text: str) -> bool:
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
