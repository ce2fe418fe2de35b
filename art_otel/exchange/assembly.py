"""Assembly: joins the events of a stream to the body that the same answer has without streaming.

Invariant: pieces are joined in the order in which they came, in linear time; a field that never came is absent.
Chat Completions and Completions are joined by `conventions.bodies.chunks`, which reads recorded streams as well.

Sources: https://platform.openai.com/docs/api-reference/responses-streaming,
https://docs.anthropic.com/en/api/messages-streaming, https://ai.google.dev/api/generate-content
"""

from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Final, Literal, Protocol, TypeAlias

from art_otel.conventions import values
from art_otel.conventions.bodies.chunks import join, objects, whole
from art_otel.conventions.values import json_object
from art_otel.spans import Value

WireDialect: TypeAlias = Literal["chat", "completions", "responses", "messages", "gemini"]
"""The API in which a completion is asked for."""

SAMPLED: Final = ("choices", "output", "content", "candidates")
"""The field of an answer, in each dialect, that has what was sampled."""


class AnswerAssembler(Protocol):
    """Joins the events that a stream has sent so far."""

    def add(self, event: dict[str, Value], /) -> None:
        """Add the next event."""
        ...

    def body(self) -> dict[str, Value]:
        """The body so far."""
        ...


_ITEM_BEGINS: Final = "response.output_item.added"
_ITEM_ENDS: Final = "response.output_item.done"
_PARTS: Final = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
}
_CALL_FIELDS: Final = {
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}
_MAX_PARTS: Final = 1024


class ResponsesAssembler:
    """Joins the events of the Responses API."""

    def __init__(self) -> None:
        self._response: dict[str, Value] = {}
        self._items: dict[int, dict[str, Value]] = {}

    def add(self, event: dict[str, Value]) -> None:
        """Add the next event."""
        kind = values.text(event.get("type")) or ""
        # Several events carry the response; the last one is the most complete.
        self._response = values.mapping(event.get("response")) or self._response
        output_index = values.integer(event.get("output_index"))
        if output_index is None:
            return
        if kind in (_ITEM_BEGINS, _ITEM_ENDS):
            self._items[output_index] = values.mapping(event.get("item")) or {}
        elif output_index in self._items:
            _add_to_item(self._items[output_index], kind, event)

    def body(self) -> dict[str, Value]:
        """The response's body so far. If the last event has no output, the output is that of the items."""
        items = [whole(self._items[output_index]) for output_index in sorted(self._items)]
        return {**self._response, "output": values.items(self._response.get("output")) or items}


def _add_to_item(item: dict[str, Value], kind: str, event: dict[str, Value]) -> None:
    piece = event.get("delta")
    if not isinstance(piece, str):
        return
    if kind in _CALL_FIELDS:
        join(item, {_CALL_FIELDS[kind]: piece})
    elif kind in _PARTS:
        listed, part_type, field = _PARTS[kind]
        parts = objects(item, listed)
        at = values.integer(event.get("content_index", event.get("summary_index"))) or 0
        # The index is the server's: a large one must not fill the memory.
        while len(parts) <= at < _MAX_PARTS:
            parts.append({"type": part_type})
        if 0 <= at < len(parts):
            join(parts[at], {field: piece})


_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
    "compaction_delta": "content",
}
"""By the kind of a delta: the field with its piece, which is also the field of the block. Only the pieces of a tool's
input (`partial_json`) become another field (`input`)."""

_TOLD_LAST: Final = ("context_management", "input_transformations")
"""Facts about the prompt, which a server sends in the message or in the last event."""


class MessagesAssembler:
    """Joins the events of a streamed Anthropic message."""

    def __init__(self) -> None:
        self._message: dict[str, Value] = {}
        self._is_counted = False
        self._blocks: dict[int, dict[str, Value]] = {}

    def add(self, event: dict[str, Value]) -> None:
        """Add the next event."""
        kind, index = event.get("type"), values.integer(event.get("index"))
        if kind == "message_start":
            self._message = dict(values.mapping(event.get("message")) or {})
        elif kind == "message_delta":
            self._is_counted = True
            self._message |= values.mapping(event.get("delta")) or {}
            self._message |= {name: event[name] for name in _TOLD_LAST if event.get(name) is not None}
            usage = values.mapping(event.get("usage")) or {}
            # The usage at the end may have the sampled tokens only; those of the prompt were in `message_start`.
            self._message["usage"] = {**(values.mapping(self._message.get("usage")) or {}), **usage}
        elif kind == "content_block_start" and index is not None:
            self._blocks[index] = dict(values.mapping(event.get("content_block")) or {})
        elif kind == "content_block_delta" and index in self._blocks:
            delta = values.mapping(event.get("delta")) or {}
            field = _DELTAS.get(str(delta.get("type")))
            if field is not None and isinstance(piece := delta.get(field), str):
                _add_to_block(self._blocks[index], field, piece)

    def body(self) -> dict[str, Value]:
        """The message so far."""
        message = self._message
        # `message_start` has a count of sampled tokens before any was sampled: it is left out until the true one comes.
        usage = values.mapping(message.get("usage"))
        if usage is not None and not self._is_counted:
            usage = {name: count for name, count in usage.items() if name != "output_tokens"}
            message = {**message, "usage": usage}
        return {**message, "content": [_block(self._blocks[index]) for index in sorted(self._blocks)]}


def _add_to_block(block: dict[str, Value], field: str, piece: str) -> None:
    # Joined only when the body is read: appending to a text again and again would take quadratic time.
    pieces = block.setdefault("_pieces", {})
    pieces.setdefault(field, []).append(piece)


def _block(block: dict[str, Value]) -> dict[str, Value]:
    pieces: dict[str, list[str]] = block.get("_pieces", {})
    made = {name: value for name, value in block.items() if name != "_pieces"}
    for field, texts in pieces.items():
        text = "".join(texts)
        if field == "partial_json":
            made["input"] = _input(made, text)
        else:
            made[field] = f"{made.get(field) or ''}{text}"
    return made


def _input(block: dict[str, Value], text: str) -> Value:
    """The input of a tool call: the sampled text itself; parsed for a tool that the server ran, as agents see it."""
    parsed = None if block.get("type") == "tool_use" else json_object(text.encode())
    return (text or block.get("input")) if parsed is None else parsed


_HEAD: Final = ("responseId", "modelVersion", "promptFeedback", "usageMetadata")


class GeminiAssembler:
    """Joins the responses of a stream to one. Texts in a row become one part, if both or neither are thoughts."""

    def __init__(self) -> None:
        self._head: dict[str, Value] = {}
        self._candidates: dict[int, _Candidate] = {}

    def add(self, response: dict[str, Value]) -> None:
        """Add the next response."""
        self._head |= {name: response[name] for name in _HEAD if response.get(name) is not None}
        for position, entry in enumerate(values.items(response.get("candidates")) or ()):
            fields = values.mapping(entry) or {}
            self._candidates.setdefault(values.place_of(fields, position), _Candidate()).add(fields)

    @property
    def may_be_whole(self) -> bool:
        """Whether each candidate that has begun has ended."""
        return bool(self._candidates) and all(one.has_ended for one in self._candidates.values())

    def body(self) -> dict[str, Value]:
        """The response so far."""
        candidates = [{"index": index, **self._candidates[index].fields()} for index in sorted(self._candidates)]
        return {**self._head, "candidates": candidates} if candidates else dict(self._head)


class _Candidate:
    def __init__(self) -> None:
        self._fields: dict[str, Value] = {}
        self._parts: list[dict[str, Value]] = []
        self._texts: list[str] = []
        """The pieces of the last part, where that part is a text; [] otherwise."""

    @property
    def has_ended(self) -> bool:
        return self._fields.get("finishReason") is not None

    def add(self, candidate: dict[str, Value]) -> None:
        self._fields |= {name: value for name, value in candidate.items() if name != "content" and value is not None}
        for part in values.items((values.mapping(candidate.get("content")) or {}).get("parts")) or ():
            self._add_part(values.mapping(part) or {})

    def _add_part(self, part: dict[str, Value]) -> None:
        piece = part.get("text")
        if isinstance(piece, str) and self._texts and part.get("thought") == self._parts[-1].get("thought"):
            self._texts.append(piece)
            return
        self._end_text()
        self._parts.append(part)
        self._texts = [piece] if isinstance(piece, str) else []

    def _end_text(self) -> None:
        if self._texts:
            self._texts = ["".join(self._texts)]
            self._parts[-1] = {**self._parts[-1], "text": self._texts[0]}

    def fields(self) -> dict[str, Value]:
        self._end_text()
        content = {"content": {"role": "model", "parts": [*self._parts]}} if self._parts else {}
        return {**self._fields, **content}


_JSON: Final = JSONDecoder(strict=False)


def gemini_responses(array: bytes) -> Iterator[dict[str, Value]]:
    """Iterate over the whole responses in a JSON array, which may be cut off."""
    text, at = array.decode(errors="replace"), 0
    while (begins := text.find("{", at)) >= 0:
        try:
            # Not msgspec, which cannot decode one value in the middle of a text.
            response, at = _JSON.raw_decode(text, begins)
        except (JSONDecodeError, RecursionError):  # it broke off here
            return
        yield response
