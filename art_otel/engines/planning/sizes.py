"""Sizes: how much of a conversion stands together. The defaults fit a laptop and a terabyte.

Invariant: they decide where parts end and how much memory a task takes, never which trajectories come out.
"""

import msgspec

_SPLITS = 256
"""So many splits are wanted, as far as their least and most bytes let."""


_MOST_SPLITS = 5_000
"""Beyond a terabyte splits grow instead: of each the plan takes in sizes for thousands of slots."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of bytes, but for `slots`.

    Records are divided among `slots` by their trace ids: more are needed beyond a terabyte, and empty ones cost
    nothing. A task reads from `least_split` to `most_split` bytes of input, more
    where the input is beyond a terabyte. Neighboring slots are assembled together up
    to `partition_bytes`, and written into one part up to `part_bytes`, both of records that are not compressed. A
    process is worth starting for `worker_bytes` of input that is not compressed: two took 2.5 s where one took 1.8 s
    for 200 MB, 4.5 s where one took 5 s for 500 MB, and always twice the memory.
    """

    slots: int = 4096
    least_split: int = 16 << 20
    most_split: int = 128 << 20
    partition_bytes: int = 64 << 20
    part_bytes: int = 128 << 20
    worker_bytes: int = 256 << 20

    def split_bytes(self, total: int | None) -> int:
        """How many bytes of so many, or of an unknown number, one task reads."""
        if total is None:
            return self.most_split
        return max(self.least_split, min(self.most_split, total // _SPLITS), total // _MOST_SPLITS)
