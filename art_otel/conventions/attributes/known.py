"""Known attributes: the names that belong to a convention of this package, so that no app's own metadata has them."""

from typing import Final

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
)
_NAMES: Final = frozenset({"prompt_token_ids", "response_token_ids", "logprobs.content", "logprobs.refusal"})
"""Names of Agent Lightning, which have no prefix of their own."""


def is_convention_attribute(name: str) -> bool:
    """Whether the attribute belongs to a convention of this package."""
    return name.startswith(_PREFIXES) or name in _NAMES
