"""Mastra: what its exporter writes on the spans of steps (`mastra.*`), which wrap the request to the model.

Source of the format: `@mastra/otel-exporter` (`gen-ai-semantics.ts`). A step has the prompt for display and the body of
the response; the request's own span, below it, has the text of the answer only. Invariant: a prompt for display names
tool calls and results as `[tool: …]` and `[tool-result: …]` and loses what they said; then the prompt is unknown. Of
older versions the call is a whole run, whose text is that of all its steps: it is doubted.
"""

from typing import Final

import msgspec

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.recorded_values import read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect, Role
from art_otel.conventions.facts import CallFacts, merge_facts, with_gap
from art_otel.spans import Span, Value

CONVENTION: Final = "mastra"

SPAN_TYPE: Final = "mastra.span.type"
_STEP: Final = "model_step"
_RUN: Final = "model_generation"
_STEP_INPUT: Final = "mastra.model_step.input"
_STEP_OUTPUT: Final = "mastra.model_step.output"
_BODY: Final = "mastra.metadata.body"
_MODEL: Final = "mastra.metadata.modelMetadata"
_OPERATION: Final = "gen_ai.operation.name"
_CHAT: Final = "chat"
_LOST: Final = ("[tool: ", "[tool-result: ")


def role(span: Span) -> Role | None:
    """A step that has a prompt is the call; the role of other spans is the operation's."""
    is_step = span.attributes.get(SPAN_TYPE) == _STEP
    return "inference" if is_step and _STEP_INPUT in span.attributes else None


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read a step, or say that a run of several steps is none; None on other spans."""
    reader = recording.reader()
    kind = reader.text(SPAN_TYPE)
    if kind == _RUN and reader.text(_OPERATION) == _CHAT:
        return with_gap(CallFacts(conventions=(CONVENTION,)), "lossy recorder", "a run of several steps")
    if kind != _STEP:
        return None
    asked = _prompt(reader) or CallFacts()
    response = values.mapping(reader.structured(_BODY))
    answered = None if response is None else read_output(reader, _BODY, response)
    if answered is None or answered.choices is None:
        answered = _shown(reader)
    model = values.mapping(reader.structured(_MODEL)) or {}
    dialect_facts = CallFacts(
        operation_name="chat",
        provider=values.text(model.get("modelProvider")),
        request_model=values.text(model.get("modelId")),
    )
    facts = merge_facts(dialect_facts, merge_facts(msgspec.structs.replace(asked, tools=None), answered or CallFacts()))
    return msgspec.structs.replace(facts, conventions=(CONVENTION,), gaps=reader.gaps)


def _prompt(reader: AttributeReader) -> CallFacts | None:
    recorded = reader.structured(_STEP_INPUT)
    if any(_is_lossy(values.mapping(entry) or {}) for entry in values.items(recorded) or ()):
        reader.gap("lossy recorder", _STEP_INPUT, field="prompt")
        return None
    return read_input(reader, _STEP_INPUT, recorded)


def _is_lossy(message: dict[str, Value]) -> bool:
    content = values.text(message.get("content")) or ""
    return message.get("role") in ("assistant", "tool") and any(mark in content for mark in _LOST)


def _shown(reader: AttributeReader) -> CallFacts | None:
    """Read the answer as it is displayed, where the response has another body than those known."""
    shown = values.mapping(reader.structured(_STEP_OUTPUT))
    if shown is None:
        return None
    message = {"role": "assistant", "content": shown.get("text"), "tool_calls": shown.get("toolCalls")}
    return read_output(reader, _STEP_OUTPUT, message)


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="parsed attributes",
    read=read,
    shown_by=(SPAN_TYPE,),
    role=role,
    recorder=SPAN_TYPE,
    prefixes=("mastra.",),
    content=(_BODY,),
)
