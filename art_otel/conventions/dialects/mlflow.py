"""MLflow's tracing and autologging: `mlflow.*`, each value JSON text; MLflow's own dumps are read to the same.

Source of the format: `mlflow/tracing/constant.py` and the autologging of each client. `mlflow.spanInputs` and
`mlflow.spanOutputs` are the arguments and the result of the client's method. Invariant: of a stream of Chat Completions
MLflow keeps the text only, as a finished answer; the answer is then what its chunks say, which are events of the span.
"""

from typing import Final

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.chunks import JoinedChunks
from art_otel.conventions.bodies.openai_body import parse_tools, read_response, read_usage
from art_otel.conventions.bodies.recorded_values import read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect, Role, ToolAttributes
from art_otel.conventions.facts import CallFacts, recorded_facts
from art_otel.spans import Span, Value

CONVENTION: Final = "mlflow"

_TYPE: Final = "mlflow.spanType"
_INPUTS: Final = "mlflow.spanInputs"
_OUTPUTS: Final = "mlflow.spanOutputs"
_TOOLS: Final = "mlflow.chat.tools"
_USAGE: Final = "mlflow.chat.tokenUsage"
_CHUNK_EVENT: Final = "mlflow.chunk.item."
_CHUNK: Final = "mlflow.chunk.value"
_CHAT_CHUNK: Final = "chat.completion.chunk"
_ROLES: Final[dict[Value, Role]] = {
    "CHAT_MODEL": "inference",
    "LLM": "inference",
    "EMBEDDING": "embeddings",
    "AGENT": "agent",
    "TOOL": "tool",
}
_UNKNOWN: Final = (None, "UNKNOWN")


def role(span: Span) -> Role | None:
    """The role by the type; None where it is unknown, as on other tracers' spans that went through MLflow."""
    kind = values.json_value(span.attributes.get(_TYPE))
    return None if kind in _UNKNOWN else _ROLES.get(kind if isinstance(kind, str) else None, "other")


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read inputs, outputs and the chunks of a stream; None on spans without a type."""
    reader = recording.reader()
    if role(recording.span) is None:
        return None
    asked = read_input(reader, _INPUTS, reader.decoded(_INPUTS))
    answered = _streamed(reader, recording.span) or read_output(reader, _OUTPUTS, reader.decoded(_OUTPUTS))
    dialect_facts = CallFacts(
        provider=_text(reader, "mlflow.llm.provider"),
        request_model=_text(reader, "mlflow.llm.model"),
        tools=reader.parsed(_TOOLS, parse_tools, reader.decoded(_TOOLS)),
        usage=read_usage(values.mapping(reader.decoded(_USAGE)) or {}),
    )
    return recorded_facts(CONVENTION, reader, dialect_facts, asked, answered)


def _text(reader: AttributeReader, name: str) -> str | None:
    return values.text(reader.decoded(name))


def _streamed(reader: AttributeReader, span: Span) -> CallFacts | None:
    """Read the answer that the chunks of a chat make up; None without such chunks, or when some were dropped."""
    if span.dropped_events_count:
        reader.mark_invalid(_CHUNK)
        return None
    recorded = [event.attributes.get(_CHUNK) for event in span.events if event.name.startswith(_CHUNK_EVENT)]
    chunks = [values.mapping(reader.make_safe(_CHUNK, values.json_value(chunk))) for chunk in recorded]
    if not chunks or any(chunk is None or chunk.get("object") != _CHAT_CHUNK for chunk in chunks):
        return None
    joined = JoinedChunks()
    for chunk in chunks:
        joined.add(chunk or {})
    return read_response(reader, _CHUNK, joined.body())


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="parsed attributes",
    read=read,
    shown_by=(_TYPE,),
    role=role,
    recorder="mlflow.message.format",
    prefixes=("mlflow.",),
    content=("mlflow.chunk.value", "mlflow.chat.tools"),
    tools=ToolAttributes(arguments=_INPUTS, result=_OUTPUTS),
)
