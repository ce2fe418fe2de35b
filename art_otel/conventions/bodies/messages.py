"""Messages: recorded messages in any dialect -> Message records.

Text, reasoning, refusal, tool calls and answers to them are told apart by their part types, never by their position, so
that one completion is equal whoever recorded it. Read are OpenAI's chat messages and Responses items, GenAI's messages
with `parts` (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-input-messages.json), Anthropic's content
blocks, those of `parts`, and pydantic-ai's first parts, whose type is a `kind`.

Invariant: a list is read whole or not at all (ParseError), because a prompt with a hole in it would teach the wrong
thing. A prompt that begins with an earlier one shares its messages, and each message's JSON is parsed once. A plain
message (one text, tool calls, or texts of tools), as most are, is decoded in one step to what reading it in full gives.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Annotated, Final, TypeAlias, cast

import msgspec
from msgspec import Meta

from art_otel.calls import Message, ToolCall, canonical_arguments
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies import parts
from art_otel.conventions.prefix_cache import PrefixCache
from art_otel.errors import ParseError
from art_otel.spans import Value

ROLES: Final = {"human": "user", "ai": "assistant", "model": "assistant"}
_PLAIN_FIELDS: Final = frozenset({"role", "parts", "content", "finish_reason"})
_MAX_PARTS: Final = 1 << 16
"""Of one message, far more than any has; each takes many times its bytes."""

_TEXT: Final = frozenset({"text", "input_text", "output_text"})
_REASONING: Final = frozenset({"reasoning", "thinking", "reasoning_text", "summary_text"})
_TOOL_CALL: Final = frozenset({"tool_call", "tool_use", "function_call", "custom_tool_call", "tool-call"})
SPOKEN_TYPES: Final[frozenset[Value]] = _TEXT | _REASONING | {"refusal"}
"""The types of parts that are text of their message."""
_API_ANSWER: Final = frozenset({"tool_result", "function_call_output", "custom_tool_call_output"})
_ANSWER: Final = frozenset({"tool_call_response", "tool-result"}) | _API_ANSWER
"""Answers of tools: in GenAI's and Vercel's words their results are values of the tool's own."""

_RESULTS: Final = ("response", "result", "output", "content")


ResultWriter: TypeAlias = Callable[[Value], Value]
"""Writes what a tool gave as it was sent: a text, or a list of content parts."""


def sent_result(result: Value) -> Value:
    """Write the result of a tool as clients send it: text and content parts as they are, else as Python's JSON."""
    return result if isinstance(result, str) or is_content(result) else values.spaced_json(result)


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
    spelled = "" if arguments is None else arguments if isinstance(arguments, str) else values.spaced_json(arguments)
    name = _first(function, "name", "toolName") or ""
    return ToolCall(
        id=_first(fields, "call_id", "id", "toolCallId"),
        name=name_in({"name": fields.get("namespace")}, {"name": name}),
        arguments=spelled,
        exact=exact,
    )


def name_in(namespace: dict[str, Value], function: dict[str, Value]) -> str:
    """The name by which a model calls a function of a namespace of the Responses API, as vLLM writes it."""
    outer, name = values.text(namespace.get("name")), values.text(function.get("name")) or ""
    return f"{outer}__{name}" if outer else name


def _is_same_call(call: ToolCall, other: ToolCall) -> bool:
    """Whether two calls of one id are one. Botocore leaves arguments out that are `{}`."""
    return call.name == other.name and canonical_arguments(call.arguments) == canonical_arguments(other.arguments)


SERVER_RUNS: Final = "providerExecuted"

_BY_SERVER: Final = (SERVER_RUNS, "builtin")
"""Flags of a tool call, or of its answer, that the server ran the tool: the AI SDK's and pydantic-ai's."""


def _is_of_server(fields: dict[str, Value]) -> bool:
    """Whether a tool call, or the answer to one, is of a tool that the server ran."""
    return any(fields.get(name) is True for name in _BY_SERVER)


def _of_server(fields: dict[str, Value], kind: str) -> dict[str, Value]:
    """Write the call of a tool that the server ran, or its answer, as a part. Raises ParseError when it is too deep."""
    call = tool_call(fields)
    result = next((fields[name] for name in _RESULTS if fields.get(name) is not None), None)
    said: dict[str, Value] = {"response": result} if kind.endswith("response") else {"arguments": call.arguments}
    return parts.canonical({"type": kind, "id": call.id, "name": call.name, **said})


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
    is_parts = whole and all("type" in entry or parts.is_block(entry) for entry in entries)
    return decoded if is_parts else content


def with_empty_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Give an answer to a tool call that has no content an empty one, where other messages have theirs.

    Recorders that leave an empty content out write it like that (a shell command without output). Where nothing has
    content, it was not recorded.
    """
    if not any(message.content for message in messages):
        return tuple(messages)
    return tuple(
        msgspec.structs.replace(message, content="")
        if message.role == "tool" and message.tool_call_id is not None and message.is_unknown
        else message
        for message in messages
    )


MAY_BE_PARTS: Final = "a tool's answer that is JSON of content parts, or was parts"
"""Evidence of a gap: recorders that write lists as JSON write a text that is JSON alike."""

_LANGCHAIN_ID: Final = "lc_"


def are_of_langchain(content: Value) -> bool:
    """Whether these parts are LangChain's own, by their ids: its tools of MCP give such parts, and no tool a text."""
    ids = [values.text((values.mapping(part) or {}).get("id")) for part in values.items(content) or ()]
    return bool(ids) and all(identifier is not None and identifier.startswith(_LANGCHAIN_ID) for identifier in ids)


def join_messages(messages: Sequence[Message]) -> Message:
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


def join_chunks(chunks: Sequence[Message]) -> Message:
    """Join the chunks of a streamed answer: its text and its reasoning go on where the chunk before ended."""
    joined = join_messages(chunks)
    is_text = all(chunk.parts is None for chunk in chunks)
    reasoning = "".join(chunk.reasoning or "" for chunk in chunks) or None
    return msgspec.structs.replace(joined, reasoning=reasoning, parts=None if is_text else joined.parts)


_BESIDE_CONTENT: Final = frozenset(
    {"reasoning_content", "reasoning", "thinking", "refusal", "tool_calls", "function_call", "audio"}
)


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
            self._add_tool_call(fields)
        elif kind in _ANSWER:
            self._add_answer(fields)
        elif (block := parts.typed_block(fields)) is not None:
            self.add(block)
        else:
            self.parts.append(parts.canonical(fields))

    def add_fields(self, fields: dict[str, Value]) -> None:
        """Add the fields that OpenAI's chat messages have beside `content`."""
        if _BESIDE_CONTENT.isdisjoint(fields):
            return
        if reasoning := fields.get("reasoning_content") or fields.get("reasoning") or fields.get("thinking"):
            self.reasoning += reasoning_texts(reasoning)
        if refusal := values.text(fields.get("refusal")):
            self.refusals.append(refusal)
        for call in values.items(fields.get("tool_calls")) or ():
            entry = values.mapping(call)
            if entry is None:
                raise ParseError("", "has a tool call that is no object")
            self._add_tool_call(entry)
        if function_call := values.mapping(fields.get("function_call")):
            self._add_tool_call(function_call)
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

    def _add_tool_call(self, fields: dict[str, Value]) -> None:
        """Add a tool call, which some recorders (LangChain, botocore) write in the content as well, under one id.

        One of a tool that the server runs is a part, as the APIs write it.
        """
        if _is_of_server(fields):
            self.parts.append(_of_server(fields, "server_tool_call"))
            return
        call = tool_call(fields)
        for index, other in enumerate(self.tool_calls):
            if other.id is not None and other.id == call.id and _is_same_call(call, other):
                self.tool_calls[index] = call if call.exact or not other.arguments else other
                return
        self.tool_calls.append(call)

    def _add_answer(self, fields: dict[str, Value]) -> None:
        if _is_of_server(fields):
            self.parts.append(_of_server(fields, "server_tool_call_response"))
        else:
            self.answers.append(_answer(fields, self._write_result))

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
    response = next((fields[name] for name in _RESULTS if fields.get(name) is not None), None)
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
    return all("type" in part or parts.is_block(part) for part in (values.mapping(entry) or {} for entry in entries))


def is_content(value: Value) -> bool:
    """Whether a value is a list of content parts, each of a type that some API documents."""
    entries = values.items(value)
    return bool(entries) and all(_is_content_part(values.mapping(entry) or {}) for entry in entries or ())


def _is_content_part(fields: dict[str, Value]) -> bool:
    return fields.get("type") in _TEXT or parts.is_known(fields) or parts.is_block(fields)


def _text(fields: dict[str, Value], *names: str) -> str:
    text = next((fields[name] for name in names if fields.get(name) is not None), "")
    if not isinstance(text, str):
        raise ParseError("", "has a text part whose text is no text")
    return text


def _first(fields: dict[str, Value], *names: str) -> str | None:
    return next((text for name in names if (text := values.text(fields.get(name)))), None)


class _TextPart(msgspec.Struct, tag="text", forbid_unknown_fields=True, gc=False):
    content: str


class _ToolCallPart(msgspec.Struct, tag="tool_call", forbid_unknown_fields=True):
    name: str | None = None
    id: str | None = None
    arguments: Value = None


class _AnswerPart(msgspec.Struct, tag="tool_call_response", forbid_unknown_fields=True, gc=False):
    response: str
    id: str | None = None


class PlainMessage(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a plain message in JSON: most messages of GenAI and of Chat Completions are one."""

    role: Annotated[str, Meta(min_length=1)]
    parts: Annotated[tuple[_TextPart | _ToolCallPart | _AnswerPart, ...], Meta(max_length=_MAX_PARTS)] | None = None
    content: str | None = None
    finish_reason: Value = None

    def messages(self, write_result: ResultWriter) -> tuple[Message, ...] | None:
        """What `messages_of` makes of it; None where that takes more than is read here."""
        role = ROLES.get(self.role, self.role)
        if not self.parts:
            return None if self.content is None else (Message(role=role, content=self.content),)
        text: str | None = None
        calls: list[ToolCall] = []
        answers: list[Message] = []
        for part in self.parts:
            if isinstance(part, _TextPart):
                if text is not None:
                    return None
                text = part.content
            elif isinstance(part, _ToolCallPart):
                value = part.arguments
                exact = isinstance(value, str)
                arguments = "" if value is None else value if isinstance(value, str) else values.spaced_json(value)
                calls.append(ToolCall(id=part.id or None, name=part.name or "", arguments=arguments, exact=exact))
            else:
                sent = write_result(part.response)
                if not isinstance(sent, str):
                    return None
                answers.append(Message(role="tool", content=sent, tool_call_id=part.id or None))
        if answers:
            return tuple(answers) if text is None and not calls else None
        if len(calls) > 1 and len({call.id for call in calls}) < len(calls):  # it may say one call twice
            return None
        return (Message(role=role, content=None if calls and not text else text, tool_calls=tuple(calls)),)


_LIST: Final = msgspec.json.Decoder(tuple[PlainMessage, ...])
_ONE: Final = msgspec.json.Decoder(PlainMessage)


def decode_plain(
    json_text: str, write_result: ResultWriter = sent_result
) -> list[tuple[tuple[Message, ...], Value]] | None:
    """Decode a JSON list of plain messages and their finish reasons; None for anything else."""
    decoded: list[tuple[tuple[Message, ...], Value]] = []
    try:
        for plain in _LIST.decode(json_text):
            messages = plain.messages(write_result)
            if messages is None:
                return None
            decoded.append((messages, plain.finish_reason))
    except (ValueError, RecursionError, ParseError):
        return None
    return decoded


def plain_messages(json_text: str, write_result: ResultWriter = sent_result) -> tuple[Message, ...] | None:
    """Decode a JSON list of plain messages; None for anything else, and for an empty list."""
    decoded = decode_plain(json_text, write_result)
    return tuple([message for messages, _ in decoded for message in messages]) if decoded else None


REMEMBERED: Final = 4096
REMEMBERED_BYTES: Final = 16_384
"""Longer messages are parsed anew: they are few, and remembering them would hold too much memory."""

_RAW_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_BLANKS: Final = " \t\r\n"
_LISTS: Final[defaultdict[ResultWriter, PrefixCache[str, tuple[Message, ...]]]] = defaultdict(
    lambda: PrefixCache(str.startswith)
)
"""Parsed JSON lists, without their closing bracket, by how the results of tools in them were written."""


def read_messages(
    reader: AttributeReader, name: str, write_result: ResultWriter = sent_result
) -> tuple[Message, ...] | None:
    """Read the message list that attribute `name` holds; None for other JSON, which does not count as cut."""
    value = reader.attributes.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            parsed = from_json(value, write_result)
            if parsed is not None:
                return parsed
            value = reader.structured(name)
        return parse(value, write_result)
    except ParseError:
        return None


def parse(value: Value, write_result: ResultWriter = sent_result) -> tuple[Message, ...]:
    """Parse a list of messages. Raises ParseError when it is no list, or one entry is no message."""
    entries = values.items(value)
    if entries is None:
        raise ParseError("", "is no list of messages")
    return tuple(chain.from_iterable(messages_of(entry, write_result=write_result) for entry in entries))


def from_json(json_text: str, write_result: ResultWriter = sent_result) -> tuple[Message, ...] | None:
    """Parse the JSON text of a list of messages; None when msgspec refuses it. Raises ParseError as `parse` does."""
    lists = _LISTS[write_result]
    earlier = lists.find(json_text)
    messages = None
    if earlier is not None:
        rest = json_text[earlier.length :].lstrip(_BLANKS)
        if rest == "]":
            return earlier.value
        added = _parse_rest(rest, write_result)
        messages = earlier.value + added if added else None
    if messages is None:
        messages, earlier = _parse_list(json_text, write_result), None
    if messages and json_text.endswith("]"):
        lists.keep(json_text, messages, end=len(json_text) - 1, earlier=earlier)
    return messages


def _parse_rest(rest: str, write_result: ResultWriter) -> tuple[Message, ...] | None:
    """Parse the rest of a JSON list, which begins behind one of its entries."""
    if not rest.startswith(","):
        return None
    added = f"[{rest[1:]}"
    return plain_messages(added, write_result) or _parse_list(added, write_result)


def _parse_list(json_text: str, write_result: ResultWriter) -> tuple[Message, ...] | None:
    try:
        entries = _RAW_LIST.decode(json_text)
        return tuple(chain.from_iterable(_message(bytes(entry), write_result) for entry in entries))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _message(json_text: bytes, write_result: ResultWriter) -> tuple[Message, ...]:
    parse_one = _remembered if len(json_text) <= REMEMBERED_BYTES else _parsed
    return parse_one(json_text, write_result)


def _parsed(json_text: bytes, write_result: ResultWriter) -> tuple[Message, ...]:
    try:
        plain = _ONE.decode(json_text).messages(write_result)
    except (ValueError, RecursionError):
        plain = None
    return messages_of(msgspec.json.decode(json_text), write_result=write_result) if plain is None else plain


_remembered = lru_cache(maxsize=REMEMBERED)(_parsed)


def join_assistant_messages(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Join adjacent assistant messages: together they were sampled, where an API records each item as a message."""
    done: list[Message] = []
    for is_sampled, adjacent in groupby(messages, key=_is_assistant):
        run = list(adjacent)
        done += [join_messages(run)] if is_sampled else run
    return tuple(done)


def _is_assistant(message: Message) -> bool:
    return message.role == "assistant"


def with_instructions(
    instructions: tuple[Message, ...], messages: tuple[Message, ...] | None
) -> tuple[Message, ...] | None:
    """Put system instructions before a prompt, unless it starts with them already."""
    if messages is None or messages[: len(instructions)] == instructions:
        return messages
    return instructions + messages
