"""Gemini CLI: spans `llm_call`, whose messages are Gemini's contents under GenAI's names.

Source of the format: `packages/core/src/telemetry/trace.ts` and `loggingContentGenerator.ts`, recordings of 0.61. A
stream's answer is the list of its pieces. Beside a span stand GenAI's details events: that of the request is its own,
that of the answer mostly no span's. They call the model `system`, and have a choice for each piece of a stream.

Invariant: nothing here is in GenAI's shape, so no other dialect reads these attributes or events; a value of more than
10,000 characters was truncated and says so, and then nothing of it is read: its prompt is the event's, which is whole.
"""

from typing import Final

import msgspec

from art_otel.calls import Choice, Message, Usage
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies import gemini
from art_otel.conventions.bodies.messages import join_messages
from art_otel.conventions.dialects import genai
from art_otel.conventions.dialects.dialect import Dialect, Role
from art_otel.conventions.facts import NO_FACTS, CallFacts
from art_otel.conventions.vocabulary import completed_reason
from art_otel.errors import ParseError
from art_otel.spans import Span, Value

CONVENTION: Final = "gemini_cli"

_OPERATION: Final = "llm_call"
_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_TOOLS: Final = "gen_ai.tool.definitions"
_CUT: Final = "...[TRUNCATED: original length "
_MODEL: Final = {"system": "assistant"}
_ROLES: Final[dict[Value, Role]] = {_OPERATION: "inference", "tool_call": "tool", "agent_call": "agent"}


def role(span: Span) -> Role | None:
    """The role by the CLI's own operations."""
    named = values.text(span.attributes.get(genai.OPERATION_NAME))
    return None if named is None else _ROLES.get(named)


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read a call; None on other spans."""
    reader = recording.reader()
    if reader.text(genai.OPERATION_NAME) != _OPERATION:
        return None
    tools = reader.parsed(_TOOLS, gemini.tools_of, _value(reader, _TOOLS))
    prompt, choices = _prompt(reader, recording), _choices(reader)
    return msgspec.structs.replace(
        CallFacts(
            conventions=(CONVENTION,),
            operation_name="generate_content",
            provider="gemini",
            request_model=reader.text(genai.REQUEST_MODEL),
            tools=tools,
            input_messages=prompt,
            choices=choices,
            usage=_usage(reader),
        ),
        gaps=reader.gaps,
    )


def _value(reader: AttributeReader, name: str) -> Value:
    """Decode a value; a text is one, unless it was cut."""
    recorded = reader.attributes.get(name)
    if _is_cut(recorded):
        reader.gap("cut", name)
        return None
    decoded = reader.structured(name)
    return values.json_value(recorded) if decoded is None else decoded


def _is_cut(recorded: Value) -> bool:
    return isinstance(recorded, str) and _CUT in recorded[-64:]


def _prompt(reader: AttributeReader, recording: SpanRecording) -> tuple[Message, ...] | None:
    if any(_is_cut(reader.attributes.get(name)) for name in (genai.INPUT_MESSAGES, _INSTRUCTIONS)):
        logged = _logged_prompt(recording)
        if logged is not None:
            return logged
    contents, instruction = _value(reader, genai.INPUT_MESSAGES), _value(reader, _INSTRUCTIONS)
    if contents is None or reader.gaps:
        return None
    asked = gemini.read_request(
        reader, genai.INPUT_MESSAGES, {"contents": contents, "system_instruction": instruction or None}
    )
    return None if asked is None else asked.input_messages


def _logged_prompt(recording: SpanRecording) -> tuple[Message, ...] | None:
    """The prompt of the details event, whose first message may be the system's; others of that role are the model's."""
    logged = genai.read_details(recording, NO_FACTS)
    if logged is None or not logged.input_messages or logged.gaps:
        return None
    first, *rest = logged.input_messages
    return (first, *(msgspec.structs.replace(one, role=_MODEL.get(one.role, one.role)) for one in rest))


def _usage(reader: AttributeReader) -> Usage | None:
    """Read the counts, where zero stands for unknown."""
    counts = [reader.integer(f"gen_ai.usage.{name}") or None for name in ("input_tokens", "output_tokens")]
    return Usage(input_tokens=counts[0], output_tokens=counts[1]) if any(counts) else None


def _choices(reader: AttributeReader) -> tuple[Choice, ...] | None:
    recorded = _value(reader, genai.OUTPUT_MESSAGES)
    pieces = values.items(recorded)
    try:
        answers = [gemini.sampled(piece) for piece in ([recorded] if pieces is None else pieces) if piece is not None]
    except ParseError:
        reader.mark_invalid(genai.OUTPUT_MESSAGES)
        return None
    if not answers:
        return None
    message = _joined(answers)
    reason = completed_reason(tool_calls=bool(message.tool_calls))
    return (Choice(index=0, message=message, finish_reason=reason if message.tool_calls else None),)


def _joined(pieces: list[Message]) -> Message:
    """Join the pieces of a stream; pieces of reasoning belong together as those of the text do."""
    reasoning = "".join(piece.reasoning or "" for piece in pieces)
    joined = join_messages([msgspec.structs.replace(piece, reasoning=None) for piece in pieces])
    content = "".join(piece.content or "" for piece in pieces) or None
    is_text = all(piece.parts is None for piece in pieces)
    return msgspec.structs.replace(
        joined, reasoning=reasoning or None, **({"content": content, "parts": None} if is_text else {})
    )


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="parsed attributes",
    read=read,
    shown_by=("gen_ai.conversation.id",),
    role=role,
    alone=True,
)
