"""Langfuse's SDK, versions 3 to 5: `langfuse.observation.*`, of its OpenAI wrapper, its LangChain handler, or by hand.

Source of the format: `langfuse/_client/attributes.py`, `langfuse/openai.py` and `langfuse/langchain`. Input and output
are JSON text or one bare text, which may be JSON itself. Invariant: the LangChain handler appends the tools to the
prompt as messages, which are no messages; of n choices of a stream the SDK makes one, which is doubted. Before 4.0.2 it
wrote neither instructions nor tools of the Responses API, but for streams, where the response has them.
"""

import json
from typing import Final

import msgspec

from art_otel.calls import Choice, Message, ToolSet, Usage
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.openai_body import (
    parse_tools,
    read_parameters,
    read_tools,
    read_usage,
    with_extra_body,
)
from art_otel.conventions.bodies.recorded_values import are_items, read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect, Role, ToolAttributes
from art_otel.conventions.facts import UNKNOWN_MESSAGE, CallFacts, merge_facts
from art_otel.conventions.vocabulary import finish_reason
from art_otel.spans import Span, Value

CONVENTION: Final = "langfuse"

_TYPE: Final = "langfuse.observation.type"
_INPUT: Final = "langfuse.observation.input"
_OUTPUT: Final = "langfuse.observation.output"
_MODEL: Final = "langfuse.observation.model.name"
_PARAMETERS: Final = "langfuse.observation.model.parameters"
_USAGE: Final = "langfuse.observation.usage_details"
_STREAM_START: Final = "langfuse.observation.completion_start_time"
_FINISH_REASON: Final = "langfuse.observation.metadata.finish_reason"
_INSTRUCTIONS: Final = "langfuse.observation.metadata.instructions"
_TOOLS: Final = "langfuse.observation.metadata.tools"
_RESPONSE: Final = "langfuse.observation.metadata."
_RESPONSE_FIELDS: Final = ("object", "id", "status", "incomplete_details", "previous_response_id", "conversation")
"""What a stream of the Responses API has of its response in the metadata."""

_CALL_ID: Final = "langfuse.observation.metadata.tool_call_id"
_ROLES: Final[dict[str, Role]] = {
    "generation": "inference",
    "embedding": "embeddings",
    "agent": "agent",
    "tool": "tool",
    "retriever": "retrieval",
}
_OF_LANGCHAIN: Final = "langfuse.observation.metadata.ls_provider"
_UNLIMITED: Final = "Infinity"
_WRAPPINGS: Final = ("output", "message", "response")
_OF_MESSAGES: Final = frozenset({"role", "choices", "generations", "candidates"})
"""Fields of a message or response; in any other object one of `_WRAPPINGS` that is a text is a part of the answer."""

_SAID: Final = ("content", "tool_calls", "function_call", "audio")
_WRITES_INSTRUCTIONS: Final = (4, 0, 2)


def role(span: Span) -> Role | None:
    """The role by the type of the observation."""
    named = values.text(span.attributes.get(_TYPE))
    return None if named is None else _ROLES.get(named.lower(), "other")


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read a generation; None on other spans."""
    if role(recording.span) != "inference":
        return None
    reader = recording.reader()
    request, tools = _request(reader)
    asked = _with_instructions(reader, read_input(reader, _INPUT, request) or CallFacts())
    response, output = _response(reader), _output(reader)
    answered = read_output(reader, _OUTPUT, output if response is None else response) or CallFacts()
    is_old = values.version_numbers(recording.span.scope.version) < _WRITES_INSTRUCTIONS
    if is_old and response is None and are_items(output) and not _has_instructions(asked):
        reader.gap("lossy recorder", "the Responses API without its instructions", field="prompt")
    parameters = with_extra_body(values.mapping(reader.structured(_PARAMETERS)) or {})
    choices = answered.choices
    if (values.integer(parameters.get("n")) or 1) > len(choices or (None,)):
        reader.gap("lossy recorder", "one answer of several", field="answer")
    dialect_facts = CallFacts(
        request_model=reader.text(_MODEL),
        parameters=read_parameters(reader, _PARAMETERS, _limited(parameters)),
        tools=tools,
        choices=_finished(reader, choices),
        usage=_usage(values.mapping(reader.structured(_USAGE)) or {}),
        stream=_is_stream(reader),
    )
    facts = merge_facts(dialect_facts, merge_facts(asked, answered))
    return msgspec.structs.replace(facts, conventions=(CONVENTION,), gaps=reader.gaps)


def _value(reader: AttributeReader, name: str) -> Value:
    """Decode an input or output: text that is no JSON is what was said."""
    decoded = reader.structured(name, may_be_text=True)
    return reader.attributes.get(name) if decoded is None else decoded


def _output(reader: AttributeReader) -> Value:
    """Decode what was answered, unless it is a text: the answer may be JSON itself.

    Of a stream the SDK writes the text, or a message that it makes of the chunks; of anything else what a function gave
    as Python's JSON, where objects and lists that hold bare texts are answers, too. What a backend wrote anew has other
    spaces, so a message is one however it is spelled.
    """
    value, recorded = _value(reader, _OUTPUT), reader.attributes.get(_OUTPUT)
    if not isinstance(recorded, str) or isinstance(value, str):
        return value
    fields, entries = values.mapping(value) or {}, values.items(value) or ()
    if json.dumps(value) != recorded and _OF_MESSAGES.isdisjoint(fields) and not are_items(value):
        return recorded
    if _STREAM_START in reader.attributes:
        return value if _is_message(fields) else recorded
    texts = entries or [fields.get(name) for name in _WRAPPINGS]
    is_text = _OF_MESSAGES.isdisjoint(fields) and any(isinstance(text, str) for text in texts)
    return recorded if is_text else value


def _is_message(fields: dict[str, Value]) -> bool:
    """Whether an object is a message of a model, or LangChain's result."""
    return (fields.get("role") == "assistant" and any(name in fields for name in _SAID)) or "generations" in fields


def _response(reader: AttributeReader) -> dict[str, Value] | None:
    """The response of a stream of the Responses API; None where there is none."""
    body = {name: values.json_value(reader.attributes.get(f"{_RESPONSE}{name}")) for name in _RESPONSE_FIELDS}
    if body["object"] != "response":
        return None
    output = _value(reader, _OUTPUT)
    return {**body, "output": [output] if values.items(output) is None else output}


def _request(reader: AttributeReader) -> tuple[Value, ToolSet | None]:
    """Tell what was asked from the tools that the LangChain handler put behind it."""
    value = _value(reader, _INPUT)
    entries = values.items(value)
    definitions = [tool for entry in entries or () if (tool := _definition(entry)) is not None]
    if entries is None or not definitions:
        return value, None
    tools = reader.parsed(_INPUT, parse_tools, definitions)
    return [entry for entry in entries if _definition(entry) is None], tools


def _with_instructions(reader: AttributeReader, asked: CallFacts) -> CallFacts:
    """Add the instructions and tools of the Responses API, which version 3 has in the metadata only."""
    prompt, instructions = asked.input_messages, values.json_value(reader.attributes.get(_INSTRUCTIONS))
    if not prompt or not isinstance(instructions, str) or prompt[0].content == instructions:
        return asked
    message = Message(role="system", content=instructions)
    facts = msgspec.structs.replace(asked, input_messages=(message, *prompt))
    if facts.tools:
        return facts
    return msgspec.structs.replace(facts, tools=read_tools(reader, _TOOLS, {"tools": reader.structured(_TOOLS)}))


def _has_instructions(asked: CallFacts) -> bool:
    return any(message.role in ("system", "developer") for message in (asked.input_messages or ())[:1])


def _definition(entry: Value) -> Value:
    """The tool that a message defines, which answers no tool call."""
    fields = values.mapping(entry) or {}
    return values.mapping(fields.get("content")) if fields.get("role") == "tool" else None


def _limited(parameters: dict[str, Value]) -> dict[str, Value]:
    """The parameters without what stands for none."""
    return {name: value for name, value in parameters.items() if value != _UNLIMITED}


def _is_stream(reader: AttributeReader) -> bool | None:
    """Whether the answer is a stream's, which may have broken.

    The LangChain handler says no finish reason, and writes an answer only where its stream has ended.
    """
    has_ended = _OF_LANGCHAIN in reader.attributes and _OUTPUT in reader.attributes
    return True if _STREAM_START in reader.attributes and not has_ended else None


def _finished(reader: AttributeReader, choices: tuple[Choice, ...] | None) -> tuple[Choice, ...] | None:
    reason = finish_reason(values.json_value(reader.attributes.get(_FINISH_REASON)))
    if reason is None or choices is None or len(choices) != 1:
        return None
    return (Choice(index=0, message=UNKNOWN_MESSAGE, finish_reason=reason),)


def _usage(counts: dict[str, Value]) -> Usage | None:
    """Read the counts of OpenAI, or Langfuse's own, in which cached and reasoning tokens stand beside the others."""
    if "input" not in counts and "output" not in counts:
        return read_usage(counts)
    numbers = {name: number for name, count in counts.items() if (number := values.integer(count)) is not None}
    asked = [number for name, number in numbers.items() if name == "input" or name.startswith("input_")]
    answered = [number for name, number in numbers.items() if name == "output" or name.startswith("output_")]
    return Usage(
        input_tokens=sum(asked) if asked else None,
        output_tokens=sum(answered) if answered else None,
        total_tokens=numbers.get("total"),
        cached_tokens=numbers.get("input_cache_read", numbers.get("input_cached_tokens")),
        reasoning_tokens=numbers.get("output_reasoning", numbers.get("output_reasoning_tokens")),
    )


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="parsed attributes",
    read=read,
    shown_by=(_TYPE,),
    role=role,
    recorder=_OF_LANGCHAIN,
    prefixes=("langfuse.",),
    tools=ToolAttributes(call_id=_CALL_ID, arguments=_INPUT, result=_OUTPUT),
)
