"""Scalars: turns the app's rewards, metrics, metadata and fields into values of attributes.

Invariant: rewards, metrics and metadata never raise: a value that is no number where one belongs is refused, or kept as
text, and logged once. A field, or a step's state, of a wrong type raises UsageError where it is set. Log and error name
the field and the type, never the value: it may be a secret, and logs are not scrubbed.
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
"""The maximum length of the repr of a value that is not JSON: a repr may be a whole data set."""


def finite(value: object) -> float | None:
    """The value as a finite number; None if it is none. A tensor with one element is a number."""
    try:
        number = float(value)  # pyright: ignore[reportArgumentType] # whatever was given
    except Exception:  # noqa: BLE001 # a foreign __float__ may raise anything
        return None
    return number if math.isfinite(number) else None


def whole(value: object) -> int | None:
    """The value as a whole number of at most 64 bits; None if it is none. NumPy's integers and IntEnums are numbers."""
    try:
        number = operator.index(cast(Any, value))
    except Exception:  # noqa: BLE001 # a foreign __index__ may raise anything
        return None
    return number if -(2**63) <= number < 2**63 else None


def text(value: object, field: str) -> str:
    """The value as text. Whole numbers are accepted, because ids of tasks often are numbers. Raises UsageError."""
    if isinstance(value, str):
        return str.__str__(value)
    number = None if isinstance(value, bool) else whole(value)
    if number is None:
        raise UsageError(f"{field} is of type {type(value).__qualname__}: give a string")
    return str(number)


def label(value: object, field: str) -> str:
    """The value as the label of untrained calls. Raises UsageError if it is no text, or empty."""
    if not (said := text(value, field)):
        raise UsageError(f'{field} is empty: give the purpose of the calls, such as "judge"')
    return said


def whole_number(value: object, field: str) -> int:
    """The value as a whole number, also NumPy's or an IntEnum. Raises UsageError."""
    number = None if isinstance(value, bool) else whole(value)
    if number is None:
        raise UsageError(f"{field} is of type {type(value).__qualname__}: give an int of at most 64 bits")
    return number


def reward(value: object, name: str) -> float | None:
    """The value of a reward as a finite number; None, with a warning, if it is none."""
    number = finite(value)
    if number is None:
        warn_once("reward %r must be a finite number (got %s); not recorded", name, _kind(value))
    return number


def metric(value: object, name: str) -> ScalarValue:
    """The value of a metric as a finite number; its text, with a warning, if it is none."""
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
    """Return metadata as span attributes.

    `{"seed": 1, "tags": ["a"]}` gives `art.metadata.seed` = 1 and `art.metadata_json.tags` = '["a"]': null, lists and
    objects become JSON text, under another prefix.
    """
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
    """The value as an attribute can hold it; its text, with a warning, if an attribute cannot hold it."""
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
    """The JSON text of null, a list or an object; None for other values, and for those that JSON cannot express."""
    if not isinstance(value, (dict, list, tuple, NoneType)):
        return None
    with suppress(Exception):
        return json.dumps(value, ensure_ascii=False, default=as_text)
    return None


def json_text(value: object) -> str:
    """The value as JSON text. Parts that are not JSON become their repr, cut to `MAX_REPR` characters."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_short_repr)
    except Exception:  # noqa: BLE001 # odd keys, not finite, too deep, holds itself, or a foreign __repr__
        return json.dumps(_short_repr(value), ensure_ascii=False)


class JsonFields(UserDict[str, Any]):
    """A dict of texts to JSON values, which raises UsageError for others. `field` is its name in errors."""

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
    """The text of a value; the name of its type if its `__str__` raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 # a foreign __str__ may raise anything
        return f"<{type(value).__qualname__}>"


def _kind(value: object) -> str:
    """Describe a value for a log, which must not show secrets: a float itself, else only the type."""
    if isinstance(value, float):
        return f"{value!r}"
    return type(value).__qualname__
