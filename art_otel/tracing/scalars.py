"""Scalars: what an app gives as reward, metric or metadata, as attribute values.

Invariant: nothing here raises for what was given. What is no number where one belongs is refused, or kept as text, and
logged once.
"""

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Final, TypeAlias

from art_otel.tracing.guest import AS_GUEST, say_once

Scalar: TypeAlias = str | bool | int | float

_INT64: Final = range(-(2**63), 2**63)


def finite(value: object) -> float | None:
    """The number, None for what is none. Tensors of one element are numbers."""
    try:
        number = float(value)  # pyright: ignore[reportArgumentType] # whatever was given
    except Exception:  # noqa: BLE001 # a foreign __float__ may raise anything
        return None
    return number if math.isfinite(number) else None


def reward(value: object, name: str) -> float | None:
    """A reward's number; None, logged, for what is no finite one."""
    number = finite(value)
    if number is None:
        say_once("reward %r is no finite number and is not recorded: %.100s", name, as_text(value))
    return number


def metric(value: object, name: str) -> Scalar:
    """A metric's number, else its raw text."""
    number = finite(value)
    if number is None:
        say_once("metric %r is no finite number and is kept as text: %.100s", name, as_text(value))
        return as_text(value)
    return number


def metadata(given: Mapping[str, object], prefix: str) -> dict[str, Scalar]:
    """Attributes of metadata. Null is absent, lists and objects become JSON text, anything else its text."""
    written: dict[str, Scalar] = {}
    for name, value in given.items():
        if value is not None:
            with AS_GUEST:
                written[f"{prefix}{name}"] = scalar(value)
    return written


def scalar(value: object) -> Scalar:
    """The value where an attribute can hold it, else a text of it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral):
        return int(value) if value in _INT64 else as_text(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    say_once("metadata holds JSON values; others are kept as text, as this one: %.100s", as_text(value))
    return as_text(value)


def as_text(value: object) -> str:
    """Its text, whatever its `__str__` does."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 # a foreign __str__ may raise anything
        return f"<{type(value).__qualname__}>"
