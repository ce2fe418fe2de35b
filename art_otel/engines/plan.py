"""Plan: what is divided among tasks, decided from their summaries alone.

Invariant: a plan follows from the summaries, so every engine makes the same one. Whoever assembles a slot has all that
belongs there: traces that are linked to one of another slot are rerouted to the slot of the smallest of them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from art_otel.engines.partitions import Partition
from art_otel.engines.shards import REWARDS, Shuffled, ShuffleFile, SlotSize, hash_of
from art_otel.engines.sizes import Sizes

_ItemT = TypeVar("_ItemT")


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where linked traces go.

    `representatives` leads from each trace to the smallest that it is linked to, `leaving` has for each slot the traces
    that leave it, with their new slots.
    """

    representatives: dict[str, str]
    leaving: dict[int, dict[str, int]]


def place(representatives: Mapping[str, str], slots: int) -> Placement:
    """Send linked traces to the slot of the smallest of them."""
    linked: dict[str, str] = {}
    leaving: dict[int, dict[str, int]] = defaultdict(dict)
    for trace_id, first in sorted(representatives.items()):
        if trace_id == first:
            continue
        linked[trace_id] = first
        slot, target = hash_of(trace_id) % slots, hash_of(first) % slots
        if slot != target:
            leaving[slot][trace_id] = target
    return Placement(representatives=linked, leaving=dict(leaving))


def total_sizes(shuffled: Iterable[Shuffled]) -> dict[int, SlotSize]:
    """How much is in each region of all files."""
    totals: dict[int, SlotSize] = {}
    for one in shuffled:
        for region, size in one.regions.items():
            totals[region] = totals[region] + size if region in totals else size
    return dict(sorted(totals.items()))


def files_with(shuffled: Iterable[Shuffled], regions: Iterable[int]) -> tuple[ShuffleFile, ...]:
    """The files that have something in one of these regions."""
    wanted = frozenset(regions)
    return tuple(one.file for one in shuffled if one.file is not None and not one.regions.keys().isdisjoint(wanted))


def link_batches(shuffled: Sequence[Shuffled], most: Sizes) -> list[tuple[int, ...]]:
    """The link regions that each link task takes."""
    sizes = total_sizes(shuffled)
    regions = [region for region in sizes if region < REWARDS]
    return _batches(regions, lambda region: sizes[region].bytes, most.partition_bytes)


def partitions(sizes: Mapping[int, SlotSize], most: Sizes) -> list[Partition]:
    """Neighboring slots together, up to `most.partition_bytes`."""
    slots = [region for region in sizes if region >= 0]
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


def reroute_batches(placement: Placement, direct: Sequence[Shuffled], most: Sizes) -> list[tuple[int, ...]]:
    """The slots that each reroute task takes."""
    sizes = total_sizes(direct)
    slots = sorted(slot for slot in placement.leaving if slot in sizes)
    return _batches(slots, lambda slot: sizes[slot].bytes, most.partition_bytes)


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


def by_slot(linked: Mapping[str, str], slots: int) -> dict[int, dict[str, str]]:
    """Linked traces and their representatives, for the slots of both."""
    traces: dict[int, dict[str, str]] = defaultdict(dict)
    for trace_id, first in linked.items():
        traces[hash_of(trace_id) % slots][trace_id] = first
        traces[hash_of(first) % slots][trace_id] = first
    return dict(traces)
