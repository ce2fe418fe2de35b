"""Known attributes: the names that belong to a convention of this package, so that no app's own metadata has them."""

from itertools import chain
from typing import Final

from art_otel.conventions.dialects import DIALECTS

_PREFIXES: Final = (
    "gen_ai.",
    "llm.",
    "input.",
    "output.",
    "openinference.",
    "traceloop.",
    "agentlightning.",
    "rl.",
    "exception.",
    "error.",
    *chain.from_iterable(dialect.prefixes for dialect in DIALECTS),
)
_NAMES: Final = frozenset({"prompt_token_ids", "response_token_ids", "logprobs.content", "logprobs.refusal"})
"""Names of Agent Lightning, which have no prefix of their own."""

CONTENT_ATTRIBUTES: Final = tuple(chain.from_iterable(dialect.content for dialect in DIALECTS))
"""Attributes of dialects that hold content although their names do not say so."""


def is_convention_attribute(name: str) -> bool:
    """Whether the attribute belongs to a convention of this package."""
    return name.startswith(_PREFIXES) or name in _NAMES
