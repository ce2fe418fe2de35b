"""Secret names: names of attributes and JSON keys whose text is a secret whatever it looks like.

Invariant: only the last segment of a name counts, and it has to be one of these, exactly.
"""

import re
from functools import lru_cache
from typing import Final

_NAMES: Final = frozenset(
    {"authorization", "cookie", "set_cookie", "api_key", "x_api_key", "password", "secret", "client_secret"}
    | {"private_key", "access_token", "refresh_token"}
)
"""With `_` for `-`, because OpenTelemetry's instrumentors write the names of headers either way."""

_KEY: Final = re.compile(rf'[".](?:{"|".join(sorted(_NAMES)).replace("_", "[-_]")})\\*+"\s*+:', re.IGNORECASE)


@lru_cache(maxsize=4096)
def secret_name(name: str) -> str | None:
    """The kind of secret that stands under this name; None for any other name."""
    last = name.rpartition(".")[2].lower().replace("-", "_")
    return last.replace("_", " ") if last in _NAMES else None


def may_name_secrets(text: str) -> bool:
    """Whether a JSON text, or one inside of it, may have a key that is a secret name."""
    return _KEY.search(text) is not None
