"""PrefixCache: what was read last, so that a text which goes on with it is read only from where it goes on.

Most bytes of a dump repeat the history of a conversation. Invariant: memory holds at most `REMEMBERED` texts of at most
`REMEMBERED_LENGTH` each, and what is found is exactly what reader the same bytes again would give.
"""

from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

REMEMBERED: Final = 8
"""A few, because sub-agents and recorders alternate."""

REMEMBERED_LENGTH: Final = 2 << 20

_LONG: Final = 1 << 14
_PIECES: Final = 12
"""Beginnings that are longer than the one are not copied when they go on, but remembered as so many pieces at most."""

TextT = TypeVar("TextT", str, bytes)
KnownT = TypeVar("KnownT")


class Prefix(NamedTuple, Generic[TextT, KnownT]):
    """The beginning of a text in pieces, how long it is, and what it was read as."""

    length: int
    known: KnownT
    pieces: tuple[TextT, ...]

    def begins(self, text: TextT, start: int) -> bool:
        """Whether `text[start:]` begins so."""
        return end_of(self.pieces, text, start) >= 0


def end_of(pieces: Iterable[TextT], text: TextT, start: int) -> int:
    """Where pieces that follow each other end in a text, the first of which begins at `start`; -1 where they do not."""
    for piece in pieces:
        if not text.startswith(piece, start):
            return -1
        start += len(piece)
    return start


class PrefixCache(Generic[TextT, KnownT]):
    """Beginnings of texts, the last first."""

    def __init__(self) -> None:
        self._last: tuple[Prefix[TextT, KnownT], ...] = ()

    def find(self, text: TextT, start: int = 0) -> Prefix[TextT, KnownT] | None:
        """A known beginning of `text[start:]`.

        It is the last that was kept, because a conversation mostly goes on with its last call, or else the longest.
        """
        last, best = self._last, None
        if last and last[0].begins(text, start):
            return last[0]
        for known in last:
            if (best is None or known.length > best.length) and known.begins(text, start):
                best = known
        return best

    def keep(
        self,
        text: TextT,
        known: KnownT,
        *,
        start: int = 0,
        end: int | None = None,
        earlier: Prefix[TextT, KnownT] | None = None,
    ) -> None:
        """Remember what `text[start:end]` was read as; `earlier` is what `find` found for it."""
        length = (len(text) if end is None else end) - start
        if length > REMEMBERED_LENGTH:
            return
        if earlier is not None and length > _LONG and len(earlier.pieces) < _PIECES:
            pieces = (*earlier.pieces, text[start + earlier.length : end])
        else:
            pieces = (text[start:end],)
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = (Prefix(length, known, pieces), *self._last[: REMEMBERED - 1])
