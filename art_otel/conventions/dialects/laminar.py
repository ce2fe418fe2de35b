"""Laminar (`lmnr`): the type of its spans, and what an app's own function of the type `LLM` got and gave.

Source of the format: `lmnr/opentelemetry_lib/tracing/attributes.py` and `lmnr/sdk/laminar.py`. Its instrumentors write
GenAI's messages, which `genai` reads, on spans that name no operation. `lmnr.span.input` and `lmnr.span.output` are
JSON always: a text stands in quotation marks, whatever it says.
"""

from typing import Final

from art_otel.conventions import values
from art_otel.conventions.attributes import SpanRecording
from art_otel.conventions.bodies.recorded_values import read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect, Role, ToolAttributes
from art_otel.conventions.facts import CallFacts, recorded_facts
from art_otel.spans import Span, Value

CONVENTION: Final = "laminar"

_TYPE: Final = "lmnr.span.type"
_INPUT: Final = "lmnr.span.input"
_OUTPUT: Final = "lmnr.span.output"
_ROLES: Final[dict[Value, Role]] = {"LLM": "inference", "TOOL": "tool"}


def role(span: Span) -> Role | None:
    """The role by the type; the others say nothing."""
    return _ROLES.get(values.text(span.attributes.get(_TYPE)))


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read what a function got and gave; None where it is no request or response."""
    reader = recording.reader()
    asked = read_input(reader, _INPUT, reader.decoded(_INPUT))
    return recorded_facts(CONVENTION, reader, asked, read_output(reader, _OUTPUT, reader.decoded(_OUTPUT)))


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="parsed attributes",
    read=read,
    shown_by=(_TYPE,),
    role=role,
    recorder="lmnr.span.instrumentation_scope.name",
    prefixes=("lmnr.",),
    tools=ToolAttributes(arguments=_INPUT, result=_OUTPUT),
)
