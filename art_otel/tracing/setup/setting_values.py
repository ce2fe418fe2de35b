"""Setting values: what a variable's text, or a keyword's value, can be.

Invariant: each function takes both, and raises ValueError that says what would be right.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast, get_args

from art_otel.tracing.autoload import as_switch


def switch(value: object) -> bool:
    """On or off."""
    is_on = as_switch(value)
    if is_on is None:
        raise ValueError("write 1 or 0")
    return is_on


def text(value: object) -> str | None:
    """Any text that is not empty; None says nothing."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write a text that is not empty")
    return value


def path(value: object) -> Path:
    """A path, made absolute so that it stays the same when the app changes its folder."""
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ValueError("write a path")
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError("write a path; its ~ leads to no home folder") from error


def switch_or_path(value: object) -> bool | Path:
    """On, off, or a path."""
    is_on = as_switch(value)
    return path(value) if is_on is None else is_on


def seconds(value: object) -> float:
    """A number of seconds, 0 or more."""
    return _number(value, "seconds")


def hours(value: object) -> float:
    """A number of hours, 0 or more."""
    return _number(value, "hours")


def count(value: object) -> int:
    """A whole number, 1 or more."""
    try:
        number = int(cast(Any, value))
    except (TypeError, ValueError):
        number = 0
    if number < 1 or isinstance(value, bool | float):
        raise ValueError("write a whole number, 1 or more")
    return number


def days(value: object) -> float | None:
    """A number of days, 0 or more; None sets no limit."""
    return None if value is None else _number(value, "days")


def _number(value: object, unit: str) -> float:
    try:
        number = float(cast(Any, value))
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or isinstance(value, bool):
        raise ValueError(f"write a number of {unit}, 0 or more")
    return number


def names(value: object) -> tuple[str, ...]:
    """Names with commas between them, or several of them."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ValueError("write names with commas between them")  # noqa: TRY004 # one error for all that is wrong
    entries = list(cast(Iterable[object], parts))
    if not all(isinstance(name, str) for name in entries):
        raise ValueError("write names with commas between them")
    return tuple(name.strip() for name in cast(list[str], entries) if name.strip())


def exporters(value: object) -> tuple[str, ...] | None:
    """Names of span exporters, as OTel has them; `none` is none, None leaves it to OTEL_EXPORTER_OTLP_*."""
    return None if value is None else tuple(name for name in names(value) if name.lower() != "none")


def text_or_function(value: object) -> str | Callable[[], str] | None:
    """A text, or a function that gives one."""
    return cast("Callable[[], str]", value) if callable(value) else text(value)


def one_of(literal: Any) -> Callable[[object], Any]:  # noqa: ANN401 # a Literal has no type of its own
    """One of the words of a Literal."""
    words = get_args(literal)

    def choose(value: object) -> Any:  # noqa: ANN401 # one of the words
        if value not in words:
            raise ValueError(f"write one of {', '.join(words)}")
        return value

    return choose
