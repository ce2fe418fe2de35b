"""PrefixCache: what was read or judged of the history that prompts repeat."""

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
    """The beginning of a sequence in pieces, its length and its value."""

    length: int
    value: _ValueT
    pieces: tuple[_SequenceT, ...]


class PrefixCache(Generic[_SequenceT, _ValueT]):
    """What was parsed or judged last, the last kept first: only the rest of what begins with it is looked at.

    Most bytes of a dump repeat the history of a conversation. A sequence is a text (the JSON of messages, base64 of
    ids), or a tuple (messages); `is_at` says whether a piece stands at a position of one. Invariant: memory holds at
    most `REMEMBERED_PREFIXES` sequences a cache, each of at most `REMEMBERED_PREFIX_LENGTH` characters, and a cached
    value is exactly what the same sequence would give again.
    """

    def __init__(self, is_at: Callable[[_SequenceT, _SequenceT, int], bool]) -> None:
        self._is_at = is_at
        self._last: tuple[Prefix[_SequenceT, _ValueT], ...] = ()

    def find(self, sequence: _SequenceT, start: int = 0) -> Prefix[_SequenceT, _ValueT] | None:
        """A cached prefix of `sequence[start:]`.

        It is the last that was kept, because a conversation mostly continues its last call, or else the longest.
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
        """Cache the value of `sequence[start:end]`; `earlier` is the prefix that `find` gave for it."""
        length = (len(sequence) if end is None else end) - start
        if length > REMEMBERED_PREFIX_LENGTH:
            return
        if earlier is not None and length > _LONG and len(earlier.pieces) < _PIECES:
            pieces = (*earlier.pieces, sequence[start + earlier.length : end])
        else:
            pieces = (sequence[start:end],)
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = (Prefix(length, value, pieces), *self._last[: REMEMBERED_PREFIXES - 1])
