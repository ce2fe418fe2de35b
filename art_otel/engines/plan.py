"""Plan: what is divided among tasks, decided from their summaries alone, and how much stands together.

Invariant: a plan follows from the summaries, so every engine makes the same one. Whoever assembles a slot has all that
belongs there. A plan knows sizes by region only, and tasks name files that say more: it fits in a small process.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from art_otel.engines.shuffle import Membership, Shards, Shuffle, ShuffleCatalog, ShuffleWriter, SlotSize, hash_of
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


_ID_BYTES: Final = 16


class Links:
    """Traces, and for each the smallest that it is linked to: a disjoint set.

    An edge is the bytes of two trace ids; several may stand in one value.
    """

    def __init__(self, edges: Iterable[bytes]) -> None:
        self._parents: dict[bytes, bytes] = {}
        for several in edges:
            for at in range(0, len(several), 2 * _ID_BYTES):
                middle = at + _ID_BYTES
                self._join(several[at:middle], several[middle : middle + _ID_BYTES])

    def __len__(self) -> int:
        return len(self._parents)

    def linked(self) -> Iterator[tuple[bytes, bytes]]:
        """The traces that are linked to a smaller one, each with the smallest."""
        for trace in self._parents:
            if (root := self._root(trace)) != trace:
                yield trace, root

    def _join(self, first: bytes, second: bytes) -> None:
        low, high = sorted((self._root(first), self._root(second)))
        self._parents[high] = low

    def _root(self, trace: bytes) -> bytes:
        parents = self._parents
        parent = parents.setdefault(trace, trace)
        while parent != trace:
            parents[trace] = parents[parent]
            trace, parent = parents[trace], parents[parents[trace]]
        return trace


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where linked traces go: each, with its representative, is named in its own slot and in that of the other."""

    files: ShuffleCatalog
    slots: int

    def slot_of(self, trace_id: str) -> int:
        """The slot of a trace."""
        return hash_of(trace_id) % self.slots

    def representatives(self, slots: Collection[int]) -> dict[str, str]:
        """For each linked trace of these slots, or that comes to them, the smallest that it is linked to."""
        records = Shards(self.files.files_with(slots), slots).records(slots)
        return {record.trace_id: record.name for record in records if isinstance(record, Membership)}

    def leaving(self, slots: Collection[int]) -> dict[str, int]:
        """The traces that leave these slots, with their new ones."""
        wanted = frozenset(slots)
        targets = {trace: self.slot_of(first) for trace, first in self.representatives(wanted).items()}
        return {trace: to for trace, to in targets.items() if (slot := self.slot_of(trace)) in wanted and slot != to}


def place(edges: Sequence[bytes], slots: int, folder: str) -> tuple[Placement, list[int]]:
    """Write down where linked traces go. Also gives the slots that any of them leaves."""
    digest = hashlib.sha256()
    for several in edges:
        digest.update(several)
    writer = ShuffleWriter(folder, slots, f"placement-{digest.hexdigest()[:32]}")  # the same where a conversion goes on
    leaving: set[int] = set()
    for trace, representative in Links(edges).linked():
        record = Membership(representative.hex(), trace.hex())
        slot, target = hash_of(record.trace_id) % slots, hash_of(record.name) % slots
        for region in {slot, target}:
            writer.put(region, record)
        if slot != target:
            leaving.add(slot)
    return Placement(files=Shuffle([writer.finish()]).write_catalog(folder), slots=slots), sorted(leaving)
