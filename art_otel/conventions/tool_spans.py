"""Tool spans: what was recorded of one execution of a tool.

Read are GenAI's `execute_tool` spans (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-agent-spans/), and the
tool spans of OpenInference, OpenLLMetry and older pydantic-ai. Invariant: nothing here raises; the first name with a
value wins; JSON text becomes its value, other text stays text, and what nobody recorded is None.
"""

from typing import Final

import msgspec

from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.dialects import openinference
from art_otel.spans import Span, Value

_NAMES: Final = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name")
_CALL_IDS: Final = ("gen_ai.tool.call.id", "tool_call.id", "tool.id")
_ARGUMENTS: Final = (
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "tool_call.function.arguments",
    openinference.INPUT_VALUE,
    "traceloop.entity.input",
)
_RESULTS: Final = ("gen_ai.tool.call.result", "tool_response", openinference.OUTPUT_VALUE, "traceloop.entity.output")
_SPAN_NAME_PREFIX: Final = "execute_tool "
_WRAPPERS: Final = ("inputs", "outputs")
"""OpenLLMetry wraps what a tool was given and gave in an object with one of these keys."""


class ToolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a tool. `arguments` and `result` are JSON values or text, None when unknown."""

    name: str
    call_id: str | None = None
    arguments: Value = None
    result: Value = None


def tool_facts(span: Span) -> ToolFacts:
    """Read the span of a tool. Its name is the span's where no attribute has it."""
    reader = AttributeReader(span.attributes)
    return ToolFacts(
        name=reader.text(*_NAMES) or span.name.removeprefix(_SPAN_NAME_PREFIX),
        call_id=reader.text(*_CALL_IDS),
        arguments=_first_value(reader, _ARGUMENTS),
        result=_first_value(reader, _RESULTS),
    )


def _first_value(reader: AttributeReader, names: tuple[str, ...]) -> Value:
    for name in names:
        if reader.attributes.get(name) is not None:
            value = reader.json_safe(name)
            return _unwrapped(value) if name.startswith("traceloop.") else value
    return None


def _unwrapped(value: Value) -> Value:
    fields = values.mapping(value) or {}
    return next((fields[key] for key in _WRAPPERS if key in fields), value)
