"""LiteLLM: the response body that its span `raw_gen_ai_request` repeats beside the request's own span.

https://github.com/BerriAI/litellm (`litellm/integrations/opentelemetry.py`): `llm.<provider>.<field>`, each field a
number, a text or the text that Python prints of a list or an object. Invariant: what is here is the server's own
answer: tool calls with their ids, which the request's span loses, and token ids. The prompt is left to that span, and
so is the id of a response of the Responses API, which LiteLLM gives its client in another form.
"""

import ast
import re
from typing import Final

import msgspec

from art_otel.conventions import values
from art_otel.conventions.attribute_names import NameFamilies
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.openai_body import read_response, read_tools
from art_otel.conventions.facts import CallFacts
from art_otel.errors import ParseError
from art_otel.spans import Attributes, Value

CONVENTION: Final = "litellm"
RAW_SPAN: Final = "raw_gen_ai_request"
"""LiteLLM's child span of a request, which repeats it in the provider's words."""

_FIELDS: Final = frozenset({"id", "object", "model", "choices", "usage", "prompt_token_ids", "response_token_ids"})
_RESPONSE_FIELDS: Final = frozenset(
    {"id", "object", "model", "output", "usage", "status", "incomplete_details", "tools"}
    | {"conversation", "prompt", "truncation", "previous_response_id"}
)
_FIELD: Final = re.compile(rf"llm\.(?![0-9]+\.)[^.]+\.({'|'.join(sorted(_FIELDS | _RESPONSE_FIELDS))})")


def has_answer(attributes: Attributes, families: NameFamilies) -> bool:
    """Whether a `raw_gen_ai_request` with these attributes has the answer of a response."""
    fields = families.memo(_fields)
    return "choices" in fields or _is_response(fields, attributes)


def _fields(families: NameFamilies) -> dict[str, str]:
    """The attribute of each field of a response body."""
    return {match[1]: match[0] for name in families.starting("llm.") if (match := _FIELD.fullmatch(name))}


def _is_response(fields: dict[str, str], attributes: Attributes) -> bool:
    """Whether the body is a response of the Responses API; Bedrock's has something else as `output`."""
    return {"object", "output"} <= fields.keys() and attributes[fields["object"]] == "response"


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the response body; None on other spans, and when there is none."""
    if recording.span.name != RAW_SPAN:
        return None
    reader, fields = recording.reader(), recording.families.memo(_fields)
    if "choices" in fields:
        facts = read_response(reader, fields["choices"], _body(reader, fields, _FIELDS))
    elif _is_response(fields, reader.attributes):
        body = _body(reader, fields, _RESPONSE_FIELDS)
        facts = read_response(reader, fields["output"], body) or CallFacts()
        facts = msgspec.structs.replace(facts, response_id=None, tools=read_tools(reader, "tools", body))
    else:
        return None
    return msgspec.structs.replace(facts or CallFacts(), conventions=(CONVENTION,), gaps=reader.gaps)


def _body(reader: AttributeReader, fields: dict[str, str], read_fields: frozenset[str]) -> dict[str, Value]:
    return {field: _value(reader, name) for field, name in fields.items() if field in read_fields}


def _value(reader: AttributeReader, name: str) -> Value:
    """Read a field: a list or an object is what Python or JSON wrote, other text is a text."""
    value = reader.attributes[name]
    if not isinstance(value, str) or not values.looks_like_json(value):
        return value
    try:
        return values.decode(value)[0]
    except ParseError:
        return _parse_printed(reader, name, value)


def _parse_printed(reader: AttributeReader, name: str, text: str) -> Value:
    """Parse a value that Python printed."""
    try:
        return values.json_safe(ast.literal_eval(text.strip()))
    except (ParseError, ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # all that it raises for text
        reader.mark_invalid(name)
        return None
