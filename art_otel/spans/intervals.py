"""IntervalIndex: which items were running at a moment."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class IntervalIndex(Generic[_Item]):
    """Finds items by the time they ran: O(n log n) to build, O(log n) per query."""

    def __init__(self, times: Iterable[tuple[int, int | None, _Item]]) -> None:
        """Take each item with its first and last moment in nanoseconds; a last moment of None has not come yet."""
        self._items: list[_Item] = []
        changes: list[tuple[int, int, int]] = []
        for position, (first, last, item) in enumerate(times):
            self._items.append(item)
            changes.append((first, 1, position))
            if last is not None:
                changes.append((last + 1, -1, -position))
        changes.sort()
        self._moments = [moment for moment, _, _ in changes]
        self._counts = list(accumulate(count for _, count, _ in changes))
        # While one item runs, the sum of the positions of all that run is its position.
        self._positions = list(accumulate(position for _, _, position in changes))

    def only_at(self, moment: int) -> _Item | None:
        """The item that was running at a moment, if just one was."""
        last_change = bisect_right(self._moments, moment) - 1
        if last_change < 0 or self._counts[last_change] != 1:
            return None
        return self._items[self._positions[last_change]]

    def count_at(self, moment: int) -> int:
        """How many items were running at a moment."""
        last_change = bisect_right(self._moments, moment) - 1
        return 0 if last_change < 0 else self._counts[last_change]
