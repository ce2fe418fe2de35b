"""OpenInference's messages, flattened below `llm.input_messages` and `llm.output_messages`.

Invariant: a message is written in OpenAI's shape. Its lists (`contents`, `tool_calls`) may share one numbering, as
Google's instrumentors count parts; a list with a hole in it has lost what its instrumentor does not know, which is a
doubt. What several lists repeat (LiteLLM's `tool_use` contents) is there once.
"""

from typing import Final

from art_otel.calls import Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.attributes.unflatten import numbered, unflatten
from art_otel.conventions.bodies import messages
from art_otel.conventions.bodies.message import is_blank
from art_otel.errors import ParseError
from art_otel.spans import Value

_SAME: Final = ("role", "name", "content", "tool_call_id")


def read_flattened_messages(reader: AttributeReader, prefix: str) -> tuple[Message, ...] | None:
    """Read the messages below a prefix; None when there are none, or one cannot be read or is blank."""
    entries = unflatten(reader, prefix)
    if entries is None:
        return None
    try:
        parsed = messages.parse([one for entry in entries for one in _openai_messages(reader, entry)])
    except ParseError:
        reader.mark_invalid(prefix)
        return None
    return None if any(map(is_blank, parsed)) else parsed


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
    parts = [_part(entry, is_repeated=bool(calls)) for _, entry in contents]
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
