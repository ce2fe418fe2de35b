"""LiteLLM: the response body that its span `raw_gen_ai_request` repeats beside the request's own span.

https://github.com/BerriAI/litellm (`litellm/integrations/opentelemetry.py`): `llm.<provider>.<field>`, each field a
number, a text or the text that Python prints of a list or an object. Invariant: what is here is the server's own
answer: tool calls with their ids, which the request's span loses, and token ids. The prompt is left to that span.
"""

import ast
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeNames, AttributeReader, SpanRecording
from art_otel.conventions.bodies.openai_body import read_response
from art_otel.conventions.facts import CallFacts
from art_otel.errors import ParseError
from art_otel.spans import Value

CONVENTION: Final = "litellm"
RAW_SPAN: Final = "raw_gen_ai_request"
"""LiteLLM's child span of a request, which repeats it in the provider's words."""

_FIELD: Final = re.compile(r"llm\.([^.]+)\.(id|object|model|choices|usage|prompt_token_ids|response_token_ids)")


def has_choices(attributes: Iterable[str]) -> bool:
    """Whether a `raw_gen_ai_request` with these attributes has the choices of a response."""
    return any(name.startswith("llm.") and name.endswith(".choices") and _FIELD.fullmatch(name) for name in attributes)


def _fields(names: AttributeNames) -> dict[str, str]:
    """The attribute of each field of a response body."""
    return {match[2]: match[0] for name in names.starting("llm.") if (match := _FIELD.fullmatch(name))}


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the response body; None on other spans, and when there is none."""
    reader, fields = recording.reader(), recording.names.memo(_fields)
    if recording.span.name != RAW_SPAN or "choices" not in fields:
        return None
    body = {field: _value(reader, name) for field, name in fields.items()}
    facts = read_response(reader, fields["choices"], body) or CallFacts()
    return msgspec.structs.replace(facts, conventions=(CONVENTION,), gaps=reader.gaps)


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
