"""Agent instructions: the system prompt that a framework records on the agent's span, and not on the calls below it.

Source: Strands' `telemetry/tracer.py` before 1.31. Invariant: only calls that the framework itself recorded, without a
system message, are given it; whoever records the client's requests has the system message in them.
"""

from typing import Final

import msgspec

from art_otel.calls import InferenceCall, Message
from art_otel.conventions.attributes import values
from art_otel.spans import Span

_STRANDS: Final = "strands.telemetry.tracer"
_SYSTEM_PROMPT: Final = "system_prompt"


def agent_instructions(span: Span) -> str | None:
    """The system prompt that an agent's span has for the calls below it."""
    return values.text(span.attributes.get(_SYSTEM_PROMPT)) if span.scope.name == _STRANDS else None


def with_agent_instructions(call: InferenceCall, span: Span, instructions: str) -> InferenceCall:
    """The call that a span recorded, its prompt behind the instructions of the agent above it where it has none."""
    prompt = call.input_messages
    if span.scope.name != _STRANDS or prompt is None or any(message.role == "system" for message in prompt):
        return call
    system = Message(role="system", content=instructions)
    return msgspec.structs.replace(call, input_messages=(system, *prompt))
