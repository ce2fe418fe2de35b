"""JsonText: JSON values as text, because Arrow would merge objects of different keys into one struct.

Invariant: an object reads back equal, its keys in their order; an empty one is null. JSON has no NaN and no infinities:
these become null.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from art_otel.spans import Value

_ENCODER: Final = msgspec.json.Encoder()
_OBJECT: Final = msgspec.json.Decoder(dict[str, Value])
_LIST: Final = msgspec.json.Decoder(list[Value])
_VALUE: Final[msgspec.json.Decoder[Value]] = msgspec.json.Decoder()


def json_text(value: Value) -> str:
    """The value as JSON. Raises TypeError or ValueError for what is no JSON value."""
    return _ENCODER.encode(value).decode()


def value_text(value: Value) -> str | None:
    """The value as JSON; None for None."""
    return None if value is None else json_text(value)


def value_of(text: str | None) -> Value:
    """The inverse of value_text. Raises msgspec.DecodeError (a ValueError) for text that is no JSON."""
    return None if text is None else _VALUE.decode(text)


def object_text(value: Mapping[str, Value]) -> str | None:
    """The object as JSON, null when empty."""
    return json_text(dict(value)) if value else None


def object_of(text: str | None) -> dict[str, Value]:
    """The inverse of object_text. Raises msgspec.DecodeError (a ValueError) for text that is no JSON object."""
    return {} if text is None else _OBJECT.decode(text)


def list_of(text: str) -> tuple[Value, ...]:
    """The values of a JSON list. Raises msgspec.DecodeError (a ValueError) for text that is none."""
    return tuple(_LIST.decode(text))
