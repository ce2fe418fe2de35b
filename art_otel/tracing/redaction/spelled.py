"""Spelled: tokens that spell out what was redacted.

Invariant: where content of a call was redacted, nothing is left of its token ids and logprobs, whose tokens are the
secret in pieces.
"""

import json
from typing import Final, cast

from art_otel.attributes import COMPLETION_LOGPROBS_PREFIX, COMPLETION_TOKENS_PREFIX, PROMPT_TOKENS
from art_otel.spans import Value
from art_otel.tracing.redaction.texts import replacement

TOKENS: Final = (PROMPT_TOKENS, COMPLETION_TOKENS_PREFIX, COMPLETION_LOGPROBS_PREFIX)
"""Attributes that are nothing but packed tokens; no text is looked for in them."""

_KEYS: Final = frozenset({"logprobs", "prompt_logprobs", "prompt_token_ids", "token_ids", "tokens"})
_MAX_DEPTH: Final = 32


def without_tokens(attributes: dict[str, Value]) -> dict[str, Value]:
    """Attributes without tokens, also those inside of bodies of responses."""
    return {name: _body(value) for name, value in attributes.items() if not name.startswith(TOKENS)}


def _body(value: Value) -> Value:
    if not isinstance(value, str):
        return _stripped(value, _MAX_DEPTH)
    if not any(f'"{key}"' in value for key in _KEYS):
        return value
    try:
        decoded: Value = json.loads(value)
    except (ValueError, RecursionError):
        return replacement("tokens")  # cut off, so nobody can read it anyway
    stripped = _stripped(decoded, _MAX_DEPTH)
    return value if stripped == decoded else json.dumps(stripped)


def _stripped(value: Value, depth: int) -> Value:
    """The value with None in the place of tokens; what is nested too deep goes too."""
    if depth == 0:
        return None
    if isinstance(value, dict):
        named = cast(dict[str, Value], value).items()
        return {
            name: None if name in _KEYS and _is_list(inner) else _stripped(inner, depth - 1) for name, inner in named
        }
    if isinstance(value, (list, tuple)):
        return [_stripped(inner, depth - 1) for inner in cast(list[Value], value)]
    return value


def _is_list(value: Value) -> bool:
    """Whether a value is of the shape tokens have; a request's `logprobs` is a flag."""
    return isinstance(value, (list, tuple, dict))
