"""Partitions: the records of some slots, as groups that are assembled together.

Invariant: every record of a partition is in one group or set aside, and linked traces are in one group. A rollout
beyond the limits is set aside whole, before its records fill the memory. A partition that is larger than memory should
hold, which has a single slot, is read in passes, each for some of its traces.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec

from art_otel.engines.planning.sizes import Sizes
from art_otel.engines.shards import Arrival, Outcome, Shards, SlotSize, Stored, encode, hash_of, size_of
from art_otel.sources import Limits, advice, option_of
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey
from art_otel.spans.deduplicate import is_same
from art_otel.trajectories import OVER_A_LIMIT, AssemblyStats, ExternalReward, SpanGroup, distinct


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """Neighboring slots that are assembled at once, at most how many bytes they have, and the most that one has."""

    slots: tuple[int, ...]
    bytes: int
    largest: SlotSize


class PartitionRecords(NamedTuple):
    """Where the records of a partition are.

    `direct` are records in the slots of their traces, `rerouted` those that came from other slots. `representatives`
    leads each trace that is linked to others to the smallest of them; traces whose representative is in another slot
    have left.
    """

    partition: Partition
    direct: Shards
    rerouted: Shards
    representatives: Mapping[str, str]
    sizes: Sizes

    def has_left(self, trace_id: str) -> bool:
        """Whether the trace is assembled in another slot than its own."""
        target = self.representatives.get(trace_id)
        return target is not None and self._slot(target) != self._slot(trace_id)

    def _slot(self, trace_id: str) -> int:
        return hash_of(trace_id) % self.sizes.slots

    def representative(self, record: Stored) -> str:
        """The trace that stands for all that are linked to the one of a record."""
        trace_id = record.trace_id or ""
        return self.representatives.get(trace_id, trace_id)

    def records(self) -> Iterable[Stored]:
        """The records that are assembled here."""
        slots = self.partition.slots
        return self._assembled_here(self.direct.records(slots), self.rerouted.records(slots))

    def records_of_slots(self) -> Iterator[Iterable[Stored]]:
        """Read the records slot by slot. Memory holds all of them compressed."""
        slots = self.partition.slots
        direct, rerouted = self.direct.blocks(slots), self.rerouted.blocks(slots)
        for slot in slots:
            yield self._assembled_here(self.direct.decode(direct.pop(slot)), self.rerouted.decode(rerouted.pop(slot)))

    def _assembled_here(self, direct: Iterable[Stored], rerouted: Iterable[Stored]) -> Iterable[Stored]:
        if not self.representatives:
            return direct
        return chain((record for record in direct if not self.has_left(record.trace_id or "")), rerouted)


State: TypeAlias = Arrival | Outcome


class RecordGroup(NamedTuple):
    """Records that are assembled together, None where they are beyond a limit, and what earlier rounds say of them.

    `spans` and `logs` count them, each delivery.
    """

    records: SpanGroup | None
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
    """The wanted groups of a partition, each to be assembled before the next is asked for.

    What is set aside is counted.
    """
    partition, largest = where.partition, where.partition.largest
    fits = partition.bytes <= where.sizes.partition_bytes
    if fits and largest.records <= limits.max_rollout_spans and largest.bytes <= limits.max_rollout_bytes:
        for records in where.records_of_slots():  # a rollout is in one slot, so none is beyond a limit
            yield from _grouped(where, records, is_wanted)
        return
    beyond: list[RecordGroup] = []
    for representatives in _passes(where, limits, stats, is_wanted, beyond):
        chosen = (record for record in where.records() if where.representative(record) in representatives)
        yield from _grouped(where, _shared(chosen), _always)
    yield from beyond


class _Rollout:
    """How much there is of a rollout."""

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


def _passes(
    where: PartitionRecords,
    limits: Limits,
    stats: AssemblyStats,
    is_wanted: Callable[[Sequence[State]], bool],
    beyond: list[RecordGroup],
) -> Iterator[set[str]]:
    """The rollouts of each pass, by representative: as many as memory is meant to hold at once."""
    rollouts: dict[str, _Rollout] = defaultdict(_Rollout)
    for record in where.records():
        rollouts[where.representative(record)].add(record)
    chosen = set[str]()
    size = 0
    for representative, rollout in sorted(rollouts.items()):
        if not is_wanted(rollout.states):
            continue
        if _may_be_beyond(rollout, limits) and _is_beyond(where, representative, limits):
            _set_aside(where, representative, rollout, stats)
            beyond.append(RecordGroup(None, rollout.states, rollout.spans, rollout.logs))
            continue
        if chosen and size + rollout.bytes > where.sizes.partition_bytes:
            yield chosen
            chosen, size = set[str](), 0
        chosen.add(representative)
        size += rollout.bytes
    if chosen:
        yield chosen


def _may_be_beyond(rollout: _Rollout, limits: Limits) -> bool:
    return rollout.spans > limits.max_rollout_spans or rollout.bytes > limits.max_rollout_bytes


def _is_beyond(where: PartitionRecords, representative: str, limits: Limits) -> bool:
    """Whether the distinct records of a rollout are beyond a limit: a repeated delivery takes no memory."""
    sizes: dict[tuple[str, str | int], int] = {}
    spans = total = 0
    for record in where.records():
        if where.representative(record) == representative and isinstance(record, Span | LogRecord):
            encoded = encode(record)
            size = size_of([encoded]).bytes
            key = record.key if isinstance(record, Span) else (record.trace_id, zlib.crc32(encoded))
            spans += isinstance(record, Span) and key not in sizes
            total += max(0, size - sizes.get(key, 0))
            sizes[key] = max(size, sizes.get(key, 0))
            if spans > limits.max_rollout_spans or total > limits.max_rollout_bytes:
                return True
    return False


def _set_aside(where: PartitionRecords, representative: str, rollout: _Rollout, stats: AssemblyStats) -> None:
    limits = f"{advice('max_rollout_spans')}, or {option_of('max_rollout_bytes')}"
    detail = f"{rollout.spans:,} spans, {rollout.bytes:,} bytes are more than a rollout may have; {limits}"
    rewards: list[ExternalReward] = []
    traces: set[str] = set()
    for record in where.records():
        if where.representative(record) == representative:
            traces.add(record.trace_id or "")
            if isinstance(record, ExternalReward):
                rewards.append(record)
    stats.quarantine_trace(representative, spans=rollout.spans, logs=rollout.logs, detail=detail)
    stats.rewards_undeliverable[OVER_A_LIMIT] += sum(
        max(1, len(reward.address.links)) for reward in distinct(rewards) if reward.origin[0] not in traces
    )


def _grouped(
    where: PartitionRecords, records: Iterable[Stored], is_wanted: Callable[[Sequence[State]], bool]
) -> Iterator[RecordGroup]:
    """The records of each wanted group, in the order of the traces that stand for them."""
    groups: dict[str, list[Stored]] = defaultdict(list)
    representative_of = where.representatives.get
    for record in records:  # of which there are millions, so no call of ours for each
        trace_id = record.trace_id or ""
        groups[representative_of(trace_id, trace_id)].append(record)
    for representative in sorted(groups):
        group = groups.pop(representative)
        states = [record for record in group if isinstance(record, Arrival | Outcome)]
        if is_wanted(states):
            together = _group(group)
            yield RecordGroup(together, states, len(together.spans), len(together.logs))


def _group(records: Iterable[Stored]) -> SpanGroup:
    spans = [record for record in records if isinstance(record, Span)]
    others = [record for record in records if not isinstance(record, Span)]
    return SpanGroup(
        spans=spans,
        logs=[record for record in others if isinstance(record, LogRecord)],
        quarantine=[record for record in others if isinstance(record, Quarantined)],
        external_rewards=[record for record in others if isinstance(record, ExternalReward)],
    )


def _shared(records: Iterable[Stored]) -> Iterator[Stored]:
    """Equal deliveries of a span as one object: then they take no memory."""
    first: dict[SpanKey, Span] = {}
    for record in records:
        if isinstance(record, Span):
            earlier = first.setdefault(record.key, record)
            yield earlier if is_same(earlier, record) else record
        else:
            yield record
