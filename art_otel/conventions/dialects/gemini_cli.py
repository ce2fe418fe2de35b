"""Gemini CLI: spans `llm_call`, whose messages are Gemini's contents under GenAI's names.

Source of the format: `packages/core/src/telemetry/trace.ts` and `loggingContentGenerator.ts`. A stream's answer is the
list of its pieces. Invariant: nothing here is in GenAI's shape, so no other dialect reads these attributes; a value of
more than 10,000 characters was truncated and says so, and then nothing of it is read.
"""

from typing import Final

import msgspec

from art_otel.calls import CONTENT_TRUNCATED, Choice, Message, Usage
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.finish import completed_reason
from art_otel.conventions.bodies.message import join
from art_otel.conventions.clients import gemini
from art_otel.conventions.dialects import genai
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.recording import Recording
from art_otel.conventions.role import Role
from art_otel.errors import ParseError
from art_otel.spans import Span, Value

CONVENTION: Final = "gemini_cli"

_OPERATION: Final = "llm_call"
_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_TOOLS: Final = "gen_ai.tool.definitions"
_CUT: Final = "...[TRUNCATED: original length "
_ROLES: Final[dict[Value, Role]] = {_OPERATION: "inference", "tool_call": "tool", "agent_call": "agent"}


def matches(names: AttributeNames) -> bool:
    """Whether a span with these attributes may be the CLI's."""
    return genai.OPERATION_NAME in names and "gen_ai.conversation.id" in names


def role(span: Span) -> Role | None:
    """The role by the CLI's own operations."""
    named = values.text(span.attributes.get(genai.OPERATION_NAME))
    return None if named is None else _ROLES.get(named)


def read(recording: Recording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read a call; None on other spans. What log records beside it tell is theirs."""
    reader = recording.reader()
    if reader.text(genai.OPERATION_NAME) != _OPERATION:
        return None
    is_told = any(genai.event_name(log) == genai.DETAILS_EVENT for log in recording.logs)
    return msgspec.structs.replace(
        CallFacts(
            conventions=(CONVENTION,),
            operation_name="generate_content",
            provider="gemini",
            request_model=reader.text(genai.REQUEST_MODEL),
            tools=None if is_told else _tools(reader),
            input_messages=None if is_told else _prompt(reader),
            choices=None if is_told else _choices(reader),
            usage=_usage(reader),
        ),
        cut=reader.cut,
        doubts=reader.doubts,
    )


def _value(reader: AttributeReader, name: str) -> Value:
    """Decode a value; a text is one, unless it was cut."""
    recorded = reader.attributes.get(name)
    if isinstance(recorded, str) and _CUT in recorded[-64:]:
        reader.doubt(CONTENT_TRUNCATED)
        return None
    decoded = reader.structured(name)
    return values.json_value(recorded) if decoded is None else decoded


def _prompt(reader: AttributeReader) -> tuple[Message, ...] | None:
    contents, instruction = _value(reader, genai.INPUT_MESSAGES), _value(reader, _INSTRUCTIONS)
    if contents is None or reader.cut or reader.doubts:
        return None
    asked = gemini.read_request(
        reader, genai.INPUT_MESSAGES, {"contents": contents, "system_instruction": instruction or None}
    )
    return None if asked is None else asked.input_messages


def _tools(reader: AttributeReader) -> tuple[Value, ...] | None:
    tools = _value(reader, _TOOLS)
    try:
        return None if tools is None else gemini.tools_of(tools)
    except ParseError:
        reader.mark_invalid(_TOOLS)
        return None


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
    joined = join([msgspec.structs.replace(piece, reasoning=None) for piece in pieces])
    content = "".join(piece.content or "" for piece in pieces) or None
    is_text = all(piece.parts is None for piece in pieces)
    return msgspec.structs.replace(
        joined, reasoning=reasoning or None, **({"content": content, "parts": None} if is_text else {})
    )


DIALECT: Final = Dialect(convention=CONVENTION, read=read, matches=matches, role=role, alone=True)
