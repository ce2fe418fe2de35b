"""Plan: what is divided among tasks, decided from their summaries alone.

Invariant: a plan follows from the summaries, so every engine makes the same one. Whoever assembles a slot has all that
belongs there. A plan knows sizes by slot only, and tasks name files that say more, so that it fits in a small process.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from art_otel.engines.planning.partitions import Partition
from art_otel.engines.planning.sizes import Sizes
from art_otel.engines.shards import REWARDS, SlotSize

_ItemT = TypeVar("_ItemT")


def link_batches(sizes: Mapping[int, SlotSize], most: Sizes) -> list[tuple[int, ...]]:
    """The link regions that each link task takes."""
    regions = [region for region in sorted(sizes) if region < REWARDS]
    return _batches(regions, lambda region: sizes[region].bytes, most.partition_bytes)


def merge_batches(sizes: Mapping[int, SlotSize], most: Sizes) -> list[tuple[int, ...]]:
    """The regions that each merge task takes."""
    return _batches(sorted(sizes), lambda region: sizes[region].bytes, most.part_bytes)


def partitions(sizes: Mapping[int, SlotSize], most: Sizes) -> list[Partition]:
    """Neighboring slots together, up to `most.partition_bytes`."""
    slots = [region for region in sorted(sizes) if region >= 0]
    return [
        Partition(
            slots=batch,
            bytes=sum(sizes[slot].bytes for slot in batch),
            largest=SlotSize(max(sizes[slot].records for slot in batch), max(sizes[slot].bytes for slot in batch)),
        )
        for batch in _batches(slots, lambda slot: sizes[slot].bytes, most.partition_bytes)
    ]


def parts(planned: Iterable[Partition], most: Sizes) -> list[tuple[Partition, ...]]:
    """Consecutive partitions together, as many as become one part; one part without any where there are none."""
    return _batches(planned, lambda partition: partition.bytes, most.part_bytes) or [()]


def reroute_batches(leaving: Sequence[int], sizes: Mapping[int, SlotSize], most: Sizes) -> list[tuple[int, ...]]:
    """The slots that each reroute task takes, of those that traces leave."""
    return _batches([slot for slot in leaving if slot in sizes], lambda slot: sizes[slot].bytes, most.partition_bytes)


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
