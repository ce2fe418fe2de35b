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
    """Beginnings of texts with their lengths and what was read of them, the last first."""

    def __init__(self) -> None:
        self._last: tuple[tuple[int, _Text, _Known], ...] = ()

    def find(self, text: _Text, start: int = 0) -> tuple[int, _Known] | None:
        """How long a known beginning of `text[start:]` is, and what it was read as.

        It is the last that was kept, because a conversation mostly goes on with its last call, or else the longest.
        """
        last, longest = self._last, -1
        if last and text.startswith(last[0][1], start):
            return last[0][0], last[0][2]
        best: tuple[int, _Text, _Known] | None = None
        for known in last:
            if known[0] > longest and text.startswith(known[1], start):
                best, longest = known, known[0]
        return None if best is None else (longest, best[2])

    def keep(self, beginning: _Text, known: _Known) -> None:
        """Remember what the beginning of a text was read as."""
        length = len(beginning)
        if length <= REMEMBERED_LENGTH:
            # Replaced as a whole, so that threads of a live app need no lock.
            self._last = ((length, beginning, known), *self._last[: REMEMBERED - 1])
