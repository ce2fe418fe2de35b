"""NVIDIA's NeMo Relay: requests and responses as its `full` export writes them (`nemo_relay.*`).

Source of the format: recordings of nemo-relay 0.10.4. `nemo_relay.start.input.content` is the body of a request, and
each field of a response's body is an attribute of its own below `nemo_relay.end.output`, objects and lists as JSON. The
export `openinference` has the response so, too; the export `gen_ai` has GenAI's attributes and none of these.
Invariant: of a prompt its system messages and what begins with the last message of the user are left, in every export
(`conventions.recorder_losses` doubts it); its answer is whole.
"""

from typing import Final

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.recorded_values import read_input, read_output
from art_otel.conventions.dialects.dialect import Dialect, Role
from art_otel.conventions.facts import CallFacts, recorded_facts
from art_otel.spans import Span, Value

CONVENTION: Final = "nemo_relay"
PREFIX: Final = "nemo_relay."

_SCOPE_TYPE: Final = "nemo_relay.scope_type"
_REQUEST: Final = "nemo_relay.start.input.content"
_RESPONSE: Final = "nemo_relay.end.output."
_ROLES: Final[dict[str, Role]] = {
    "llm": "inference",
    "agent": "agent",
    "tool": "tool",
    "embedder": "embeddings",
    "retriever": "retrieval",
}


def role(span: Span) -> Role | None:
    """The role by the type of the scope; None for a span of another recorder."""
    kind = values.text(span.attributes.get(_SCOPE_TYPE))
    return None if kind is None else _ROLES.get(kind, "other")


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the bodies of request and response; None where there are none."""
    reader = recording.reader()
    request = values.mapping(reader.structured(_REQUEST)) if _REQUEST in reader.attributes else None
    names = recording.names.of(recording.families.starting(_RESPONSE))
    response = {name.removeprefix(_RESPONSE): _field(reader, name) for name in names}
    return recorded_facts(
        CONVENTION,
        reader,
        None if request is None else read_input(reader, _REQUEST, request),
        read_output(reader, _RESPONSE, response) if response else None,
    )


def _field(reader: AttributeReader, name: str) -> Value:
    """A field of the response: a list or an object is JSON, anything else itself."""
    value = reader.attributes[name]
    return reader.structured(name) if isinstance(value, str) and value.startswith(("[", "{")) else value


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="verbatim body",
    read=read,
    shown_by=(PREFIX,),
    role=role,
    prefixes=(PREFIX,),
    content=(_REQUEST,),
)
