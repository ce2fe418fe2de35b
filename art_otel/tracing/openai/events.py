"""JoinedEvents: the events of a streamed response of the Responses API as the body it has without streaming.

Invariant: the event at its end holds the whole answer; of a stream that never came there, the items are kept as far as
they had come.

Source of the format: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from typing import Final

from art_otel.conventions import values
from art_otel.conventions.bodies.chunks import join, objects, whole
from art_otel.spans import Value

_ITEM_BEGINS: Final = "response.output_item.added"
_ITEM_ENDS: Final = "response.output_item.done"
_PARTS: Final = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
}
_FIELDS: Final = {
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}
_MAX_PARTS: Final = 1024


class JoinedEvents:
    """Joins the events that a stream has sent so far."""

    def __init__(self) -> None:
        self._response: dict[str, Value] = {}
        self._items: dict[int, dict[str, Value]] = {}

    def add(self, event: dict[str, Value]) -> None:
        """Add the next event."""
        kind = values.text(event.get("type")) or ""
        self._response = values.mapping(event.get("response")) or self._response
        output_index = values.integer(event.get("output_index"))
        if output_index is None:
            return
        if kind in (_ITEM_BEGINS, _ITEM_ENDS):
            self._items[output_index] = values.mapping(event.get("item")) or {}
        elif output_index in self._items:
            _add_piece(self._items[output_index], kind, event)

    def body(self) -> dict[str, Value]:
        """Return the response body as far as it has come."""
        items = [whole(self._items[output_index]) for output_index in sorted(self._items)]
        return {**self._response, "output": values.items(self._response.get("output")) or items}


def _add_piece(item: dict[str, Value], kind: str, event: dict[str, Value]) -> None:
    piece = event.get("delta")
    if not isinstance(piece, str):
        return
    if kind in _FIELDS:
        join(item, {_FIELDS[kind]: piece})
    elif kind in _PARTS:
        listed, part_type, field = _PARTS[kind]
        parts = objects(item, listed)
        at = values.integer(event.get("content_index", event.get("summary_index"))) or 0
        while len(parts) <= at < _MAX_PARTS:
            parts.append({"type": part_type})
        if 0 <= at < len(parts):
            join(parts[at], {field: piece})
