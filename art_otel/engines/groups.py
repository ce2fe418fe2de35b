"""Groups: the records of a bucket that are assembled together, read so that memory holds few of them at once.

Invariant: every record of a bucket is in one group or set aside, and linked traces are in one group. A rollout beyond
the limits is set aside whole, before its records fill the memory. Memory holds the records of about `AT_ONCE` bytes,
or of one rollout.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import add
from pathlib import Path
from typing import Final, NamedTuple

from art_otel.engines.buckets import Bucket, Held, Record, read_bucket, size_of
from art_otel.engines.weights import Weight, weigh_traces
from art_otel.sources import advice, option_of
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey
from art_otel.spans.deduplicate import is_same
from art_otel.trajectories import AssemblyStats, ExternalReward, SpanGroup
from art_otel.trajectories.rewards.external import distinct
from art_otel.trajectories.rewards.undeliverable import OVER_A_LIMIT

AT_ONCE: Final = 64 << 20
"""Bytes of records when nothing of them is condensed."""

_LEAST_ENTRY: Final = 60
"""Bytes that no record has fewer of as it stands in a bucket: its ids alone have 48."""


class _Rollout(NamedTuple):
    """The traces that share a rollout id, under the one that stands for them; or one trace, with all that is in it."""

    representative: str
    traces: Sequence[str]
    weight: Weight


def groups_of(bucket: Bucket, account: AssemblyStats) -> Iterator[SpanGroup]:
    """The groups. Each is to be assembled before the next is asked for. What is set aside is counted."""
    if _is_small(bucket):
        yield from _grouped(_records(bucket), bucket.representatives)
        return
    for rollouts in _at_once(_within_limits(bucket, account)):
        traces = {trace_id for rollout in rollouts for trace_id in rollout.traces}
        yield from _grouped(_shared(_records(bucket, traces)), bucket.representatives)


def _is_small(bucket: Bucket) -> bool:
    """Whether everything may be in memory at once and nothing can be beyond a limit, known without reading it."""
    contents, limits = (*bucket.own, *bucket.guests), bucket.limits
    sizes = (len(piece.data) if isinstance(piece, Held) else Path(piece.path).stat().st_size for piece in contents)
    most_records = sum(sizes) // _LEAST_ENTRY
    return size_of(contents) <= min(AT_ONCE, limits.max_rollout_bytes) and most_records <= limits.max_rollout_spans


def _within_limits(bucket: Bucket, account: AssemblyStats) -> Iterator[_Rollout]:
    most = bucket.limits.max_rollout_spans
    left = frozenset(bucket.moved)
    weights = {trace_id: weight for trace_id, weight in weigh_traces(bucket.own, most).items() if trace_id not in left}
    for trace_id, weight in weigh_traces(bucket.guests, most).items():
        weights[trace_id] = weights.get(trace_id, Weight()) + weight
    rollouts: dict[str, list[str]] = defaultdict(list)
    for trace_id in weights:
        rollouts[bucket.representatives.get(trace_id, trace_id)].append(trace_id)
    for representative, traces in sorted(rollouts.items()):
        weight = reduce(add, map(weights.__getitem__, traces))
        if weight.different > most or weight.bytes > bucket.limits.max_rollout_bytes:
            _set_aside(representative, weight, account)
            rewards = (record for record in _records(bucket, {*traces}) if isinstance(record, ExternalReward))
            account.rewards_undeliverable[OVER_A_LIMIT] += sum(
                max(1, len(reward.address.links)) for reward in distinct(rewards) if reward.origin[0] not in traces
            )
        else:
            yield _Rollout(representative, traces, weight)


def _set_aside(trace_id: str, weight: Weight, account: AssemblyStats) -> None:
    limits = f"{advice('max_rollout_spans')}, or {option_of('max_rollout_bytes')}"
    detail = f"{weight.spans:,} spans, {weight.bytes:,} bytes are more than a rollout may have; {limits}"
    account.quarantine_trace(trace_id, spans=weight.spans, logs=weight.logs, detail=detail)


def _at_once(rollouts: Iterable[_Rollout]) -> Iterator[list[_Rollout]]:
    """As many rollouts as memory is meant to hold, and then the next."""
    some: list[_Rollout] = []
    size = 0
    for rollout in rollouts:
        if some and size + rollout.weight.bytes > AT_ONCE:
            yield some
            some, size = [], 0
        some.append(rollout)
        size += rollout.weight.bytes
    if some:
        yield some


def _records(bucket: Bucket, traces: AbstractSet[str | None] | None = None) -> Iterator[Record]:
    """The records of the bucket, of these traces where they are named."""
    left = frozenset(bucket.moved)
    for record in read_bucket(bucket.own, traces):
        if record.trace_id not in left:
            yield record
    yield from read_bucket(bucket.guests, traces)


def _grouped(records: Iterable[Record], representatives: Mapping[str, str]) -> Iterator[SpanGroup]:
    """The records of each group, in the order of the traces that stand for them."""
    groups: dict[str, _Records] = defaultdict(_Records)
    for record in records:
        trace_id = str(record.trace_id)
        groups[representatives.get(trace_id, trace_id)].add(record)
    for representative in sorted(groups):
        yield groups.pop(representative).group()


class _Records:
    """The records of one group by their kinds."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.logs: list[LogRecord] = []
        self.damages: list[Quarantined] = []
        self.rewards: list[ExternalReward] = []

    def add(self, record: Record) -> None:
        if isinstance(record, Span):
            self.spans.append(record)
        elif isinstance(record, LogRecord):
            self.logs.append(record)
        elif isinstance(record, Quarantined):
            self.damages.append(record)
        else:
            self.rewards.append(record)

    def group(self) -> SpanGroup:
        return SpanGroup(spans=self.spans, logs=self.logs, quarantine=self.damages, external_rewards=self.rewards)


def _shared(records: Iterable[Record]) -> Iterator[Record]:
    """Equal deliveries of a span as one object: then they take no memory."""
    first: dict[SpanKey, Span] = {}
    for record in records:
        known = first.setdefault(record.key, record) if isinstance(record, Span) else record
        yield known if isinstance(record, Span) and isinstance(known, Span) and is_same(known, record) else record
