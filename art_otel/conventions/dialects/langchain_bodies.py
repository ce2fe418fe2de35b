"""LangChain under OpenInference: `input.value` and `output.value` in LangChain's own serialization.

https://github.com/Arize-ai/openinference (`openinference-instrumentation-langchain`). Invariant: they are the messages
and the result as LangChain had them; the flattened `llm.*` attributes repeat them with losses (reasoning, parts that
are no text, text behind a reasoning part), so they are read only where these are not.
"""

from typing import Final

import msgspec

from art_otel.calls import Choice
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.finish import finish_reason
from art_otel.conventions.clients.recorded_values import read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.dialects.openinference import INPUT_VALUE, OUTPUT_VALUE
from art_otel.conventions.facts import UNKNOWN_MESSAGE, CallFacts, merge_facts
from art_otel.conventions.recording import Recording
from art_otel.spans import Value

CONVENTION: Final = "openinference.langchain"

_FINISH_REASON: Final = "llm.finish_reason"
_MESSAGE: Final = '"lc":'
_RESULT: Final = '"generations":'


def matches(names: AttributeNames) -> bool:
    """Whether a span with these attributes may have such bodies."""
    return INPUT_VALUE in names or OUTPUT_VALUE in names


def read(recording: Recording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the messages and the result; None where they are not LangChain's."""
    reader = recording.reader()
    prompt = _body(reader, INPUT_VALUE, _MESSAGE) if trusted_facts.input_messages is None else None
    result = _body(reader, OUTPUT_VALUE, _RESULT) if trusted_facts.choices is None else None
    asked = None if prompt is None else read_input(reader, INPUT_VALUE, {"messages": prompt.get("messages")})
    answered = None if result is None else read_output(reader, OUTPUT_VALUE, result)
    if asked is None and answered is None:
        return None
    prompt_facts = CallFacts() if asked is None else CallFacts(input_messages=asked.input_messages)
    facts = merge_facts(prompt_facts, answered or CallFacts())
    reason = finish_reason(reader.text(_FINISH_REASON))
    if reason is not None and facts.choices is not None:
        finished = CallFacts(choices=(Choice(index=0, message=UNKNOWN_MESSAGE, finish_reason=reason),))
        facts = merge_facts(facts, finished)
    return msgspec.structs.replace(facts, conventions=(CONVENTION,), gaps=reader.gaps)


def _body(reader: AttributeReader, name: str, mark: str) -> dict[str, Value] | None:
    """Decode a body that has a mark of LangChain's; the decoding costs more than to look for it."""
    recorded = reader.text(name)
    return values.mapping(reader.structured(name)) if recorded is not None and mark in recorded else None


DIALECT: Final = Dialect(convention=CONVENTION, known="parsed attributes", read=read, matches=matches)
