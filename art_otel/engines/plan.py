"""Plan: what is divided among tasks, decided from their summaries alone, and how much stands together.

Invariant: a plan follows from the summaries, so every engine makes the same one. Whoever assembles a slot has all that
belongs there. A plan knows sizes by region only, and tasks name files that say more: it fits in a small process.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from art_otel.engines.shuffle import SlotSize
from art_otel.scrubbing import Scrubbing
from art_otel.sources import Limits

_SPLITS: Final = 256
"""So many splits are wanted, as far as their least and most bytes let."""

_MAX_SPLITS: Final = 5_000
"""Beyond a terabyte splits grow instead: of each the plan takes in sizes for thousands of slots."""

_ItemT = TypeVar("_ItemT")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a conversion stands together. The defaults fit a laptop and a terabyte.

    They decide where parts end and how much memory a task takes, never which trajectories come out. All are numbers of
    bytes, but for `slots`: records are divided among so many by their trace ids; more are needed beyond a terabyte, and
    empty ones cost nothing. A task reads from `least_split` to `most_split` bytes of input, more where the input is
    beyond a terabyte. Neighboring slots are assembled together up to `partition_bytes`, and written into one part up to
    `part_bytes`, both of records that are not compressed. A process is worth starting for `worker_bytes` of input that
    is not compressed: two took 2.5 s where one took 1.8 s for 200 MB, 4.5 s where one took 5 s for 500 MB, and always
    twice the memory.
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
        return max(self.least_split, min(self.most_split, total // _SPLITS), total // _MAX_SPLITS)


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round, by its number. Times are in nanoseconds.

    What nothing came of for `grace` is given although it has not ended. What nothing came of since `horizon` is closed.
    """

    number: int
    now: int
    grace: int
    horizon: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a conversion have in common.

    They write into the folder or URL `scratch`, which is made when the conversion begins. `format` names a dump format,
    None detects it by content. `scrub` is for secrets in logs of agents. `round` is that of an incremental conversion.
    """

    scratch: str = ""
    sizes: Sizes
    limits: Limits = Limits()
    format: str | None = None
    scrub: Scrubbing = "on"
    rollout_spans: tuple[str, ...] = ()
    rollout_traces: bool = False
    round: Round | None = None


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """Neighboring slots that are assembled at once, at most how many bytes they have, and the most that one has."""

    slots: tuple[int, ...]
    bytes: int
    largest: SlotSize


def plan_parts(sizes: Mapping[int, SlotSize], slots: Iterable[int], most: Sizes) -> list[tuple[Partition, ...]]:
    """The partitions of these slots that become one part each; one part without any where there is nothing."""
    partitions = [
        Partition(
            slots=batch,
            bytes=sum(sizes[slot].bytes for slot in batch),
            largest=SlotSize(max(sizes[slot].records for slot in batch), max(sizes[slot].bytes for slot in batch)),
        )
        for batch in plan_regions(sizes, (slot for slot in slots if slot >= 0), most.partition_bytes)
    ]
    return _batches(partitions, lambda partition: partition.bytes, most.part_bytes) or [()]


def plan_regions(sizes: Mapping[int, SlotSize], regions: Iterable[int], most: int) -> list[tuple[int, ...]]:
    """Those of these regions that have something, neighbors together up to so many bytes."""
    return _batches(sorted(sizes.keys() & set(regions)), lambda region: sizes[region].bytes, most)


def _batches(items: Iterable[_ItemT], size_of: Callable[[_ItemT], int], most: int) -> list[tuple[_ItemT, ...]]:
    """The items in their order, each batch as long as it stays within `most` bytes; one item may be larger."""
    batches: list[list[_ItemT]] = []
    total = most
    for item in items:
        size = size_of(item)
        if not batches or total + size > most:
            batches.append([])
            total = 0
        batches[-1].append(item)
        total += size
    return [tuple(batch) for batch in batches]
