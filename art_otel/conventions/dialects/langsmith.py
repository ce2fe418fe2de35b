"""LangSmith's OpenTelemetry export: the inputs and outputs of a run, each one JSON, beside GenAI's attributes.

Source of the format: `langsmith/_internal/otel/_otel_exporter.py`. `gen_ai.prompt` and `gen_ai.completion` are what the
run got and gave: LangChain's messages and results, bodies of wrapped clients, or what a function was called with.
Invariant: these names are also the prefixes of OpenLLMetry's, which are others.
"""

from typing import Final

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.recorded_values import read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.facts import CallFacts, recorded_facts
from art_otel.spans import Value

CONVENTION: Final = "langsmith"

_KIND: Final = "langsmith.span.kind"
_PROMPT: Final = "gen_ai.prompt"
_COMPLETION: Final = "gen_ai.completion"


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read what the run got and gave; None when it is no request or response."""
    if _PROMPT not in recording.families and _COMPLETION not in recording.families:
        return None
    reader = recording.reader()
    asked = read_input(reader, _PROMPT, _value(reader, _PROMPT))
    answered = read_output(reader, _COMPLETION, _value(reader, _COMPLETION))
    return recorded_facts(CONVENTION, reader, asked, answered)


def _value(reader: AttributeReader, name: str) -> Value:
    """Decode an object; the tools of LangChain's prompts are where GenAI has them."""
    return values.mapping(reader.structured(name))


DIALECT: Final = Dialect(
    convention=CONVENTION, known="parsed attributes", read=read, shown_by=(_KIND,), prefixes=("langsmith.",)
)
