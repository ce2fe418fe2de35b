"""Order: in which windows a dataset is read, and how a window is shuffled.

Invariant: the order follows from the number of chunks and these values alone. Without a seed it is the files' order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np
from msgspec import Meta

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """Windows are `shuffle_buffer` chunks that are in memory, and shuffled, together.

    `worker` is (index, count): of several workers, each reads every `count`-th trajectory, so that all have equal
    shares of small datasets too.
    """

    seed: Annotated[int, Meta(ge=0)] | None = None
    epoch: Annotated[int, Meta(ge=0)] = 0
    shuffle_buffer: Annotated[int, Meta(ge=1)] = 4
    worker: tuple[int, int] = (0, 1)

    def windows(self, chunks: Sequence[Item]) -> list[tuple[Item, ...]]:
        """The chunks of each window, in the order of reading."""
        ordered, size = self.shuffled(chunks, 0), self.shuffle_buffer
        return [tuple(ordered[start : start + size]) for start in range(0, len(chunks), size)]

    def share(self, numbers: range) -> range:
        """Select this worker's trajectories of consecutive ones."""
        index, count = self.worker
        return numbers[(index - numbers.start) % count :: count]

    def shuffled(self, items: Sequence[Item], number: int) -> list[Item]:
        """The items in an order of their own for each `number`."""
        if self.seed is None:
            return list(items)
        return [
            items[index] for index in np.random.default_rng([self.seed, self.epoch, number]).permutation(len(items))
        ]
