"""Google's Agent Development Kit 1.x: `gcp.vertex.agent.*`, one span `call_llm` a request.

Source of the format: `google/adk/telemetry.py`. `llm_request` is Gemini's request in Python's names whatever model was
asked, `llm_response` one response of it. Invariant: what was not serialized is cut, and a response that is only a
piece of a stream is doubted. The ADK leaves bytes out of a prompt without a mark; a content without parts shows it.
"""

from typing import Final

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies import gemini
from art_otel.conventions.dialects.dialect import Dialect, Role
from art_otel.conventions.facts import CallFacts, recorded_facts
from art_otel.spans import Span, Value

CONVENTION: Final = "google_adk"

_REQUEST: Final = "gcp.vertex.agent.llm_request"
_RESPONSE: Final = "gcp.vertex.agent.llm_response"
_OPERATION: Final = "gen_ai.operation.name"
_NOTHING: Final = "{}"
"""What spans of tools have, and spans whose content was left out."""


def role(span: Span) -> Role | None:
    """A request is one without an operation that has a request; everything else names its operation."""
    return "inference" if _OPERATION not in span.attributes and _REQUEST in span.attributes else None


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the request and the response; None when there are none."""
    reader = recording.reader()
    request, response = _body(reader, _REQUEST), _body(reader, _RESPONSE)
    asked = None if request is None else gemini.read_request(reader, _REQUEST, request)
    answered = None if response is None else gemini.read_response(reader, _RESPONSE, response)
    if response is not None and values.flag(response.get("partial")):
        reader.gap("lossy recorder", f"{_RESPONSE}: partial", field="answer")
    if request is not None and any(_is_emptied(content) for content in values.items(request.get("contents")) or ()):
        reader.gap("lossy recorder", f"{_REQUEST}: emptied contents", field="prompt")
    return recorded_facts(CONVENTION, reader, asked, answered)


def _body(reader: AttributeReader, name: str) -> dict[str, Value] | None:
    """Decode a body; other text says that it could not be serialized."""
    recorded = reader.text(name)
    if recorded is None or recorded == _NOTHING:
        return None
    body = values.mapping(reader.structured(name))
    if body is None:
        reader.mark_invalid(name)
    return body


def _is_emptied(content: Value) -> bool:
    fields = values.mapping(content) or {}
    return "parts" not in fields or values.items(fields["parts"]) == []


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="verbatim body",
    read=read,
    shown_by=(_REQUEST, _RESPONSE),
    role=role,
    prefixes=("gcp.vertex.agent.",),
    content=(
        _REQUEST,
        _RESPONSE,
        "gcp.vertex.agent.data",
        "gcp.vertex.agent.tool_call_args",
        "gcp.vertex.agent.tool_response",
    ),
)
