"""Answer: the body of a response as attributes of the call's span.

Invariant: what is written is what the server sent: ids and logprobs are those of the choice they stand beside, and what
is no list of ids or logprobs is left out. `art_otel.conventions.dialects.art` reads it back.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from art_otel import attributes as names
from art_otel.conventions.attributes import values
from art_otel.conventions.bodies.server_tokens import choice_tokens, choices_with_ids, prompt_ids
from art_otel.conventions.bodies.tokens import encode_ids, encode_logprobs, parse_ids, parse_logprobs
from art_otel.conventions.clients.joining import place_of
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
    """The code of the error in a Responses body that failed, or in an event."""
    told = values.mapping((values.mapping(body.get("response")) or body).get("error")) or body
    return values.text(told.get("code")) or _FAILURE


def answer_attributes(body: dict[str, Value]) -> dict[str, str]:
    """What a Chat Completions, Completions or Responses body says: its id, choices, token ids and logprobs."""
    named = values.text(body.get("id"))
    found = {} if named is None else {RESPONSE_ID: named}
    choices = values.items(choices_with_ids(body)) if "choices" in body else None
    if choices is None:
        return found | _response(body)
    entries = [values.mapping(entry) or {} for entry in choices]
    if entries:
        found[names.RESPONSE_CHOICES] = _json([_without_numbers(entry) for entry in entries])
    if (prompt := _parsed(parse_ids, prompt_ids(body, entries))) is not None:
        found[names.PROMPT_TOKENS] = encode_ids(prompt)
    for position, entry in enumerate(entries):
        found |= _tokens(place_of(entry, position), entry)
    return found


def _response(body: dict[str, Value]) -> dict[str, str]:
    """What a Responses body says: its items, and how it ended."""
    items = values.items(body.get("output")) or []
    ended = {name: body[name] for name in _END if body.get(name) is not None}
    found = {names.RESPONSE_CHOICES: _json([_item(item) for item in items])} if items else {}
    return found | ({names.RESPONSE_END: _json(ended)} if ended else {})


def _tokens(index: int, choice: dict[str, Value]) -> dict[str, str]:
    ids, logprobs = choice_tokens(choice)
    known_ids, known_logprobs = _parsed(parse_ids, ids), _parsed(parse_logprobs, logprobs)
    found: dict[str, str] = {}
    if known_ids is not None:
        found[f"{names.COMPLETION_TOKENS_PREFIX}{index}"] = encode_ids(known_ids)
    if known_logprobs is not None and (known_ids is None or len(known_ids) == len(known_logprobs)):
        found[f"{names.COMPLETION_LOGPROBS_PREFIX}{index}"] = encode_logprobs(known_logprobs)
    return found


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
