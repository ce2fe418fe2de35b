"""PrefixCache: keeps results for the beginnings of sequences.

    cache.keep((m1, m2), judged)
    cache.find((m1, m2, m3))         the prefix (m1, m2) with its result: only m3 must be judged

Each prompt of a conversation repeats the one before, so most of it was read or judged already.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

REMEMBERED_PREFIXES: Final = 8
"""How many sequences a cache keeps: a few, because sub-agents and recorders alternate."""

REMEMBERED_PREFIX_LENGTH: Final = 2 << 20

_LONG: Final = 1 << 14
_PIECES: Final = 12
"""A prefix longer than `_LONG` is not copied when it grows: it is kept as at most so many pieces."""

_SequenceT = TypeVar("_SequenceT", str, tuple[Any, ...])
_ValueT = TypeVar("_ValueT")


class Prefix(msgspec.Struct, Generic[_SequenceT, _ValueT], frozen=True, gc=False):
    """The beginning of a sequence, in pieces, with its length and the result for it."""

    length: int
    value: _ValueT
    pieces: tuple[_SequenceT, ...]


class PrefixCache(Generic[_SequenceT, _ValueT]):
    """Results for the latest sequences, the last one first.

    A sequence is a text (JSON of messages, base64 of ids) or a tuple (of messages); `is_at(sequence, piece, position)`
    says whether the sequence has the piece there. Invariant: a cache has at most `REMEMBERED_PREFIXES` sequences, each
    of at most `REMEMBERED_PREFIX_LENGTH` items, and a cached result is equal to a newly computed one.
    """

    def __init__(self, is_at: Callable[[_SequenceT, _SequenceT, int], bool]) -> None:
        self._is_at = is_at
        self._last: tuple[Prefix[_SequenceT, _ValueT], ...] = ()

    def find(self, sequence: _SequenceT, start: int = 0) -> Prefix[_SequenceT, _ValueT] | None:
        """Find a cached prefix of `sequence[start:]`: the one that was kept last, else the longest; None without one.

        The last one is tried first, because a conversation mostly continues its last call.
        """
        last, is_at = self._last, self._is_at
        longest = None
        for candidate in last:
            if longest is not None and candidate.length <= longest.length:
                continue
            position = start
            for piece in candidate.pieces:
                if not is_at(sequence, piece, position):
                    break
                position += len(piece)
            else:
                if candidate is last[0]:
                    return candidate
                longest = candidate
        return longest

    def keep(
        self,
        sequence: _SequenceT,
        value: _ValueT,
        *,
        start: int = 0,
        end: int | None = None,
        earlier: Prefix[_SequenceT, _ValueT] | None = None,
    ) -> None:
        """Cache the result for `sequence[start:end]`; `earlier` is the prefix that `find` gave for it."""
        length = (len(sequence) if end is None else end) - start
        if length > REMEMBERED_PREFIX_LENGTH:
            return
        if earlier is not None and length > _LONG and len(earlier.pieces) < _PIECES:
            pieces = (*earlier.pieces, sequence[start + earlier.length : end])
        else:
            pieces = (sequence[start:end],)
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = (Prefix(length, value, pieces), *self._last[: REMEMBERED_PREFIXES - 1])
