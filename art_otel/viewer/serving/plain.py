"""Plain: an answer as JSON that any reader takes.

Invariant: the bytes are UTF-8, numbers are finite (others are null) and integers are exact for JavaScript (larger ones
are text). Texts with halves of surrogate pairs, which UTF-8 cannot hold, have U+FFFD in their places.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

_EXACT: Final = 1 << 53
_ENCODER: Final = msgspec.json.Encoder()


def to_json(answer: Mapping[str, Any]) -> bytes:
    """Encode the answer."""
    return _ENCODER.encode(_plain(answer))


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(list[object], value)]
    return msgspec.to_builtins(value)
