"""Setting values: what a variable's text, or a keyword's value, can be.

Invariant: each function takes both, and raises ValueError that says what would be right.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast, get_args

from art_otel.tracing.switch import as_switch


def switch(given: object) -> bool:
    """On or off."""
    known = as_switch(given)
    if known is None:
        raise ValueError("write 1 or 0")
    return known


def text(given: object) -> str | None:
    """Any text that is not empty; None says nothing."""
    if given is None:
        return None
    if not isinstance(given, str) or not given.strip():
        raise ValueError("write a text that is not empty")
    return given


def path(given: object) -> Path:
    """A path, made absolute so that it stays the same when the app changes its folder."""
    if not isinstance(given, str | Path) or not str(given).strip():
        raise ValueError("write a path")
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError("write a path; its ~ leads to no home folder") from error


def switch_or_path(given: object) -> bool | Path:
    """On, off, or a path."""
    known = as_switch(given)
    return path(given) if known is None else known


def seconds(given: object) -> float:
    """A number of seconds, 0 or more."""
    return _number(given, "seconds")


def hours(given: object) -> float:
    """A number of hours, 0 or more."""
    return _number(given, "hours")


def count(given: object) -> int:
    """A whole number, 1 or more."""
    try:
        number = int(cast(Any, given))
    except (TypeError, ValueError):
        number = 0
    if number < 1 or isinstance(given, bool | float):
        raise ValueError("write a whole number, 1 or more")
    return number


def days(given: object) -> float | None:
    """A number of days, 0 or more; None sets no limit."""
    return None if given is None else _number(given, "days")


def _number(given: object, unit: str) -> float:
    try:
        number = float(cast(Any, given))
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or isinstance(given, bool):
        raise ValueError(f"write a number of {unit}, 0 or more")
    return number


def names(given: object) -> tuple[str, ...]:
    """Names with commas between them, or several of them."""
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, Iterable):
        raise ValueError("write names with commas between them")  # noqa: TRY004 # one error for all that is wrong
    found = list(cast(Iterable[object], parts))
    if not all(isinstance(name, str) for name in found):
        raise ValueError("write names with commas between them")
    return tuple(name.strip() for name in cast(list[str], found) if name.strip())


def exporters(given: object) -> tuple[str, ...] | None:
    """Names of span exporters, as OTel has them; `none` is none, None leaves it to OTEL_EXPORTER_OTLP_*."""
    return None if given is None else tuple(name for name in names(given) if name.lower() != "none")


def text_or_function(given: object) -> str | Callable[[], str] | None:
    """A text, or a function that gives one."""
    return cast("Callable[[], str]", given) if callable(given) else text(given)


def one_of(literal: Any) -> Callable[[object], Any]:  # noqa: ANN401 # a Literal has no type of its own
    """One of the words of a Literal."""
    words = get_args(literal)

    def choose(given: object) -> Any:  # noqa: ANN401 # one of the words
        if given not in words:
            raise ValueError(f"write one of {', '.join(words)}")
        return given

    return choose
