"""PrefixCache: the texts that were parsed last. Of a text that begins with one of them only the rest is parsed.

Most bytes of a dump repeat the history of a conversation. Invariant: memory holds at most `REMEMBERED` texts of at most
`REMEMBERED_LENGTH` each, and a cached value is exactly what parsing the same bytes again would give.
"""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

REMEMBERED: Final = 8
"""How many texts are kept: a few, because sub-agents and recorders alternate."""

REMEMBERED_LENGTH: Final = 2 << 20

_LONG: Final = 1 << 14
_PIECES: Final = 12
"""A prefix longer than `_LONG` is not copied when it grows: it is kept as at most so many pieces."""

TextT = TypeVar("TextT", str, bytes)
ValueT = TypeVar("ValueT")


class Prefix(msgspec.Struct, Generic[TextT, ValueT], frozen=True, gc=False):
    """The beginning of a text in pieces, its length, and the value that it was parsed to."""

    length: int
    value: ValueT
    pieces: tuple[TextT, ...]

    def begins(self, text: TextT, start: int) -> bool:
        """Whether `text[start:]` begins with the prefix."""
        return end_of(self.pieces, text, start) >= 0


def end_of(pieces: Iterable[TextT], text: TextT, start: int) -> int:
    """Where consecutive pieces end in a text that has them from `start` on; -1 where it has not."""
    for piece in pieces:
        if not text.startswith(piece, start):
            return -1
        start += len(piece)
    return start


class PrefixCache(Generic[TextT, ValueT]):
    """Prefixes of texts with their values, the last kept first."""

    def __init__(self) -> None:
        self._last: tuple[Prefix[TextT, ValueT], ...] = ()

    def find(self, text: TextT, start: int = 0) -> Prefix[TextT, ValueT] | None:
        """A cached prefix of `text[start:]`.

        It is the last that was kept, because a conversation mostly continues its last call, or else the longest.
        """
        recent, longest = self._last, None
        if recent and end_of(recent[0].pieces, text, start) >= 0:
            return recent[0]
        for candidate in recent:
            if (longest is None or candidate.length > longest.length) and candidate.begins(text, start):
                longest = candidate
        return longest

    def keep(
        self,
        text: TextT,
        value: ValueT,
        *,
        start: int = 0,
        end: int | None = None,
        earlier: Prefix[TextT, ValueT] | None = None,
    ) -> None:
        """Cache the value of `text[start:end]`; `earlier` is the prefix that `find` gave for it."""
        length = (len(text) if end is None else end) - start
        if length > REMEMBERED_LENGTH:
            return
        if earlier is not None and length > _LONG and len(earlier.pieces) < _PIECES:
            pieces = (*earlier.pieces, text[start + earlier.length : end])
        else:
            pieces = (text[start:end],)
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = (Prefix(length, value, pieces), *self._last[: REMEMBERED - 1])
