"""Marks: whether a text may hold a secret, found in about a nanosecond a character.

Invariant: no pattern matches in a text in which nothing is found; the contrary may be, and only costs time. The way
to be fast: rare characters, of which every mark has one, are all folded into one character, so that the regex engine
jumps from one of them to the next and only then looks around.
"""

import re
from collections.abc import Iterable
from typing import Final

from art_otel.tracing.redaction.patterns import SecretPattern

_RARE: Final = "-_bBIJKzZ"
_FOLD: Final = bytes(ord("-") if chr(code) in _RARE else code for code in range(256))


_CONTEXT: Final = 2
"""Characters before the rare one by which most places are passed over."""


class Marks:
    """The marks of patterns that all have some."""

    def __init__(self, patterns: Iterable[SecretPattern]) -> None:
        marks = sorted({_folded(mark) for pattern in patterns for mark in pattern.marks})
        last = [mark for mark in marks if mark.endswith("-") and len(mark) > _CONTEXT]
        branches = [_around(mark) for mark in marks if mark not in last]
        if last:
            before = [_one_of(mark[place - 1] for mark in last) for place in range(-_CONTEXT, 0)]
            branches.append(f"(?<={''.join(before)}-)(?:{'|'.join(map(_around, last))})")
        self._regex = re.compile(f"-(?:{'|'.join(branches or ['(?!)'])})".encode())

    def found(self, text: str) -> bool:
        """Whether there is any."""
        return self._regex.search(_fold(text)) is not None


def _fold(text: str) -> bytes:
    return text.encode("ascii", "replace").translate(_FOLD)


def _folded(mark: str) -> str:
    """Raises ValueError for a mark without a rare character."""
    folded = _fold(mark).decode()
    if "-" not in folded:
        raise ValueError(f"the mark {mark!r} needs one of the characters {_RARE}")
    return folded


def _around(mark: str) -> str:
    """A regex for what follows the last rare character of a mark, and then for all of it."""
    return rf"{re.escape(mark.rpartition('-')[2])}(?<={re.escape(mark)})"


def _one_of(letters: Iterable[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(set(letters))))}]"
