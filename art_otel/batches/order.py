"""Order: in which windows a dataset is read, and how a window is shuffled.

Invariant: the order follows from the number of chunks and these values alone. Without a seed it is the files' order.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """Windows are `window` chunks that are in memory, and shuffled, together.

    `shard` is (index, count): of several readers, each reads every `count`-th trajectory, so that all have equal shares
    of small datasets too.
    """

    seed: int | None = None
    epoch: int = 0
    window: int = 4
    shard: tuple[int, int] = (0, 1)

    def windows(self, chunks: Items[Item]) -> list[tuple[Item, ...]]:
        """The chunks of each window, in the order of reading."""
        ordered = self.shuffled(chunks, 0)
        return [tuple(ordered[start : start + self.window]) for start in range(0, len(chunks), self.window)]

    def own(self, numbers: range) -> range:
        """Those of consecutive trajectories that are this reader's."""
        index, count = self.shard
        return numbers[(index - numbers.start) % count :: count]

    def shuffled(self, items: Items[Item], number: int) -> list[Item]:
        """The items in an order of their own for each `number`."""
        if self.seed is None:
            return list(items)
        return [
            items[place] for place in np.random.default_rng([self.seed, self.epoch, number]).permutation(len(items))
        ]
