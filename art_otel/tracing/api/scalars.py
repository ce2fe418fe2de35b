"""Scalars: what an app gives as reward, metric, metadata or field, as attribute values.

Invariant: of rewards, metrics and metadata nothing raises; what is no number where one belongs is refused, or kept as
text, and logged once. A field or a step's state of a wrong type raises UsageError where it is set. Both say the name
and the type only: the value may be a secret, and a log is not scrubbed.
"""

import json
import math
import operator
from collections import UserDict
from collections.abc import Mapping
from contextlib import suppress
from numbers import Integral, Real
from types import NoneType
from typing import Any, Final, TypeAlias, cast

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.internal_errors import handle_internal_errors, warn_once

ScalarValue: TypeAlias = str | bool | int | float

MAX_REPR: Final = 10_000
"""Characters of what is no JSON value: a repr may be a whole data set."""


def finite(value: object) -> float | None:
    """The number, None for what is none. Tensors of one element are numbers."""
    try:
        number = float(value)  # pyright: ignore[reportArgumentType] # whatever was given
    except Exception:  # noqa: BLE001 # a foreign __float__ may raise anything
        return None
    return number if math.isfinite(number) else None


def whole(value: object) -> int | None:
    """The whole number of at most 64 bits; None for what is none. Those of NumPy and enums are numbers."""
    try:
        number = operator.index(cast(Any, value))
    except Exception:  # noqa: BLE001 # a foreign __index__ may raise anything
        return None
    return number if -(2**63) <= number < 2**63 else None


def text(value: object, field: str) -> str:
    """The text; a whole number as text, because ids of tasks often are numbers. Raises UsageError."""
    if isinstance(value, str):
        return str.__str__(value)
    number = None if isinstance(value, bool) else whole(value)
    if number is None:
        raise UsageError(f"{field} is of type {type(value).__qualname__}: give a string")
    return str(number)


def label(value: object, field: str) -> str:
    """The text, which says what is untrained. Raises UsageError."""
    if not (said := text(value, field)):
        raise UsageError(f'{field} is empty: give the purpose of the calls, such as "judge"')
    return said


def whole_number(value: object, field: str) -> int:
    """The whole number, also one of NumPy or of an enum. Raises UsageError."""
    number = None if isinstance(value, bool) else whole(value)
    if number is None:
        raise UsageError(f"{field} is of type {type(value).__qualname__}: give an int of at most 64 bits")
    return number


def reward(value: object, name: str) -> float | None:
    """A reward's number; None, logged, for what is no finite one."""
    number = finite(value)
    if number is None:
        warn_once("reward %r must be a finite number (got %s); not recorded", name, _kind(value))
    return number


def metric(value: object, name: str) -> ScalarValue:
    """A metric's number, else its raw text."""
    number = finite(value)
    if number is None:
        warn_once("metric %r is not a finite number (got %s); kept as text", name, _kind(value))
        return as_text(value)
    return number


def is_mapping(value: object, what: str) -> bool:
    """Whether the value is a mapping; logs a warning if it is not."""
    if isinstance(value, Mapping):
        return True
    warn_once("%s must be a mapping of names to values (got %s); ignored", what, _kind(value))
    return False


def metadata(values: Mapping[str, object]) -> dict[str, ScalarValue]:
    """Return metadata as span attributes. Null, lists and objects become JSON text under a prefix of their own."""
    written: dict[str, ScalarValue] = {}
    for name, value in values.items():
        with handle_internal_errors:
            text = _json(value)
            if text is None:
                written[f"{attributes.METADATA_PREFIX}{name}"] = scalar(value, name)
            else:
                written[f"{attributes.METADATA_JSON_PREFIX}{name}"] = text
    return written


def scalar(value: object, name: str) -> ScalarValue:
    """The value where an attribute can hold it, else its text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral):
        number = whole(value)
        return as_text(value) if number is None else number
    if isinstance(value, Real) and (number := finite(value)) is not None:
        return number
    warn_once("metadata %r is not a JSON value (got %s); kept as text", name, _kind(value))
    return as_text(value)


def _json(value: object) -> str | None:
    """The JSON text of null, a list or an object; None where it holds itself, is too deep, or has odd keys."""
    if not isinstance(value, (dict, list, tuple, NoneType)):
        return None
    with suppress(Exception):
        return json.dumps(value, ensure_ascii=False, default=as_text)
    return None


def json_text(value: object) -> str:
    """The value as JSON text. What is no JSON value stands in it as its repr, of `MAX_REPR` characters at most."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_short_repr)
    except Exception:  # noqa: BLE001 # odd keys, not finite, too deep, holds itself, or a foreign __repr__
        return json.dumps(_short_repr(value), ensure_ascii=False)


class JsonFields(UserDict[str, Any]):
    """Texts to JSON values. `field` is what errors call it."""

    def __init__(self, field: str) -> None:
        self._field = field
        super().__init__()

    def __setitem__(self, key: str, value: Any) -> None:  # noqa: ANN401 # any JSON value
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] # not every app is typed
            raise UsageError(f"a key of {self._field} is of type {type(key).__qualname__}: give a string")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                f"{self._field}[{key!r}] of type {type(value).__qualname__} is no JSON value: give texts, finite"
                " numbers, booleans, None, lists and objects of them"
            ) from error
        super().__setitem__(key, value)


def _short_repr(value: object) -> str:
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 # a foreign __repr__ may raise anything
        shown = f"<{type(value).__qualname__}>"
    return shown if len(shown) <= MAX_REPR else f"{shown[:MAX_REPR]}…"


def as_text(value: object) -> str:
    """Give a value's text, whatever its `__str__` does."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 # a foreign __str__ may raise anything
        return f"<{type(value).__qualname__}>"


def _kind(value: object) -> str:
    """Describe a value by what a log may show of it: a number, or its type."""
    if isinstance(value, float):
        return f"{value!r}"
    return type(value).__qualname__
