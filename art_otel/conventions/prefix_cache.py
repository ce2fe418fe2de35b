"""PrefixCache: the texts that were parsed last. Of a text that begins with one of them only the rest is parsed.

Most bytes of a dump repeat the history of a conversation. Invariant: memory holds at most `REMEMBERED` texts of at most
`REMEMBERED_LENGTH` each, and a cached value is exactly what parsing the same bytes again would give.


@@@ RepeatedPrompts: the flattened prompts parsed last. Of a prompt that begins with one only the rest is parsed.

Invariant: that of `PrefixCache`, and only entries of texts are remembered: other values may be equal and not be
written alike (`1` and `True`).
"""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from art_otel.calls import Message
from art_otel.conventions import values
from art_otel.spans import Value

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


_Entries = list[tuple[str, Value]]


class RepeatedPrompts:
    """Prompts, the last kept first: number of entries (names and values), entries, messages, number of characters."""

    def __init__(self) -> None:
        self._last: tuple[tuple[int, _Entries, tuple[Message, ...], int], ...] = ()

    def find(self, entries: _Entries) -> tuple[int, tuple[Message, ...], int]:
        """The longest cached prefix of a prompt: its number of entries, its messages, and its number of characters."""
        best: tuple[int, _Entries, tuple[Message, ...], int] | None = None
        longest = 0
        for candidate in self._last:
            if candidate[0] > longest and entries[: candidate[0]] == candidate[1]:
                best, longest = candidate, candidate[0]
        return (0, (), 0) if best is None else (longest, best[2], best[3])

    def keep(self, entries: _Entries, messages: tuple[Message, ...], length: int) -> None:
        """Cache the messages of a prompt."""
        if length <= REMEMBERED_LENGTH:
            # Replaced as a whole, so that threads of a live app need no lock.
            self._last = ((len(entries), entries, messages, length), *self._last[: REMEMBERED - 1])


OTHER: Final = REMEMBERED_LENGTH + 1
"""The length of a prompt that is not cached."""


def length_of(value: Value) -> int:
    """The number of characters in the texts of a value; `OTHER` or more when it has anything but texts."""
    if isinstance(value, str):
        return 1 + len(value)
    fields = values.mapping(value)
    inner = values.items(value) if fields is None else list(fields.values())
    return OTHER if inner is None else 1 + sum(map(length_of, inner))
