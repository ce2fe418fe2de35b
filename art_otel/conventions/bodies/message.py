"""Message: one recorded message in any dialect -> Message records.

Invariant: text, reasoning, refusal, tool calls and answers to them are told apart by their part types, never by their
position, so that one completion is equal whoever recorded it. Read are OpenAI's chat messages and
Responses items, GenAI's messages with `parts`
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-input-messages.json), Anthropic's content blocks, those of
`blocks`, and pydantic-ai's first parts, whose type is a `kind`.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

import msgspec

from art_otel.calls import Message, ToolCall, canonical_arguments
from art_otel.conventions.attributes import values
from art_otel.conventions.bodies import blocks, parts
from art_otel.errors import ParseError
from art_otel.spans import Value

_NOTHING_SAID: Final = (None,) * 4
ROLES: Final = {"human": "user", "ai": "assistant", "model": "assistant"}
_PLAIN_FIELDS: Final = frozenset({"role", "parts", "content", "finish_reason"})
_MAX_PARTS: Final = 1 << 16
"""Of one message, far more than any has; each takes many times its bytes."""

_TEXT: Final = frozenset({"text", "input_text", "output_text"})
_REASONING: Final = frozenset({"reasoning", "thinking", "reasoning_text", "summary_text"})
_TOOL_CALL: Final = frozenset({"tool_call", "tool_use", "function_call", "custom_tool_call", "tool-call"})
_API_ANSWER: Final = frozenset({"tool_result", "function_call_output", "custom_tool_call_output"})
_ANSWER: Final = frozenset({"tool_call_response", "tool-result"}) | _API_ANSWER
"""Answers of tools: in GenAI's and Vercel's words their results are values of the tool's own."""


ResultWriter: TypeAlias = Callable[[Value], Value]
"""Writes what a tool gave as it was sent: a text, or a list of content parts."""


def sent_result(result: Value) -> Value:
    """Write the result of a tool as clients send it: text and content parts as they are, else as Python's JSON."""
    return result if isinstance(result, str) or is_content(result) else _json(result)


def messages_of(entry: Value, role: str | None = None, write_result: ResultWriter = sent_result) -> tuple[Message, ...]:
    """Parse one recorded message: to several when it answers several tool calls at once, else to one.

    `role` is that of a message that names none. Raises ParseError when `entry` is no message.
    """
    fields = values.mapping(entry)
    if fields is None or "lc" in fields:
        raise ParseError("", "is no message, or one in LangChain's own serialization")
    if (plain := _plain(fields)) is not None:
        return (plain,)
    kind = values.text(fields.get("type"))
    named_role = values.text(fields.get("role"))
    draft = Draft(write_result)
    if named_role is None and kind is not None and kind != "message" and kind not in ROLES:
        draft.add(fields)
        return draft.messages(role="assistant")
    draft.add_recorded(fields.get("parts") or fields.get("content"))
    draft.add_fields(fields)
    named_role = named_role or (kind if kind in ROLES else role)
    if named_role is None:
        raise ParseError("", "is a message without a role")
    answered_id = values.text(fields.get("tool_call_id")) or (
        values.text(fields.get("id")) if named_role == "tool" else None
    )
    name = values.text(fields.get("name"))
    return draft.messages(role=ROLES.get(named_role, named_role), name=name, tool_call_id=answered_id)


def _plain(fields: dict[str, Value]) -> Message | None:
    """Parse a message of a role and one text, as most are; None for any other."""
    if not fields.keys() <= _PLAIN_FIELDS:
        return None
    role, content = fields.get("role"), fields.get("parts") or fields.get("content")
    if isinstance(content, list) and len(entries := cast("list[Value]", content)) == 1:
        part = values.mapping(entries[0]) or {}
        content = part.get("content") if part.get("type") == "text" else None
    if not isinstance(content, str) or not isinstance(role, str) or not role:
        return None
    return Message(role=ROLES.get(role, role), content=content)


def tool_call(fields: dict[str, Value]) -> ToolCall:
    """Parse a tool call in OpenAI's, GenAI's, Anthropic's or LangChain's shape. Arguments kept as text are exact."""
    function = values.mapping(fields.get("function")) or values.mapping(fields.get("custom")) or fields
    arguments = next(
        (function[name] for name in ("arguments", "input", "args") if function.get(name) is not None), None
    )
    exact = isinstance(arguments, str)
    return ToolCall(
        id=_first(fields, "call_id", "id", "toolCallId"),
        name=_first(function, "name", "toolName") or "",
        arguments=arguments if isinstance(arguments, str) else "" if arguments is None else _json(arguments),
        exact=exact,
    )


def _is_same_call(call: ToolCall, other: ToolCall) -> bool:
    return call.name == other.name and canonical_arguments(call.arguments) == canonical_arguments(other.arguments)


def is_part_type(kind: Value) -> bool:
    """Whether a part of this type is reasoning, a refusal, a tool call or the answer to one."""
    return kind in _REASONING or kind in _TOOL_CALL or kind in _ANSWER or kind == "refusal"


def unwrapped(content: str) -> Value:
    """Decode content that is the JSON text of a list of parts; any other text stays as it is."""
    if not content.startswith("[{"):
        return content
    try:
        decoded, whole = values.decode(content)
    except ParseError:
        return content
    entries = [values.mapping(entry) or {} for entry in values.items(decoded) or ()]
    is_parts = whole and all("type" in entry or blocks.is_block(entry) for entry in entries)
    return decoded if is_parts else content


def is_blank(message: Message) -> bool:
    """Whether only the role of a message was recorded, as happens to content that an instrumentor cannot write."""
    texts = (message.content, message.refusal, message.reasoning, message.parts)
    return texts == _NOTHING_SAID and not message.tool_calls


def join(messages: Sequence[Message]) -> Message:
    """Join messages of one role to the one that was sampled."""
    if len(messages) == 1:
        return messages[0]
    draft = Draft()
    for message in messages:
        draft.add_all(msgspec.json.decode(message.parts) if message.parts else message.content)
        draft.reasoning += [message.reasoning] if message.reasoning else []
        draft.refusals += [message.refusal] if message.refusal else []
        draft.tool_calls += message.tool_calls
    return draft.message(role=messages[0].role, name=next((message.name for message in messages if message.name), None))


class Draft:
    """A message being put together from its parts."""

    def __init__(self, write_result: ResultWriter = sent_result) -> None:
        self._write_result = write_result
        self.parts: list[dict[str, Value]] = []
        self.reasoning: list[str] = []
        self.refusals: list[str] = []
        self.tool_calls: list[ToolCall] = []
        self.answers: list[Message] = []
        self.has_text = False

    def add_recorded(self, content: Value) -> None:
        """Add recorded content. Raises ParseError, also when it has too many parts."""
        if len(values.items(content) or ()) > _MAX_PARTS:
            raise ParseError("", f"has more than {_MAX_PARTS} parts")
        self.add_all(content)

    def add_all(self, content: Value) -> None:
        """Add content: a text, a part, or a list of them. None adds nothing."""
        if content is None:
            return
        entries = values.items(content)
        for part in [content] if entries is None else entries:
            self.add(part)

    def add(self, part: Value) -> None:
        """Add one part. Raises ParseError when it is neither a text nor an object."""
        if isinstance(part, str):
            self._add_text(part)
            return
        fields = values.mapping(part)
        if fields is None:
            raise ParseError("", "has a part that is neither a text nor an object")
        if "type" not in fields and "kind" in fields:
            fields = parts.of_kind(fields)
        kind = values.text(fields.get("type"))
        if (kind in _TEXT or (kind is None and "text" in fields)) and fields.get("thought") is not True:
            self._add_text(_text(fields, "content", "text"))
        elif kind in _REASONING or (kind is None and fields.get("thought") is True and "text" in fields):
            reasoning = next(
                (fields[name] for name in ("content", "thinking", "text", "summary") if fields.get(name)), None
            )
            self.reasoning += reasoning_texts(reasoning)
        elif kind == "refusal":
            self.refusals.append(_text(fields, "content", "refusal"))
        elif kind in _TOOL_CALL:
            self._add_tool_call(tool_call(fields))
        elif kind in _ANSWER:
            self.answers.append(_answer(fields, self._write_result))
        elif (block := blocks.typed(fields)) is not None:
            self.add(block)
        else:
            self.parts.append(parts.canonical(fields))

    def add_fields(self, fields: dict[str, Value]) -> None:
        """Add the fields that OpenAI's chat messages have beside `content`."""
        if reasoning := fields.get("reasoning_content") or fields.get("reasoning") or fields.get("thinking"):
            self.reasoning += reasoning_texts(reasoning)
        if refusal := values.text(fields.get("refusal")):
            self.refusals.append(refusal)
        for call in values.items(fields.get("tool_calls")) or ():
            entry = values.mapping(call)
            if entry is None:
                raise ParseError("", "has a tool call that is no object")
            self._add_tool_call(tool_call(entry))
        if function_call := values.mapping(fields.get("function_call")):
            self._add_tool_call(tool_call(function_call))
        if audio := values.mapping(fields.get("audio")):
            self.parts.append(parts.canonical({**audio, "type": "audio"}))

    def messages(self, *, role: str, name: str | None = None, tool_call_id: str | None = None) -> tuple[Message, ...]:
        """Build the messages: one for each answer to a tool call, and one for everything else."""
        if self.answers and not (self.parts or self.tool_calls or self.reasoning or self.refusals):
            return tuple(self.answers)
        return (*self.answers, self.message(role=role, name=name, tool_call_id=tool_call_id))

    def message(self, *, role: str, name: str | None = None, tool_call_id: str | None = None) -> Message:
        """Build the message of everything but answers to tool calls."""
        texts = [str(part["text"]) for part in self.parts if part.get("type") == "text"]
        rich = len(self.parts) > 1 or len(texts) < len(self.parts)
        nothing_else = not (self.parts or self.tool_calls or self.reasoning or self.refusals)
        return Message(
            role=role,
            name=name,
            content="".join(texts) or ("" if self.has_text and nothing_else else None),
            reasoning="\n".join(filter(None, self.reasoning)) or None,
            refusal="\n".join(filter(None, self.refusals)) or None,
            tool_calls=tuple(self.tool_calls),
            tool_call_id=tool_call_id,
            parts=values.write_json(self.parts) if rich else None,
        )

    def _add_tool_call(self, call: ToolCall) -> None:
        """Add a tool call, which some recorders (LangChain, botocore) write in the content as well, under one id."""
        for index, other in enumerate(self.tool_calls):
            if other.id is not None and other.id == call.id and _is_same_call(call, other):
                self.tool_calls[index] = call if call.exact else other
                return
        self.tool_calls.append(call)

    def _add_text(self, text: str) -> None:
        self.has_text = True
        if text:
            self.parts.append({"type": "text", "text": text})


def reasoning_texts(value: Value) -> list[str]:
    """The texts of reasoning: of one text, of summaries, or (OpenLLMetry) of the JSON text of a list of summaries."""
    if isinstance(value, str):
        return [value] if (summaries := _summaries(value)) is None else summaries
    texts = [_summary(part) for part in values.items(value) or [value]]
    return [text for text in texts if text is not None]


def _summaries(json_text: str) -> list[str] | None:
    """The texts of a JSON list of summaries; None when the text is something else."""
    if not json_text.startswith("["):
        return None
    try:
        decoded, _ = values.decode(json_text)
    except ParseError:
        return None
    texts = [_summary(part) for part in values.items(decoded) or ()]
    return None if None in texts else [text for text in texts if text is not None]


def _summary(part: Value) -> str | None:
    """The text of a summary, written as a text or as an object that has one."""
    return values.text(part) or values.text((values.mapping(part) or {}).get("text"))


def _answer(fields: dict[str, Value], write_result: ResultWriter) -> Message:
    """Parse the answer to a tool call. Raises ParseError when it cannot be written."""
    names = ("response", "result", "output", "content")
    response = next((fields[name] for name in names if fields.get(name) is not None), None)
    draft = Draft()
    is_sent = response is None or _is_api_content(fields, response)
    draft.add_recorded(response if is_sent else write_result(response))
    call_id = _first(fields, "call_id", "tool_use_id", "tool_call_id", "toolCallId", "id")
    return draft.message(role="tool", tool_call_id=call_id)


def _is_api_content(fields: dict[str, Value], response: Value) -> bool:
    """Whether an answer in the words of an API, whose lists are content parts, has such a list: of any types."""
    entries = values.items(response)
    if not entries or fields.get("type") not in _API_ANSWER:
        return False
    return all("type" in part or blocks.is_block(part) for part in (values.mapping(entry) or {} for entry in entries))


def is_content(value: Value) -> bool:
    """Whether a value is a list of content parts, each of a type that some API documents."""
    entries = values.items(value)
    return bool(entries) and all(_is_content_part(values.mapping(entry) or {}) for entry in entries or ())


def _is_content_part(fields: dict[str, Value]) -> bool:
    return fields.get("type") in _TEXT or parts.is_known(fields) or blocks.is_block(fields)


def _json(value: Value) -> str:
    """Write a value as Python's json does, with `, ` and `: `. Raises ParseError when it cannot be written."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ParseError("", f"cannot be written as JSON ({error})") from None


def _text(fields: dict[str, Value], *names: str) -> str:
    text = next((fields[name] for name in names if fields.get(name) is not None), "")
    if not isinstance(text, str):
        raise ParseError("", "has a text part whose text is no text")
    return text


def _first(fields: dict[str, Value], *names: str) -> str | None:
    return next((text for name in names if (text := values.text(fields.get(name)))), None)
