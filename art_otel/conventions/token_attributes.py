"""Token attributes: tokens that spell a text, wherever they stand on a span.

Invariant: token ids are written only if the text that they spell was scanned and holds no secret: they would be the
secret in pieces.
"""

import json
import re
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final, cast

from art_otel.attributes import COMPLETION_LOGPROBS_PREFIX, COMPLETION_TOKENS_PREFIX, PROMPT_TOKENS
from art_otel.scrubbing import replacement
from art_otel.spans import Attributes, Value

TOKENS: Final = (PROMPT_TOKENS, COMPLETION_TOKENS_PREFIX, COMPLETION_LOGPROBS_PREFIX)
"""Attributes that are nothing but packed tokens; no text is looked for in them."""

_PROMPT_KEYS: Final = frozenset({"prompt_token_ids", "prompt_logprobs"})
_PROMPT_KEY: Final = re.compile("_(?<=prompt_)(?:token_ids|logprobs)")
"""Either of them. `re` finds one character first many times as fast as a longer text."""
_KEYS: Final = _PROMPT_KEYS | {"logprobs", "response_token_ids", "token_ids", "tokens"}

_PROMPTS: Final = frozenset({"messages", "prompt", "prompts", "input", "inputs", "input_messages"})
_ANSWERS: Final = frozenset({"output", "outputs", "output_messages", "completion", "completions"})
"""Segments of the names under which what was asked stands, and of those under which only the answer does."""
_HIDDEN: Final = "__REDACTED__"
"""What OpenInference's instrumentors write for what they are to hide."""


def without_tokens(attributes: Attributes, keys: AbstractSet[str] = _KEYS) -> dict[str, Value]:
    """Attributes without tokens, also those inside of the bodies of responses."""
    return {
        name: _without(value, keys)
        for name, value in attributes.items()
        if not name.startswith(TOKENS) and (keys.isdisjoint(name.split(".")) or isinstance(value, (bool, int, float)))
    }


def may_hold_prompt_ids(text: str) -> bool:
    """Whether a name, or the text of an attribute, may hold token ids of a prompt."""
    return _PROMPT_KEY.search(text) is not None


def spells_unread_prompt(attributes: Attributes) -> bool:
    """Whether there are token ids of a prompt whose text does not stand beside them, so that nobody scanned it.

    Our own packed ids do not count: whoever writes them has scanned the prompt.
    """
    texts = chain(attributes, (value for value in attributes.values() if isinstance(value, str)))
    return any(map(may_hold_prompt_ids, texts)) and not any(_shows_prompt(*entry) for entry in attributes.items())


def without_prompt_ids(attributes: Attributes) -> dict[str, Value]:
    """Attributes without token ids of a prompt, but for our own packed ones."""
    packed = {name: value for name, value in attributes.items() if name.startswith(TOKENS)}
    return {**without_tokens(attributes, _PROMPT_KEYS), **packed}


def _shows_prompt(name: str, value: Value) -> bool:
    segments = name.split(".")
    return (
        not isinstance(value, (bool, int, float))
        and value != _HIDDEN
        and not name.startswith(TOKENS)
        and not _PROMPTS.isdisjoint(segments)
        and _ANSWERS.isdisjoint(segments)
    )


def _without(value: Value, keys: AbstractSet[str]) -> Value:
    if not isinstance(value, str):
        return _stripped(value, keys)
    if not value.lstrip().startswith(("{", "[")) or not any(key in value for key in keys):
        return value
    try:
        decoded: Value = json.loads(value)
        stripped = _stripped(decoded, keys)
    except (ValueError, RecursionError):
        return replacement("tokens")  # cut off, or as Python prints it
    return value if stripped == decoded else json.dumps(stripped)


def _stripped(value: Value, keys: AbstractSet[str]) -> Value:
    """The value with None in the place of tokens."""
    if isinstance(value, dict):
        named = cast(dict[str, Value], value).items()
        return {name: None if name in keys and _is_list(inner) else _stripped(inner, keys) for name, inner in named}
    if isinstance(value, (list, tuple)):
        return type(cast(list[Value], value))(_stripped(inner, keys) for inner in cast(list[Value], value))
    return value


def _is_list(value: Value) -> bool:
    """Whether a value is of the shape tokens have; a request's `logprobs` is a flag."""
    return isinstance(value, (list, tuple, dict))
