"""Pipecat (voice agents): the messages and the text of a call, in attributes of one word.

Source of the format: `pipecat/utils/tracing/service_decorators.py`. `input` and `tools` are JSON, `output` is the text
that was spoken. Invariant: the tool calls of an answer are not written, so an answer that could have had some is
doubted. Nobody says how a stream finished: its tokens are counted at its end, and a call without a count was
interrupted.
"""

from typing import Final

from art_otel.conventions.attributes import SpanRecording
from art_otel.conventions.bodies.messages import with_instructions
from art_otel.conventions.bodies.openai_body import parse_tools, system_messages
from art_otel.conventions.bodies.recorded_values import read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.facts import CallFacts, recorded_facts

CONVENTION: Final = "pipecat"

_SCOPE: Final = "pipecat"
_STREAM: Final = "stream"
_INPUT: Final = "input"
_OUTPUT: Final = "output"
_TOOLS: Final = "tools"
_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_COUNT: Final = "gen_ai.usage.output_tokens"


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read a call to a model; None on other spans."""
    if recording.span.scope.name != _SCOPE:
        return None
    reader = recording.reader()
    asked = read_input(reader, _INPUT, reader.json_safe(_INPUT)) or CallFacts()
    prompt = with_instructions(system_messages(reader.text(_INSTRUCTIONS)), asked.input_messages)
    tools = reader.parsed(_TOOLS, parse_tools, reader.structured(_TOOLS)) if _TOOLS in reader.attributes else ()
    if tools:
        reader.gap("lossy recorder", f"{_OUTPUT}: the text without tool calls", field="answer")
    dialect_facts = CallFacts(
        input_messages=prompt, tools=tools, stream=None if _COUNT in reader.attributes else reader.flag(_STREAM)
    )
    return recorded_facts(CONVENTION, reader, dialect_facts, read_output(reader, _OUTPUT, reader.text(_OUTPUT)))


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="parsed attributes",
    read=read,
    shown_by=(_STREAM,),
    content=(_INPUT, _OUTPUT, _TOOLS, "transcript", "text"),
)
