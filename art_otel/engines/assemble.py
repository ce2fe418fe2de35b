"""Assemble: build the trajectories of neighboring slots, and write them into a part file.

    assemble    partitions -> groups of records -> trajectories -> rows of a part file

Partitions are assembled one after the other, so memory has the rows of one partition only. The rows of a partition are
in the order of their rollout ids.

Invariant: every record of a partition is in one group, or counted as over a limit; linked traces are in one group. A
group beyond the limits is left out as a whole, before its records fill the memory. A partition that does not fit into
the memory budget (it has a single slot) is read in several passes, each for some of its groups.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.calls import shared_tool_sets
from art_otel.engines.route import Placement
from art_otel.engines.run import Job, Sizes
from art_otel.engines.shuffle import (
    NOTHING,
    Arrival,
    Outcome,
    Shards,
    ShuffleCatalog,
    Shuffled,
    SlotSize,
    State,
    Stored,
    encode,
    hash_of,
    in_batches,
    plan_regions,
    size_of,
)
from art_otel.sources import Limits, advice, option_of
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey
from art_otel.spans.copies import is_same
from art_otel.store import Part, RowKey
from art_otel.trajectories import (
    OVER_A_LIMIT,
    AssemblyStats,
    ExternalReward,
    SpanGroup,
    Trajectory,
    build_trajectories,
    distinct,
    join_groups,
    with_token_facts,
)

if TYPE_CHECKING:
    from art_otel.engines.decisions import Decisions
    from art_otel.store.part_writer import FlatRow


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """Neighboring slots that are assembled at once, their bytes in all, and the size of the largest slot."""

    slots: tuple[int, ...]
    bytes: int
    largest: SlotSize


def plan_parts(sizes: Mapping[int, SlotSize], slots: Iterable[int], most: Sizes) -> list[tuple[Partition, ...]]:
    """Group slots into partitions, and partitions into parts; one part without partitions if there is no record."""
    partitions = [
        Partition(
            slots=batch,
            bytes=sum(sizes[slot].bytes for slot in batch),
            largest=SlotSize(max(sizes[slot].records for slot in batch), max(sizes[slot].bytes for slot in batch)),
        )
        for batch in plan_regions(sizes, (slot for slot in slots if slot >= 0), most.partition_bytes)
    ]
    return in_batches(partitions, lambda partition: partition.bytes, most.part_bytes) or [()]


class AssembleTask(msgspec.Struct, frozen=True, kw_only=True):
    """Assemble these partitions into part number `number`.

    `files` have the records that were read, the delivered rewards, and the records that were rerouted by `placement`.
    In an incremental round (`job.round`) only touched groups are assembled, and their outcomes are written, too.
    """

    number: int
    partitions: tuple[Partition, ...]
    files: ShuffleCatalog
    placement: Placement
    job: Job


class AssembledPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part at `location` in the scratch folder, and the counts of what became of its records.

    In an incremental round also the `outcomes` of traces, the keys of `superseded` rows, and `open_since`: the time of
    the longest waiting trace of each slot (ns).
    """

    part: Part
    location: str
    stats: AssemblyStats
    outcomes: Shuffled = NOTHING
    superseded: tuple[RowKey, ...] = ()
    open_since: dict[int, int] = {}


def assemble(task: AssembleTask) -> AssembledPart:
    """Assemble the partitions into a part."""
    from art_otel.store.part_writer import PartWriter  # noqa: PLC0415 # loads pyarrow, which no other task needs

    stats = AssemblyStats()
    location = storage.join(task.job.scratch, f"part-{uuid4().hex}")
    decisions = _decisions_of(task)
    with shared_tool_sets(), storage.staged(location) as path, PartWriter(path) as writer:
        for row in _rows(task, stats, decisions):
            writer.add_flat(row)
        part = writer.finish(task.number)
    if decisions is None:
        return AssembledPart(part=part, location=location, stats=stats)
    return AssembledPart(
        part=part,
        location=location,
        stats=stats,
        outcomes=decisions.write_outcomes(task.job.scratch),
        superseded=tuple(decisions.superseded),
        open_since=decisions.open_since,
    )


def _decisions_of(task: AssembleTask) -> "Decisions | None":
    if task.job.round is None:
        return None
    from art_otel.engines.decisions import Decisions  # noqa: PLC0415 # only rounds need it

    return Decisions(
        task.job.round,
        task.job.sizes.slots,
        task.number,
        with_traces=task.job.rollout_traces,
        rollout_attributes=task.job.rollout_attributes,
    )


def _rows(task: AssembleTask, stats: AssemblyStats, decisions: "Decisions | None") -> "Iterator[FlatRow]":
    """The rows of each partition, sorted.

    Each trajectory becomes a row as soon as it is built, so that memory does not have all trees of a partition: those
    of 10,000 rollouts take 80 MB.
    """
    from art_otel.store.part_writer import flatten_row  # noqa: PLC0415 # as above

    job, kept = task.job, frozenset(task.job.token_facts)
    regions = [slot for partition in task.partitions for slot in partition.slots]
    shards = Shards(task.files.files_with(regions), regions)
    representatives = task.placement.representatives(regions)
    for partition in task.partitions:
        rows: list[FlatRow] = []
        where = PartitionRecords(partition, shards, representatives, task.job.sizes)
        groups = groups_of(where, job.limits, stats, _always if decisions is None else decisions.is_wanted)
        for trajectories in _built(groups, partition.largest, task, stats, decisions):
            rows += [flatten_row(with_token_facts(one, kept), with_traces=job.rollout_traces) for one in trajectories]
        rows.sort(key=attrgetter("order"))
        yield from rows


_TOGETHER: Final = 128
"""The most spans that are built together."""

_TOGETHER_BYTES: Final = 4 << 20
"""About the most bytes of spans that are built together."""


def _built(
    groups: "Iterable[RecordGroup]",
    largest: SlotSize,
    task: AssembleTask,
    stats: AssemblyStats,
    decisions: "Decisions | None",
) -> Iterator[Iterable[Trajectory]]:
    """The trajectories of groups. Small groups are built together, but not in a round, which decides group by group."""
    spans, names = task.job.rollout_spans, task.job.rollout_attributes
    if decisions is not None:
        for group in groups:
            yield decisions.trajectories(group, spans, stats)
        return
    records = (group.records for group in groups)
    most = min(_TOGETHER, _TOGETHER_BYTES * largest.records // max(1, largest.bytes))
    for together in records if names else join_groups(records, most, spans):
        yield build_trajectories(together, spans, stats, rollout_attributes=names).trajectories


class PartitionRecords(NamedTuple):
    """Reads the records of a partition.

    `representatives` has for each linked trace the smallest trace id that it is linked to. If this has another slot,
    the trace was rerouted: its records are in both slots, and count only in the representative's slot.
    """

    partition: Partition
    shards: Shards
    representatives: Mapping[str, str]
    sizes: Sizes

    def representative(self, record: Stored) -> str:
        """The representative of the traces that a record's trace is linked to; without links the trace itself."""
        trace_id = record.trace_id or ""
        return self.representatives.get(trace_id, trace_id)

    def records(self) -> Iterator[Stored]:
        """The records that are assembled here. Memory has all of them, compressed."""
        return chain.from_iterable(self.records_by_bundles())

    def records_by_bundles(self) -> Iterator[Iterable[Stored]]:
        """The same records, bundle by bundle: slots that share blocks."""
        for lists in self.shards.bundles(self.partition.slots, self.sizes.bundle):
            yield chain.from_iterable(self._of_slot(slot, records) for slot, records in lists)

    def _of_slot(self, slot: int, records: Iterable[Stored]) -> Iterable[Stored]:
        if not self.representatives:
            return records
        slots, find = self.sizes.slots, self.representatives.get
        return (
            record
            for record in records
            if (target := find(record.trace_id or "")) is None or hash_of(target) % slots == slot
        )


class RecordGroup(NamedTuple):
    """Records that are assembled together, and the states of their traces in earlier rounds.

    `spans` and `logs` count the records with repeated deliveries, also of a group that is left out for its size.
    """

    records: SpanGroup
    states: Sequence[State]
    spans: int
    logs: int


def _always(_: Sequence[State]) -> bool:
    return True


def groups_of(
    where: PartitionRecords,
    limits: Limits,
    stats: AssemblyStats,
    is_wanted: Callable[[Sequence[State]], bool] = _always,
) -> Iterator[RecordGroup]:
    """The wanted groups of a partition. Assemble each before the next one, so that memory has one group only.

    Groups over a limit are counted in `stats` and have no records.
    """
    partition, largest = where.partition, where.partition.largest
    fits = partition.bytes <= where.sizes.partition_bytes
    if fits and largest.records <= limits.max_rollout_spans and largest.bytes <= limits.max_rollout_bytes:
        for records in where.records_by_bundles():  # no slot is over a limit, so no rollout in it is
            yield from _grouped(where, records, is_wanted)
        return
    aside: dict[str, _Amount] = {}
    for representatives in _passes(where, limits, stats, is_wanted, aside):
        chosen = (
            record
            for record in where.records()
            if (representative := where.representative(record)) in representatives
            and (representative not in aside or isinstance(record, Arrival | Outcome))
        )
        for group in _grouped(where, _shared(chosen), _always):
            amount = aside.get(where.representative(group.states[0])) if group.states else None
            yield group if amount is None else group._replace(spans=amount.spans, logs=amount.logs)


def _passes(
    where: PartitionRecords,
    limits: Limits,
    stats: AssemblyStats,
    is_wanted: Callable[[Sequence[State]], bool],
    aside: "dict[str, _Amount]",
) -> Iterator[set[str]]:
    """The representatives of the groups of each pass: as many groups as fit into the memory budget.

    Groups over the limits are counted and put into `aside`.
    """
    groups: dict[str, _Amount] = defaultdict(_Amount)
    for record in where.records():
        groups[where.representative(record)].add(record)
    chosen = set[str]()
    size = 0
    for representative, group in sorted(groups.items()):
        if not is_wanted(group.states):
            continue
        may_be_large = group.spans > limits.max_rollout_spans or group.bytes > limits.max_rollout_bytes
        if may_be_large and _is_large(where, representative, limits):
            aside[representative] = group
            _count_aside(where, representative, group, stats)
        held = 0 if representative in aside else group.bytes
        if chosen and size + held > where.sizes.partition_bytes:
            yield chosen
            chosen, size = set[str](), 0
        chosen.add(representative)
        size += held
    if chosen:
        yield chosen


class _Amount:
    """Counts of records with repeated deliveries."""

    def __init__(self) -> None:
        self.spans = self.logs = self.bytes = 0
        self.states: list[State] = []

    def add(self, record: Stored) -> None:
        if isinstance(record, Arrival | Outcome):
            self.states.append(record)
        elif isinstance(record, Span | LogRecord):
            self.spans += isinstance(record, Span)
            self.logs += isinstance(record, LogRecord)
            self.bytes += size_of([encode(record)]).bytes


def _is_large(where: PartitionRecords, representative: str, limits: Limits) -> bool:
    """Whether a group is over the limits. Repeated deliveries count once, because they take no memory (`_shared`)."""
    sizes: dict[SpanKey | int, int] = {}
    spans = total = 0
    for record in where.records():
        if isinstance(record, Span | LogRecord) and where.representative(record) == representative:
            encoded = encode(record)
            key, size = record.key if isinstance(record, Span) else zlib.crc32(encoded), size_of([encoded]).bytes
            before = sizes.get(key, 0)
            sizes[key] = max(size, before)
            spans += isinstance(record, Span) and not before
            total += sizes[key] - before
            if spans > limits.max_rollout_spans or total > limits.max_rollout_bytes:
                return True
    return False


def _count_aside(where: PartitionRecords, representative: str, group: _Amount, stats: AssemblyStats) -> None:
    """Count a group that is left out, and the rewards that other groups gave it."""
    limits = f"{advice('max_rollout_spans')}, or {option_of('max_rollout_bytes')}"
    detail = f"{group.spans:,} spans, {group.bytes:,} bytes are more than a rollout may have; {limits}"
    stats.quarantine_trace(representative, spans=group.spans, logs=group.logs, detail=detail)
    rewards = [
        record
        for record in where.records()
        if isinstance(record, ExternalReward) and where.representative(record) == representative
    ]
    stats.rewards_undeliverable[OVER_A_LIMIT] += sum(
        max(1, len(reward.address.links))
        for reward in distinct(rewards)
        if where.representatives.get(reward.origin[0], reward.origin[0]) != representative
    )


def _grouped(
    where: PartitionRecords, records: Iterable[Stored], is_wanted: Callable[[Sequence[State]], bool]
) -> Iterator[RecordGroup]:
    """The records of each wanted group, in the order of the groups' representatives."""
    groups: dict[str, list[Stored]] = defaultdict(list)
    representative_of = where.representatives.get
    for record in records:  # there are millions, so no Python function of our own is called for each
        trace_id = record.trace_id or ""
        groups[representative_of(trace_id, trace_id)].append(record)
    for representative in sorted(groups):
        group = groups.pop(representative)
        states = [record for record in group if isinstance(record, _STATES)]
        if is_wanted(states):
            together = _group(group)
            yield RecordGroup(together, states, len(together.spans), len(together.logs))


_STATES: Final = (Arrival, Outcome)  # `isinstance(record, Arrival | Outcome)` would make a union for each record


def _group(records: Sequence[Stored]) -> SpanGroup:
    spans = [record for record in records if isinstance(record, Span)]
    if len(spans) == len(records):  # fast path: most groups have spans only
        return SpanGroup(spans=spans, external_rewards=())
    others = [record for record in records if not isinstance(record, Span)]
    return SpanGroup(
        spans=spans,
        logs=[record for record in others if isinstance(record, LogRecord)],
        quarantine=[record for record in others if isinstance(record, Quarantined)],
        external_rewards=[record for record in others if isinstance(record, ExternalReward)],
    )


def _shared(records: Iterable[Stored]) -> Iterator[Stored]:
    """Replace equal deliveries of a span by one object, so that repeats take no memory."""
    first: dict[SpanKey, Span] = {}
    for record in records:
        if isinstance(record, Span):
            earlier = first.setdefault(record.key, record)
            yield earlier if is_same(earlier, record) else record
        else:
            yield record
