"""RepeatedPrompts: the flattened prompts that were read last, so that of one which goes on with them the rest is read.

Invariant: as for `repeats.PrefixCache`, and only entries of texts are remembered: other values may be equal and not be
written alike (`1` and `True`).
"""

from typing import Final

from art_otel.calls import Message
from art_otel.conventions.attributes import values
from art_otel.conventions.caches.prefix_cache import REMEMBERED, REMEMBERED_LENGTH
from art_otel.spans import Value

_Entries = list[tuple[str, Value]]


class RepeatedPrompts:
    """Prompts as so many entries (names and values) and as messages, with how many characters they have.

    The last stands first.
    """

    def __init__(self) -> None:
        self._last: tuple[tuple[int, _Entries, tuple[Message, ...], int], ...] = ()

    def find(self, entries: _Entries) -> tuple[int, tuple[Message, ...], int]:
        """How many entries the longest known beginning has, its messages, and its characters."""
        best: tuple[int, _Entries, tuple[Message, ...], int] | None = None
        longest = 0
        for candidate in self._last:
            if candidate[0] > longest and entries[: candidate[0]] == candidate[1]:
                best, longest = candidate, candidate[0]
        return (0, (), 0) if best is None else (longest, best[2], best[3])

    def keep(self, entries: _Entries, messages: tuple[Message, ...], length: int) -> None:
        """Remember what a prompt was read as."""
        if length <= REMEMBERED_LENGTH:
            # Replaced as a whole, so that threads of a live app need no lock.
            self._last = ((len(entries), entries, messages, length), *self._last[: REMEMBERED - 1])


OTHER: Final = REMEMBERED_LENGTH + 1
"""The length of what is not remembered."""


def length_of(value: Value) -> int:
    """How many characters the texts of a value have; `OTHER` or more where there is anything but texts."""
    if isinstance(value, str):
        return 1 + len(value)
    fields = values.mapping(value)
    inner = values.items(value) if fields is None else list(fields.values())
    return OTHER if inner is None else 1 + sum(map(length_of, inner))
