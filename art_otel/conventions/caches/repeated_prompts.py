"""RepeatedPrompts: the flattened prompts parsed last. Of a prompt that begins with one only the rest is parsed.

Invariant: that of `PrefixCache`, and only entries of texts are remembered: other values may be equal and not be
written alike (`1` and `True`).
"""

from typing import Final

from art_otel.calls import Message
from art_otel.conventions.attributes import values
from art_otel.conventions.caches.prefix_cache import REMEMBERED, REMEMBERED_LENGTH
from art_otel.spans import Value

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
