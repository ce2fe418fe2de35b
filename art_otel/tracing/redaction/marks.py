"""Marks: where in a text a secret may be, found in about a nanosecond a character.

Invariant: no pattern matches in a text in which no position is found; the contrary may be, and only costs time. The way
to be fast: rare characters, of which every mark has one, are all folded into one character, so that the regex engine
jumps from one of them to the next and only then looks around. A secret written with escapes of JSON for plain ASCII
letters has no mark; so such escapes are positions too.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from art_otel.tracing.redaction.patterns import ESCAPES, SecretPattern

_RARE: Final = "-_@bBIJKzZ"
_FOLD: Final = bytes(ord("-") if chr(code) in _RARE else code for code in range(256))
_CONTEXT: Final = 2
"""Characters before the rare one by which most of them are passed over."""

_ESCAPED: Final = re.compile(r"\\u00[2-7]")


class Marks:
    """The marks of patterns that all have some."""

    def __init__(self, patterns: Sequence[SecretPattern]) -> None:
        marks = {mark for pattern in patterns for mark in pattern.marks}
        self._folded = _compile({_folded(mark) for mark in marks if len(mark) > 1})
        self._tried = [(mark, pattern.regex) for pattern in patterns for mark in pattern.marks if len(mark) == 1]

    def found(self, text: str) -> bool:
        """Whether there is any position."""
        if self._folded.search(_fold(text)) is not None:
            return True
        if "\\" in text and "\\u00" in text and _ESCAPED.search(text) is not None:
            return True
        return any(sign in text and regex.search(text) is not None for sign, regex in self._tried)

    def positions(self, text: str) -> list[int]:
        """The positions, ascending. Each lies in what a pattern would match."""
        if not self.found(text):
            return []
        found = [match.start() for match in self._folded.finditer(_fold(text))]
        for regex in (_ESCAPED, *(regex for _, regex in self._tried)):
            found += [match.start() for match in regex.finditer(text)]
        return sorted(found)


def _fold(text: str) -> bytes:
    """One byte a character, so that positions stay."""
    return text.encode("ascii", "replace").translate(_FOLD)


@dataclass(frozen=True, slots=True)
class _Folded:
    """A folded mark, and where its rare character is."""

    text: str
    rare: int

    @property
    def before(self) -> str:
        """What stands before the rare character."""
        return self.text[: self.rare]

    @property
    def around(self) -> str:
        """A regex for what follows the rare character, which fails fastest, and then for what stands before it."""
        whole, behind = re.escape(self.text), re.escape(self.text[self.rare + 1 :])
        breaks = (rf"(?<![A-Za-z0-9]{whole})", *(rf"(?<={_fold(escape).decode()}{whole})" for escape in ESCAPES))
        return rf"{behind}(?<={whole})(?:{'|'.join(breaks)})"


def _folded(mark: str) -> _Folded:
    """Raises ValueError for a mark without a rare character."""
    text = _fold(mark).decode()
    rare = [position for position, letter in enumerate(text) if letter == "-"]
    if not rare:
        raise ValueError(f"the mark {mark!r} needs one of the characters {_RARE}")
    return _Folded(text, next((position for position in rare if position >= _CONTEXT), rare[0]))


def _compile(marks: set[_Folded]) -> re.Pattern[bytes]:
    """The regex for folded texts: a literal, what passes over most places, what over most of the rest, then all."""
    ordered = sorted(marks, key=lambda mark: mark.text)
    branches = [mark.around for mark in ordered if mark.rare < _CONTEXT]
    far = [mark for mark in ordered if mark.rare >= _CONTEXT]
    if far:
        letters = [_one_of(mark.before[place] for mark in far) for place in range(-_CONTEXT, 0)]
        widths = [{mark.before for mark in far if mark.rare == width} for width in {mark.rare for mark in far}]
        known = "|".join(f"(?<={'|'.join(f'{re.escape(before)}-' for before in sorted(width))})" for width in widths)
        whole = "|".join(mark.around for mark in far)
        branches.append(f"(?<={''.join(letters)}-)(?:{known})(?:{whole})")
    return re.compile(f"-(?:{'|'.join(branches or ['(?!)'])})".encode())


def _one_of(letters: Iterable[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(set(letters))))}]"
