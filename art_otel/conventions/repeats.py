"""Repeats: what was read last, so that a text which goes on with it is read only from where it goes on.

Most bytes of a dump repeat the history of a conversation. Invariant: memory holds at most `REMEMBERED` texts of at most
`REMEMBERED_LENGTH` each, and what is found is exactly what reading the same bytes again would give.
"""

from typing import Final, Generic, TypeVar

REMEMBERED: Final = 8
"""A few, because sub-agents and recorders alternate."""

REMEMBERED_LENGTH: Final = 2 << 20

_Text = TypeVar("_Text", str, bytes)
_Known = TypeVar("_Known")


class Repeats(Generic[_Text, _Known]):
    """Beginnings of texts and what was read of them, the last first."""

    def __init__(self) -> None:
        self._last: tuple[tuple[_Text, _Known], ...] = ()

    def find(self, text: _Text, start: int = 0) -> tuple[int, _Known] | None:
        """How long the longest known beginning of `text[start:]` is, and what it was read as."""
        best: tuple[_Text, _Known] | None = None
        for known in self._last:
            if (best is None or len(known[0]) > len(best[0])) and text.startswith(known[0], start):
                best = known
        return None if best is None else (len(best[0]), best[1])

    def keep(self, beginning: _Text, known: _Known) -> None:
        """Remember what the beginning of a text was read as."""
        if len(beginning) <= REMEMBERED_LENGTH:
            # Replaced as a whole, so that threads of a live app need no lock.
            self._last = ((beginning, known), *self._last[: REMEMBERED - 1])
