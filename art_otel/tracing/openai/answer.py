"""Answer: the body of a response as attributes of the call's span.

Invariant: what is written is what the server sent: ids and logprobs are those of the choice they stand beside, and what
is no list of ids or logprobs is left out. `art_otel.conventions.dialects.art` reads it back.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from art_otel import attributes as names
from art_otel.conventions import values
from art_otel.conventions.bodies.chunks import place_of
from art_otel.conventions.bodies.tokens import (
    choice_tokens,
    choices_with_ids,
    encode_ids,
    encode_logprobs,
    parse_ids,
    parse_logprobs,
    prompt_ids,
)
from art_otel.conventions.dialects.genai import RESPONSE_ID
from art_otel.errors import ParseError
from art_otel.spans import Value

_NUMBERS: Final = frozenset({"logprobs", "token_ids", "response_token_ids", "prompt_token_ids", "prompt_logprobs"})
"""What stands in attributes of its own, or (vLLM's `prompt_logprobs`) is not about the completion."""

_END: Final = ("status", "incomplete_details", "usage")
_FAILURE: Final = "APIError"
"""What openai's client raises for an error in the middle of a stream."""

_Tokens = TypeVar("_Tokens")


def decode(body: bytes) -> dict[str, Value] | None:
    """The JSON object of a body or of a stream's event; None for anything else."""
    try:
        return values.mapping(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return values.mapping(values.decode(body.decode(errors="replace"))[0])
    except ParseError:
        return None


def failure(body: dict[str, Value]) -> str | None:
    """Return the error code of a failed Responses body, or of an error event."""
    error = values.mapping((values.mapping(body.get("response")) or body).get("error")) or body
    return values.text(error.get("code")) or _FAILURE


def answer_attributes(body: dict[str, Value]) -> dict[str, str]:
    """Return the id, choices, token ids and logprobs of a response body as span attributes."""
    named = values.text(body.get("id"))
    attributes = {} if named is None else {RESPONSE_ID: named}
    choices = values.items(choices_with_ids(body)) if "choices" in body else None
    if choices is None:
        return attributes | _response(body)
    entries = [values.mapping(entry) or {} for entry in choices]
    if entries:
        attributes[names.RESPONSE_CHOICES] = _json([_without_numbers(entry) for entry in entries])
    if (prompt := _parsed(parse_ids, prompt_ids(body, entries))) is not None:
        attributes[names.PROMPT_TOKENS] = encode_ids(prompt)
    for position, entry in enumerate(entries):
        attributes |= _tokens(place_of(entry, position), entry)
    return attributes


def _response(body: dict[str, Value]) -> dict[str, str]:
    """Return the items of a Responses body, and how it ended, as span attributes."""
    items = values.items(body.get("output")) or []
    ended = {name: body[name] for name in _END if body.get(name) is not None}
    attributes = {names.RESPONSE_CHOICES: _json([_item(item) for item in items])} if items else {}
    return attributes | ({names.RESPONSE_END: _json(ended)} if ended else {})


def _tokens(index: int, choice: dict[str, Value]) -> dict[str, str]:
    raw_ids, raw_logprobs = choice_tokens(choice)
    ids, logprobs = _parsed(parse_ids, raw_ids), _parsed(parse_logprobs, raw_logprobs)
    attributes: dict[str, str] = {}
    if ids is not None:
        attributes[f"{names.COMPLETION_TOKENS_PREFIX}{index}"] = encode_ids(ids)
    if logprobs is not None and (ids is None or len(ids) == len(logprobs)):
        attributes[f"{names.COMPLETION_LOGPROBS_PREFIX}{index}"] = encode_logprobs(logprobs)
    return attributes


def _parsed(parse: Callable[[Value], _Tokens], numbers: Value) -> _Tokens | None:
    try:
        return None if numbers is None else parse(numbers)
    except ParseError:
        return None


def _item(item: Value) -> Value:
    """An output item of the Responses API; the logprobs stand in the parts of its content."""
    fields = values.mapping(item)
    parts = None if fields is None else values.items(fields.get("content"))
    if fields is None or parts is None:
        return item
    return {**fields, "content": [_without_numbers(values.mapping(part) or {}) for part in parts]}


def _without_numbers(fields: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in fields.items() if name not in _NUMBERS}


def _json(value: Value) -> str:
    return msgspec.json.encode(value).decode()
