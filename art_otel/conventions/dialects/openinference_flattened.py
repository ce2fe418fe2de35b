"""OpenInference's messages, flattened below `llm.input_messages` and `llm.output_messages`, as they were sent.

Invariant: a message is written in OpenAI's shape. Its lists (`contents`, `tool_calls`) may share one numbering, as
Google's instrumentors count parts; a list with a hole in it has lost what its instrumentor does not know, which is a
gap, unless what LlamaIndex prints of the message (`ChatMessage`, `ChatResponse.__str__`) shows that only thinking is
missing. What several lists repeat (LiteLLM's `tool_use` contents) is there once.

What frameworks do to messages before the request is done here, too: smolagents (`get_clean_message_list` in its
`models.py`) sends its own roles as the model's and joins neighbors of one role, with a line break since its messages
count tokens; AutoGen's OpenAI client (`_message_transform.py`) sends what is recorded as `developer` as `system`;
answers of tools are recorded as the user's by google-genai's instrumentor before 1.0. A prompt that an older smolagents
joined has a gap, because its versions join differently.
"""

import re
from collections.abc import Callable
from itertools import groupby
from typing import Final

import msgspec

from art_otel.calls import Message
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, numbered, unflatten
from art_otel.conventions.bodies import messages
from art_otel.spans import Value

_TEXTLESS: Final[dict[str, Value]] = {"type": "text"}
"""The fields of a part whose text a collector removed; a part with an empty text still has its text."""

_SAME: Final = ("role", "name", "content", "tool_call_id")


def read_flattened_messages(reader: AttributeReader, scope: str, prefix: str) -> tuple[Message, ...] | None:
    """Read the messages below a prefix; None when there are none, or one cannot be read or is blank."""
    entries = unflatten(reader, prefix)
    written = None if entries is None else [one for entry in entries for one in _openai_messages(reader, entry)]
    parsed = reader.parsed(prefix, messages.parse, written)
    if parsed is None:
        return None
    parsed = messages.with_empty_results(parsed)
    if scope == _SMOLAGENTS and any(message.content for message in parsed):
        parsed = tuple(map(_with_empty_answer, parsed))
    return None if any(message.is_unknown for message in parsed) else parsed


def _with_empty_answer(message: Message) -> Message:
    """A step of which smolagents streamed no text has an empty one; its tool calls are a text of the next message."""
    is_empty = message.role == "assistant" and message.is_unknown
    return msgspec.structs.replace(message, content="") if is_empty else message


def object_in(entry: Value, name: str) -> dict[str, Value]:
    """The object that an entry has below a name; an empty one where there is none."""
    return values.mapping((values.mapping(entry) or {}).get(name)) or {}


def _openai_messages(reader: AttributeReader, entry: Value) -> list[Value]:
    """Write a flattened message in the shape of OpenAI's; AutoGen writes all answers of tools as one `function`."""
    message = object_in(entry, "message")
    fields = values.mapping(entry) or {}
    if "function" in fields:
        return [_tool_answer(reader, answer) for _, answer in numbered(fields["function"])]
    return [_openai_message(reader, message, thought=fields.get("thought"))]


def _tool_answer(reader: AttributeReader, answer: Value) -> Value:
    """Write an answer that AutoGen shows as the JSON of its FunctionExecutionResult."""
    fields = values.mapping(AttributeReader({"answer": answer}).structured("answer")) or {}
    if "content" not in fields:
        reader.gap("lossy recorder", "an answer of a tool without its content")
    return {"role": "tool", "tool_call_id": fields.get("call_id"), "content": fields.get("content")}


def _openai_message(reader: AttributeReader, message: dict[str, Value], *, thought: Value) -> Value:
    contents, tool_calls = numbered(message.get("contents")), numbered(message.get("tool_calls"))
    if _has_hole([at for at, _ in contents], [at for at, _ in tool_calls]):
        reader.gap("lossy recorder", "a list of a message with holes")
    calls = [_tool_call(entry) for _, entry in tool_calls]
    if calls and message.get("role") == "assistant" and message.get("tool_call_id"):
        calls = [{**calls[0], "id": message["tool_call_id"]}, *calls[1:]]  # LiteLLM's Responses: `id` is the item's
        message = {**message, "tool_call_id": None}
    parts = [_part(entry, is_repeated=bool(calls)) for _, entry in contents]
    if _TEXTLESS in parts:
        reader.gap("off", "a text part without its text")
    function_name = message.get("function_call_name")
    return {
        **{name: message[name] for name in _SAME if name in message},
        **({"content": thought} if thought and calls and "content" not in message else {}),
        **({"content": [part for part in parts if part is not None]} if parts else {}),
        **({"tool_calls": list(calls)} if calls else {}),
        **(
            {"function_call": {"name": function_name, "arguments": message.get("function_call_arguments_json")}}
            if function_name
            else {}
        ),
    }


def _tool_call(entry: Value) -> dict[str, Value]:
    """The fields of a tool call. Arguments that are `{}` are left out by instrumentors."""
    call = object_in(entry, "tool_call")
    return {**call, "function": {"arguments": "{}", **object_in(call, "function")}}


def _has_hole(contents: list[int], tool_calls: list[int]) -> bool:
    """Whether a list does not count from 0; both may be counted as one, if the tool calls follow the contents."""
    are_counted_as_one = bool(tool_calls) and tool_calls[0] > 0
    lists = [sorted({*contents, *tool_calls})] if are_counted_as_one else [contents, tool_calls]
    return any(positions != list(range(len(positions))) for positions in lists)


def _part(entry: Value, *, is_repeated: bool) -> Value:
    """Write a content part; None for a tool call that stands among the tool calls, too."""
    part = object_in(entry, "message_content")
    if call := object_in(entry, "tool_call"):
        return None if is_repeated else {**call, "type": "tool_call"}
    image = object_in(part.get("image"), "image")
    return {**part, "image": image} if image else part


_SMOLAGENTS: Final = "openinference.instrumentation.smolagents"
_SMOLAGENTS_ROLES: Final = {"tool-call": "assistant", "tool-response": "user"}
_COUNTS_TOKENS: Final = "token_usage="
"""A field that smolagents prints for each message from 1.17 on."""


def as_sent(scope: str, reader: AttributeReader, prompt: tuple[Message, ...] | None) -> tuple[Message, ...] | None:
    """The prompt as the framework of this scope sends it."""
    rewrite = _FRAMEWORKS.get(scope)
    return prompt if prompt is None or rewrite is None else rewrite(reader, prompt)


def _smolagents(reader: AttributeReader, prompt: tuple[Message, ...]) -> tuple[Message, ...]:
    converted = [
        msgspec.structs.replace(one, role=_SMOLAGENTS_ROLES.get(one.role, one.role), tool_calls=()) for one in prompt
    ]
    sent: list[Message] = []
    joins_texts = _COUNTS_TOKENS in (reader.text("input.value") or "")
    for _, group in groupby(converted, key=lambda message: message.role):
        neighbors = list(group)
        has_parts = any(message.parts is not None for message in neighbors)
        if len(neighbors) > 1 and (has_parts or not joins_texts):
            reader.gap("lossy recorder", "joined messages of one role", field="prompt")
        if has_parts:
            sent += neighbors
        else:
            text = "\n".join(message.content or "" for message in neighbors)
            sent.append(msgspec.structs.replace(neighbors[0], content=text))
    return tuple(sent)


def _autogen(_: AttributeReader, prompt: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(
        msgspec.structs.replace(message, role="system") if message.role == "developer" else message
        for message in prompt
    )


def _google_genai(_: AttributeReader, prompt: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(
        message if message.tool_call_id is None else msgspec.structs.replace(message, role="tool") for message in prompt
    )


_FRAMEWORKS: Final[dict[str, Callable[[AttributeReader, tuple[Message, ...]], tuple[Message, ...]]]] = {
    _SMOLAGENTS: _smolagents,
    "openinference.instrumentation.autogen_agentchat": _autogen,
    "openinference.instrumentation.google_genai": _google_genai,
}


_SCOPE: Final = "openinference.instrumentation.llama_index"
_BLOCK: Final = re.compile(r"\b[A-Z]\w*Block\(block_type='(\w+)'")
_NO_CONTENT: Final = ("thinking", "tool_call")


def lacks_thoughts_only(scope: str, reader: AttributeReader, prefix: str) -> bool:
    """Whether nothing but thoughts is missing in the lists of the messages below a prefix."""
    if scope != _SCOPE:
        return False
    messages = [object_in(entry, "message") for entry in unflatten(reader, prefix) or ()]
    if any([at for at, _ in numbered(one.get("tool_calls"))] != list(range(_count(one))) for one in messages):
        return False
    if "output" in prefix:
        return len(messages) == 1 and _is_printed_whole(reader, messages[0])
    printed = values.items((values.mapping(reader.structured("input.value")) or {}).get("messages")) or []
    return len(printed) == len(messages) and all(map(_shows_its_blocks, messages, printed))


def _count(message: dict[str, Value]) -> int:
    return len(numbered(message.get("tool_calls")))


def _is_printed_whole(reader: AttributeReader, answer: dict[str, Value]) -> bool:
    """Whether the printed answer has no more text, and the answer asks for tools if it ended with calls of them."""
    asks_for_tools = reader.text("llm.finish_reason") == "tool_calls"
    texts = [str(object_in(entry, "message_content").get("text")) for _, entry in numbered(answer.get("contents"))]
    is_same = reader.text("output.value") == f"{answer.get('role')}: {''.join(texts)}"
    return is_same and asks_for_tools == (_count(answer) > 0)


def _shows_its_blocks(message: dict[str, Value], printed: Value) -> bool:
    kinds = _BLOCK.findall(str(printed))
    contents = [at for at, _ in numbered(message.get("contents"))]
    return not contents or contents == [at for at, kind in enumerate(kinds) if kind not in _NO_CONTENT]
