"""Partitions: the records of some slots, as groups that are assembled together.

Invariant: every record of a partition is in one group or set aside, and linked traces are in one group. A rollout
beyond the limits is set aside whole, before its records fill the memory. A partition that is larger than memory should
hold, which has a single slot, is read in passes, each for some of its traces.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from art_otel.engines.shards import Entry, Shards, Stored, hash_of
from art_otel.engines.sizes import Sizes
from art_otel.sources import Limits, advice, option_of
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey
from art_otel.spans.deduplicate import is_same
from art_otel.trajectories import OVER_A_LIMIT, AssemblyStats, ExternalReward, SpanGroup, distinct


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """Neighboring slots that are assembled at once, and at most how many records and bytes they have."""

    slots: tuple[int, ...]
    records: int
    bytes: int


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

    def representative(self, trace_id: str) -> str:
        """The trace that stands for all that are linked to this one."""
        return self.representatives.get(trace_id, trace_id)

    def has_left(self, trace_id: str) -> bool:
        """Whether the trace is assembled in another slot than its own."""
        target = self.representatives.get(trace_id)
        return target is not None and self._slot(target) != self._slot(trace_id)

    def _slot(self, trace_id: str) -> int:
        return hash_of(trace_id) % self.sizes.slots

    def entries(self) -> Iterator[Entry]:
        """Every record that is assembled here, and those of traces that have left."""
        yield from self.direct.entries(self.partition.slots)
        yield from self.rerouted.entries(self.partition.slots)

    def records(self, hashes: Collection[int] | None = None) -> Iterator[tuple[str, Stored]]:
        """The records that are assembled here with their representatives; of some traces, by hash, or of all."""
        for shards in (self.direct, self.rerouted):
            for entry in shards.entries(self.partition.slots):
                if hashes is not None and entry.trace_hash not in hashes:
                    continue
                record = entry.record()
                trace_id = record.trace_id or ""
                if not self.representatives or shards is self.rerouted or not self.has_left(trace_id):
                    yield self.representative(trace_id), record


def groups_of(where: PartitionRecords, limits: Limits, stats: AssemblyStats) -> Iterator[SpanGroup]:
    """The groups of a partition; what is set aside is counted. Each is to be assembled before the next is asked for."""
    partition = where.partition
    most_bytes = min(where.sizes.partition_bytes, limits.max_rollout_bytes)
    if partition.bytes <= most_bytes and partition.records <= limits.max_rollout_spans:
        yield from _grouped(where.records())
        return
    for hashes in _passes(where, limits, stats):
        yield from _grouped(_shared(where.records(hashes)))


class _Rollout:
    """Traces that are assembled together, by their hashes, and how much there is of them."""

    def __init__(self) -> None:
        self.traces: set[int] = set()
        self.spans = self.logs = self.bytes = 0

    def add(self, entry: Entry) -> None:
        self.traces.add(entry.trace_hash)
        self.spans += entry.is_span
        self.logs += entry.is_log
        if entry.is_span or entry.is_log:
            self.bytes += entry.size


def _passes(where: PartitionRecords, limits: Limits, stats: AssemblyStats) -> Iterator[set[int]]:
    """The traces of each pass, by hash: as many as memory is meant to hold at once."""
    targets = {hash_of(trace_id): hash_of(target) for trace_id, target in where.representatives.items()}
    rollouts: dict[int, _Rollout] = defaultdict(_Rollout)
    for entry in where.entries():
        rollouts[targets.get(entry.trace_hash, entry.trace_hash)].add(entry)
    traces = set[int]()
    size = 0
    for _, rollout in sorted(rollouts.items()):
        if _may_be_beyond(rollout, limits) and _is_beyond(where, rollout, limits):
            _set_aside(where, rollout, stats)
            continue
        if traces and size + rollout.bytes > where.sizes.partition_bytes:
            yield traces
            traces, size = set[int](), 0
        traces |= rollout.traces
        size += rollout.bytes
    if traces:
        yield traces


def _may_be_beyond(rollout: _Rollout, limits: Limits) -> bool:
    return rollout.spans > limits.max_rollout_spans or rollout.bytes > limits.max_rollout_bytes


def _is_beyond(where: PartitionRecords, rollout: _Rollout, limits: Limits) -> bool:
    """Whether the distinct records of a rollout are beyond a limit: a repeated delivery takes no memory."""
    sizes: dict[tuple[int, int], int] = {}
    spans = total = 0
    for entry in where.entries():
        if entry.trace_hash in rollout.traces and (entry.is_span or entry.is_log):
            key = (entry.trace_hash, entry.own_hash)
            spans += entry.is_span and key not in sizes
            total += max(0, entry.size - sizes.get(key, 0))
            sizes[key] = max(entry.size, sizes.get(key, 0))
            if spans > limits.max_rollout_spans or total > limits.max_rollout_bytes:
                return True
    return False


def _set_aside(where: PartitionRecords, rollout: _Rollout, stats: AssemblyStats) -> None:
    limits = f"{advice('max_rollout_spans')}, or {option_of('max_rollout_bytes')}"
    detail = f"{rollout.spans:,} spans, {rollout.bytes:,} bytes are more than a rollout may have; {limits}"
    first: str | None = None
    spans = logs = 0
    rewards: list[ExternalReward] = []
    traces: set[str] = set()
    for representative, record in where.records(rollout.traces):
        first = representative
        traces.add(record.trace_id or "")
        spans += isinstance(record, Span)
        logs += isinstance(record, LogRecord)
        if isinstance(record, ExternalReward):
            rewards.append(record)
    if first is None:  # its traces have left
        return
    stats.quarantine_trace(first, spans=spans, logs=logs, detail=detail)
    stats.rewards_undeliverable[OVER_A_LIMIT] += sum(
        max(1, len(reward.address.links)) for reward in distinct(rewards) if reward.origin[0] not in traces
    )


def _grouped(records: Iterable[tuple[str, Stored]]) -> Iterator[SpanGroup]:
    """The records of each group, in the order of the traces that stand for them."""
    groups: dict[str, _Records] = defaultdict(_Records)
    for representative, record in records:
        groups[representative].add(record)
    for representative in sorted(groups):
        yield groups.pop(representative).group()


class _Records:
    """The records of one group by their kinds."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.logs: list[LogRecord] = []
        self.quarantine: list[Quarantined] = []
        self.rewards: list[ExternalReward] = []

    def add(self, record: Stored) -> None:
        if isinstance(record, Span):
            self.spans.append(record)
        elif isinstance(record, LogRecord):
            self.logs.append(record)
        elif isinstance(record, Quarantined):
            self.quarantine.append(record)
        elif isinstance(record, ExternalReward):
            self.rewards.append(record)

    def group(self) -> SpanGroup:
        return SpanGroup(spans=self.spans, logs=self.logs, quarantine=self.quarantine, external_rewards=self.rewards)


def _shared(records: Iterable[tuple[str, Stored]]) -> Iterator[tuple[str, Stored]]:
    """Equal deliveries of a span as one object: then they take no memory."""
    first: dict[SpanKey, Span] = {}
    for representative, record in records:
        if isinstance(record, Span):
            earlier = first.setdefault(record.key, record)
            yield representative, earlier if is_same(earlier, record) else record
        else:
            yield representative, record
