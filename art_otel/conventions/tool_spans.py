"""Tool spans: what was recorded of one execution of a tool.

Read are GenAI's `execute_tool` spans (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-agent-spans/), and the
tool spans of OpenInference, OpenLLMetry, LangSmith, Google's ADK 1 and older pydantic-ai. Invariant: nothing here
raises; the first attribute with a value wins; JSON text becomes its value, other text stays text, and what nobody
recorded is None.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.dialects import DIALECTS, openinference
from art_otel.conventions.dialects.dialect import ToolAttributes
from art_otel.spans import Span, Value

TOOL_NAME: Final = "gen_ai.tool.name"


def _of_dialects(attribute: Callable[[ToolAttributes], str | None]) -> tuple[str, ...]:
    tools = (attribute(dialect.tools) for dialect in DIALECTS if dialect.tools is not None)
    return tuple(name for name in tools if name is not None)


_NAMES: Final = (TOOL_NAME, "tool.name", "traceloop.entity.name", *_of_dialects(lambda tools: tools.name))
_CALL_IDS: Final = (
    "gen_ai.tool.call.id",
    "tool.call_id",
    "tool_call.id",
    "tool.id",
    *_of_dialects(lambda tools: tools.call_id),
)
_ARGUMENTS: Final = (
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "gcp.vertex.agent.tool_call_args",
    "tool_call.function.arguments",
    openinference.INPUT_VALUE,
    "traceloop.entity.input",
    "gen_ai.prompt",
    *_of_dialects(lambda tools: tools.arguments),
)
_LANGSMITH_RESULT: Final = "gen_ai.completion"
_RESULTS: Final = (
    "gen_ai.tool.call.result",
    "tool_response",
    "gcp.vertex.agent.tool_response",
    openinference.OUTPUT_VALUE,
    "traceloop.entity.output",
    _LANGSMITH_RESULT,
    *_of_dialects(lambda tools: tools.result),
)
_SPAN_NAME_PREFIX: Final = "execute_tool "
_PYTHON_ARGUMENTS: Final = frozenset({"args", "kwargs", "sanitize_inputs_outputs"})
"""What OpenLLMetry, LlamaIndex and smolagents write of the call of a Python function."""


def execution_name(name: str) -> str:
    """The name of the span of one execution."""
    return f"{_SPAN_NAME_PREFIX}{name}"


def execution_attributes(name: str, arguments: str | None) -> dict[str, str]:
    """Return the attributes with which an execution begins. `arguments` is JSON text, None where they are unknown."""
    argument_attributes = {} if arguments is None else {_ARGUMENTS[0]: arguments}
    return {
        "gen_ai.operation.name": "execute_tool",
        TOOL_NAME: name,
        "gen_ai.tool.type": "function",
        **argument_attributes,
    }


def result_attributes(result: str | bool | int | float) -> dict[str, str | bool | int | float]:  # noqa: FBT001, PYI041 # what a tool returned
    """The attributes with which an execution ends well. `result` is text, a number, or JSON text of another value."""
    return {_RESULTS[0]: result}


class ToolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a tool. `arguments` and `result` are JSON values or text, None when unknown."""

    name: str
    call_id: str | None = None
    arguments: Value = None
    result: Value = None


def tool_facts(span: Span) -> ToolFacts:
    """Read the span of a tool. Its name is the span's where no attribute has it."""
    reader = AttributeReader(span.attributes)
    _, arguments = _first_value(reader, _ARGUMENTS)
    name, result = _first_value(reader, _RESULTS)
    result = _unwrap_result(result, is_langsmith=name == _LANGSMITH_RESULT)
    message = _langchain_message(result)
    return ToolFacts(
        name=reader.text(*_NAMES) or span.name.removeprefix(_SPAN_NAME_PREFIX),
        call_id=reader.text(*_CALL_IDS) or values.text(message.get("tool_call_id")),
        arguments=_unwrap_arguments(arguments),
        result=message.get("content", result),
    )


def _first_value(reader: AttributeReader, names: tuple[str, ...]) -> tuple[str | None, Value]:
    for name in names:
        recorded = reader.attributes.get(name)
        if recorded is not None:
            decoded = reader.structured(name, may_be_text=True)
            return name, reader.make_safe(name, recorded if decoded is None else decoded)
    return None, None


def _unwrap_arguments(value: Value) -> Value:
    """Take arguments out of the object that an instrumentor of a framework wraps them in."""
    fields = values.mapping(value) or {}
    if "input_str" in fields and "inputs" in fields:  # OpenLLMetry of LangChain
        return fields["inputs"]
    if "kwargs" in fields and fields.keys() <= _PYTHON_ARGUMENTS and not fields.get("args"):
        return fields["kwargs"]
    return value


def _unwrap_result(value: Value, *, is_langsmith: bool) -> Value:
    """Take a result out of the object that an instrumentor of a framework wraps it in."""
    fields = values.mapping(value) or {}
    if "output" in fields and (is_langsmith or fields.keys() == {"output", "kwargs"}):  # OpenLLMetry of LangChain
        return fields["output"]
    if "raw_input" in fields and "raw_output" in fields:  # LlamaIndex
        return fields["raw_output"]
    return value


def _langchain_message(value: Value) -> Mapping[str, Value]:
    """The fields of a ToolMessage of LangChain, in each of its serializations; empty for any other value."""
    fields = values.mapping(value) or {}
    if fields.get("lc") is not None:
        fields = values.mapping(fields.get("kwargs")) or {}
    elif fields.keys() == {"type", "data"}:
        fields = values.mapping(fields["data"]) or {}
    return fields if fields.get("type") == "tool" and "content" in fields and "tool_call_id" in fields else {}
