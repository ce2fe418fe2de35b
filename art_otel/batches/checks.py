"""Checks: options that make no sense are refused, by name.

Invariant: a check gives the value back as a plain one (an int for numpy's, a frozenset for names), so that equal
options are written alike in a state; or it raises UsageError with the option, the value and what to give instead.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import SupportsFloat, TypeGuard, cast

from art_otel.errors import UsageError


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number, from `least` to `most`."""
    if not isinstance(value, bool) and isinstance(value, Integral):
        number = int(value)
        if number >= least and (most is None or number <= most):
            return number
    limits = f"at least {least}" if most is None else f"from {least} to {most}"
    raise UsageError(f"{name}={value!r:.200}: needs to be a whole number, {limits}")


def whole_or_none(name: str, value: object, least: int) -> int | None:
    """A whole number that need not be given."""
    return None if value is None else whole(name, value, least)


def share(name: str, value: object) -> tuple[int, int]:
    """(index, count): which of several readers, from 0 on."""
    if isinstance(value, tuple | list) and len(found := cast(Sequence[object], value)) == 2:
        count = whole(f"{name}[1]", found[1], 1)
        return whole(f"{name}[0]", found[0], 0, count - 1), count
    raise UsageError(f"{name}={value!r:.200}: give (index, count) of the readers, as (0, 1) where there is one")


def one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """One of few values."""
    if value not in allowed:
        raise UsageError(f"{name}={value!r:.200}: use one of {', '.join(map(repr, allowed))}")


def is_finite(value: object) -> TypeGuard[float]:
    """Whether it is a number, and neither NaN nor infinite."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def names(name: str, value: object, example: str) -> frozenset[str | None]:
    """One text, or several; None among them is what has no name."""
    given = (value,) if isinstance(value, str) else value
    if isinstance(given, Iterable):
        found = list(cast(Iterable[object], given))
        known = [one for one in found if one is None or isinstance(one, str)]
        if len(known) == len(found):
            return frozenset(known)
    raise UsageError(f"{name}={value!r:.200}: give a text or several, as {example}")


def weights(name: str, value: object) -> dict[str, float]:
    """A finite weight for each name, one or more."""
    if isinstance(value, Mapping) and value:
        items = cast(Mapping[object, object], value).items()
        found = {key: float(weight) for key, weight in items if isinstance(key, str) and key and is_finite(weight)}
        if len(found) == len(items):
            return found
    raise UsageError(f'{name}={value!r:.200}: give a finite weight for each name of a reward, as {{"reward": 1.0}}')


def reward(whose: str, value: object) -> float | None:
    """What a function of the user's gave as a reward; one that is not finite too, as an int beyond all floats."""
    if value is None or type(value) is float:
        return value
    try:
        if hasattr(value, "__float__"):
            return float(cast(SupportsFloat, value))
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        pass
    raise UsageError(f"{whose} gave {value!r:.200} as a reward; it has to be a number, or None where there is none")
