"""Secret names: attributes whose text is a secret whatever it looks like.

Invariant: the last segment of the name is one of a few, exactly. What a model reads and writes, and what the app gives
to us (metadata, extra, the state of an environment, the log), is never judged by a name: there a secret is a word of a
game, and a password is what an agent works with.
"""

from functools import lru_cache
from typing import Final

_NAMES: Final = frozenset(
    {"authorization", "cookie", "set_cookie", "api_key", "x_api_key", "password", "secret", "client_secret"}
    | {"private_key", "access_token", "refresh_token"}
)
"""With `_` for `-`: OpenTelemetry's instrumentors write the names of headers either way."""

_NEVER: Final = ("gen_ai.", "llm.", "art.")


@lru_cache(maxsize=4096)
def kind_of_attribute(name: str) -> str | None:
    """The kind of secret that an attribute of this name holds."""
    if name.startswith(_NEVER):
        return None
    last = name[-64:].rpartition(".")[2].lower().replace("-", "_")
    return last.replace("_", " ") if last in _NAMES else None
