"""PrefixCache: what was parsed or judged last. Of a sequence that begins with one of them only the rest is looked at.

Most bytes of a dump repeat the history of a conversation. A sequence is a text (the JSON of messages, base64 of ids),
or a tuple (messages). Invariant: memory holds at most `REMEMBERED` sequences a cache,
each of at most `REMEMBERED_LENGTH` characters, and a cached value is exactly what the same sequence would give again.
"""

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

REMEMBERED: Final = 8
"""How many sequences are kept: a few, because sub-agents and recorders alternate."""

REMEMBERED_LENGTH: Final = 2 << 20

_LONG: Final = 1 << 14
_PIECES: Final = 12
"""A prefix longer than `_LONG` is not copied when it grows: it is kept as at most so many pieces."""

SequenceT = TypeVar("SequenceT", str, bytes, list[Any], tuple[Any, ...])
ValueT = TypeVar("ValueT")


class Prefix(msgspec.Struct, Generic[SequenceT, ValueT], frozen=True, gc=False):
    """The beginning of a sequence in pieces, its length and its value."""

    length: int
    value: ValueT
    pieces: tuple[SequenceT, ...]

    def begins(self, sequence: SequenceT, start: int) -> bool:
        """Whether `sequence[start:]` begins with the prefix."""
        return end_of(self.pieces, sequence, start) >= 0


def end_of(pieces: Iterable[SequenceT], sequence: SequenceT, start: int) -> int:
    """Where consecutive pieces end in a sequence that has them from `start` on; -1 where it has not."""
    for piece in pieces:
        if isinstance(sequence, (str, bytes)):
            stands_there = sequence.startswith(piece, start)  # pyright: ignore[reportArgumentType] # of its own type
        else:
            stands_there = sequence[start : start + len(piece)] == piece
        if not stands_there:
            return -1
        start += len(piece)
    return start


class PrefixCache(Generic[SequenceT, ValueT]):
    """Prefixes of sequences with their values, the last kept first."""

    def __init__(self) -> None:
        self._last: tuple[Prefix[SequenceT, ValueT], ...] = ()

    def find(self, sequence: SequenceT, start: int = 0) -> Prefix[SequenceT, ValueT] | None:
        """A cached prefix of `sequence[start:]`.

        It is the last that was kept, because a conversation mostly continues its last call, or else the longest.
        """
        recent, longest = self._last, None
        if recent and end_of(recent[0].pieces, sequence, start) >= 0:
            return recent[0]
        for candidate in recent:
            if (longest is None or candidate.length > longest.length) and candidate.begins(sequence, start):
                longest = candidate
        return longest

    def keep(
        self,
        sequence: SequenceT,
        value: ValueT,
        *,
        start: int = 0,
        end: int | None = None,
        earlier: Prefix[SequenceT, ValueT] | None = None,
    ) -> None:
        """Cache the value of `sequence[start:end]`; `earlier` is the prefix that `find` gave for it."""
        length = (len(sequence) if end is None else end) - start
        if length > REMEMBERED_LENGTH:
            return
        if earlier is not None and length > _LONG and len(earlier.pieces) < _PIECES:
            pieces = (*earlier.pieces, sequence[start + earlier.length : end])
        else:
            pieces = (sequence[start:end],)
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = (Prefix(length, value, pieces), *self._last[: REMEMBERED - 1])
