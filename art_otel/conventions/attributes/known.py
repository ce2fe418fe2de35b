"""Claims: which attribute names belong to a convention of this package, so that they are not taken for an app's own."""

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
"""Those of Agent Lightning that begin with nothing of its own."""


def is_foreign(name: str) -> bool:
    """Whether a convention owns the attribute."""
    return name.startswith(_PREFIXES) or name in _NAMES
