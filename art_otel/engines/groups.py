"""Groups: the records of a bucket that are assembled together, read so that memory holds few of them at once.

Invariant: every record of a bucket is in one group or set aside, and kin are in one group, or judged where they are. A
rollout beyond the limits is set aside whole, before its records fill the memory; what is kin to it is kept. Memory
holds the records of about `AT_ONCE` bytes, or of one rollout, but for kin that are more to each other than judges and
judged: those are in memory together, whatever they weigh.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from art_otel.engines.buckets import Bucket, Held, Record, read_bucket, size_of
from art_otel.engines.judging import Judging, find_judging
from art_otel.engines.weights import Weight, weigh_traces
from art_otel.sources import Limits, advice, option_of
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey
from art_otel.spans.deduplicate import is_same
from art_otel.trajectories import Account, SpanGroup

if TYPE_CHECKING:
    from art_otel.trajectories.rewards.attribution import RewardKey

AT_ONCE: Final = 64 << 20
"""Bytes of records when nothing of them is condensed."""

_LEAST_ENTRY: Final = 60
"""Bytes that no record has fewer of as it stands in a bucket: its ids alone have 48."""


class _Rollout(NamedTuple):
    """The traces that share a rollout id, under the one that stands for them; or one trace, with all that is in it."""

    head: str
    traces: Sequence[str]
    weight: Weight


def groups_of(bucket: Bucket, account: Account) -> Iterator[SpanGroup]:
    """The groups. Each is to be assembled before the next is asked for. What is set aside is counted."""
    if _is_small(bucket):
        yield from (group for _, group in _by_head(_records(bucket), bucket.kin))
        return
    kin: dict[str, list[_Rollout]] = defaultdict(list)
    for rollout in _within_limits(bucket, account):
        kin[bucket.kin.get(rollout.head, rollout.head)].append(rollout)
    together: list[Sequence[_Rollout]] = []
    for rollouts in kin.values():
        judging = _judging(rollouts, bucket) if _is_too_much(_weight(rollouts), bucket.limits) else None
        if judging is None:
            together.append(rollouts)
        else:
            yield from _one_by_one(rollouts, judging, bucket)
    for some in _at_once(together):
        yield from (group for _, group in _by_head(_shared(_records(bucket, _traces(some))), bucket.kin))


def _is_small(bucket: Bucket) -> bool:
    """Whether everything may be in memory at once and nothing can be beyond a limit, known without reading it."""
    contents, limits = (*bucket.own, *bucket.guests), bucket.limits
    sizes = (len(piece.data) if isinstance(piece, Held) else Path(piece.path).stat().st_size for piece in contents)
    most_records = sum(sizes) // _LEAST_ENTRY
    return size_of(contents) <= min(AT_ONCE, limits.max_rollout_bytes) and most_records <= limits.max_rollout_spans


def _within_limits(bucket: Bucket, account: Account) -> Iterator[_Rollout]:
    most = bucket.limits.max_rollout_spans
    left = frozenset(bucket.moved)
    weights = {trace_id: weight for trace_id, weight in weigh_traces(bucket.own, most).items() if trace_id not in left}
    weights.update(weigh_traces(bucket.guests, most))
    rollouts: dict[str, list[str]] = defaultdict(list)
    for trace_id in weights:
        rollouts[bucket.rollouts.get(trace_id, trace_id)].append(trace_id)
    for head, traces in sorted(rollouts.items()):
        weight = reduce(add, map(weights.__getitem__, traces))
        if _is_huge(weight, bucket.limits):
            _set_aside(head, weight, account)
        else:
            yield _Rollout(head, traces, weight)


def _is_huge(weight: Weight, limits: Limits) -> bool:
    return weight.different > limits.max_rollout_spans or weight.bytes > limits.max_rollout_bytes


def _is_too_much(weight: Weight, limits: Limits) -> bool:
    """Whether it is too much to be assembled together, if that can be had otherwise."""
    return weight.bytes > AT_ONCE or _is_huge(weight, limits)


def _set_aside(trace_id: str, weight: Weight, account: Account) -> None:
    limits = f"{advice('max_rollout_spans')}, or {option_of('max_rollout_bytes')}"
    detail = f"{weight.spans:,} spans, {weight.bytes:,} bytes are more than a rollout may have; {limits}"
    account.set_aside(trace_id, spans=weight.spans, logs=weight.logs, detail=detail)


def _weight(rollouts: Iterable[_Rollout]) -> Weight:
    return reduce(add, (rollout.weight for rollout in rollouts))


def _traces(rollouts: Iterable[_Rollout]) -> AbstractSet[str]:
    return {trace_id for rollout in rollouts for trace_id in rollout.traces}


def _at_once(several: Iterable[Sequence[_Rollout]]) -> Iterator[list[_Rollout]]:
    """As many as memory is meant to hold, and then the next; what stands together stays so."""
    some: list[_Rollout] = []
    size = 0
    for rollouts in several:
        added = _weight(rollouts).bytes
        if some and size + added > AT_ONCE:
            yield some
            some, size = [], 0
        some.extend(rollouts)
        size += added
    if some:
        yield some


def _records(bucket: Bucket, traces: AbstractSet[str | None] | None = None) -> Iterator[Record]:
    """The records of the bucket, of these traces where they are named."""
    left = frozenset(bucket.moved)
    for record in read_bucket(bucket.own, traces):
        if record.trace_id not in left:
            yield record
    yield from read_bucket(bucket.guests, traces)


def _by_head(records: Iterable[Record], heads: Mapping[str, str]) -> Iterator[tuple[str, SpanGroup]]:
    """The records of each group, with the trace that stands for it, in the order of these."""
    spans: dict[str, list[Span]] = {}
    logs: dict[str, list[LogRecord]] = {}
    damages: dict[str, list[Quarantined]] = {}
    for record in records:
        trace_id = str(record.trace_id)
        head = heads.get(trace_id, trace_id) if heads else trace_id
        if isinstance(record, Span):
            spans.setdefault(head, []).append(record)
        elif isinstance(record, LogRecord):
            logs.setdefault(head, []).append(record)
        else:
            damages.setdefault(head, []).append(record)
    for head in sorted(spans.keys() | logs.keys() | damages.keys()):
        yield head, SpanGroup(spans=spans.pop(head, ()), logs=logs.pop(head, ()), damages=damages.pop(head, ()))


def _judging(rollouts: Sequence[_Rollout], bucket: Bucket) -> Judging | None:
    heads = _heads(rollouts)

    def groups(some: AbstractSet[str]) -> Iterator[tuple[str, SpanGroup]]:
        for few in _at_once([rollout] for rollout in rollouts if rollout.head in some):
            yield from _by_head(_shared(_records(bucket, _traces(few))), heads)

    return find_judging(partial(_records, bucket, frozenset(heads)), groups, heads, bucket.rollout_spans)


def _one_by_one(rollouts: Sequence[_Rollout], judging: Judging, bucket: Bucket) -> Iterator[SpanGroup]:
    """Kin that are together too much: each rollout with the spans that judge it, then those in which these stand.

    By then it is known which of their rewards were heard.
    """
    heads = _heads(rollouts)
    heard: set[RewardKey] = set()
    for last in (False, True):
        for some in _at_once([rollout] for rollout in rollouts if (rollout.head in judging.rollouts) is last):
            for head, group in _by_head(_shared(_records(bucket, _traces(some))), heads):
                yield msgspec.structs.replace(group, judges=judging.judges.get(head, ()), heard=heard)


def _heads(rollouts: Iterable[_Rollout]) -> Mapping[str, str]:
    return {trace_id: rollout.head for rollout in rollouts for trace_id in rollout.traces}


def _shared(records: Iterable[Record]) -> Iterator[Record]:
    """Equal deliveries of a span as one object: then they take no memory."""
    first: dict[SpanKey, Span] = {}
    for record in records:
        known = first.setdefault(record.key, record) if isinstance(record, Span) else record
        yield known if isinstance(record, Span) and isinstance(known, Span) and is_same(known, record) else record
