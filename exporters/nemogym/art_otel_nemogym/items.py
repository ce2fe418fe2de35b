"""Items: messages as the Responses API has them, by the types of NeMo Gym 0.4.0.

Invariant: a message becomes one item or more, in the order in which they were sampled: reasoning, text, tool calls. The
ids of items follow from their place alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from art_otel.exporting import FormatError

JsonObject: TypeAlias = dict[str, Any]

NO_CALL_ID: Final = "a tool call or its result without an id"
NO_SUCH_ROLE: Final = "messages of a role that the Responses API has not"

_ASKING: Final = ("user", "system", "developer")


def items_of(message: Mapping[str, Any], place: int) -> list[JsonObject]:
    """The items of a message whose content is text. Raises FormatError."""
    if message["role"] == "assistant":
        return _sampled(message, place)
    if message["role"] == "tool":
        call_id = message.get("tool_call_id")
        if not call_id:
            raise FormatError(NO_CALL_ID)
        return [{"type": "function_call_output", "call_id": call_id, "output": message["content"]}]
    if message["role"] not in _ASKING:
        raise FormatError(NO_SUCH_ROLE)
    return [{"type": "message", "role": message["role"], "content": message["content"]}]


def _sampled(message: Mapping[str, Any], place: int) -> list[JsonObject]:
    items: list[JsonObject] = []
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    if reasoning := message.get("reasoning_content"):
        summary = [{"type": "summary_text", "text": reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{place}", "summary": summary})
    if message["content"] or not calls:
        text: JsonObject = {"type": "output_text", "text": message["content"], "annotations": []}
        said = {"type": "message", "id": f"msg_{place}", "role": "assistant", "status": "completed"}
        items.append({**said, "content": [text]})
    for call in calls:
        if not call.get("id"):
            raise FormatError(NO_CALL_ID)
        function = call["function"]
        named = {"type": "function_call", "call_id": call["id"], "name": function["name"]}
        items.append({**named, "arguments": function["arguments"]})
    return items
