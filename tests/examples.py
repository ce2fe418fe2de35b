"""How often a law is tried or a process killed: a few times every day, more with HYPOTHESIS_PROFILE=full or by hand."""

import os
from collections.abc import Iterable

import pytest
from hypothesis import settings

FEWEST = 5


def examples(full: int) -> int:
    """The number for `max_examples`: every day a share of it, as the quick profile's is of the full one's."""
    quick, profile = settings.get_profile("quick").max_examples, settings.default
    if profile is None or profile.max_examples > quick:
        return full
    return min(quick, max(FEWEST, full * quick // settings.get_profile("full").max_examples))


def daily(values: Iterable[object], *, one_in: int) -> list[object]:
    """The values, or tuples of values, of a parametrized test: one in so many every day, the others are `long`."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.long] * (at % one_in != 0))
        for at, value in enumerate(values)
    ]


def kills(usual: int) -> int:
    """How many processes a test kills: as many as ART_OTEL_KILLS says, where it is set."""
    return how_many("ART_OTEL_KILLS", usual)


def how_many(variable: str, usual: int) -> int:
    """A number that a variable of the environment may raise by hand."""
    return int(os.environ.get(variable, usual))
