"""Groups: the records of a bucket that are assembled together, read so that memory holds few of them at once.

Invariant: every record of a bucket is in one group or set aside, and kin are in one group, or judged where they are. A
rollout beyond the limits is set aside whole, before its records fill the memory; what is kin to it is kept. Memory
holds the records of about `AT_ONCE` bytes, or of one group. Groups are within the limits, but for kin that are more to
each other than graders and graded.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import add
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from art_otel.conventions import GivenReward, rewards_of, role_of
from art_otel.engines.buckets import Bucket, Held, Record, Weight, read_bucket, size_of, weigh_traces
from art_otel.sources import Limits, advice, option_of
from art_otel.spans import Damage, LogRecord, Span, SpanKey
from art_otel.spans.tree import unite_deliveries
from art_otel.trajectories import Account, SpanGroup, judged_by
from art_otel.trajectories.rollouts import declared_id, is_named_rollout, is_reward_span

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
        graded = _graded(rollouts, bucket) if _is_huge(_weight(rollouts), bucket.limits) else None
        if graded is None:
            together.append(rollouts)
        else:
            yield from _one_by_one(rollouts, graded, bucket)
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
    damages: dict[str, list[Damage]] = {}
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


def _one_by_one(rollouts: Sequence[_Rollout], graded: "_Graded", bucket: Bucket) -> Iterator[SpanGroup]:
    """Kin that are together beyond the limits: each rollout with the spans that judge it, the graders last.

    By then it is known which of their rewards were heard.
    """
    heads = _heads(rollouts)
    heard: set[SpanKey] = set()
    for last in (False, True):
        for some in _at_once([rollout] for rollout in rollouts if (rollout.head in graded.graders) is last):
            for head, group in _by_head(_shared(_records(bucket, _traces(some))), heads):
                yield msgspec.structs.replace(group, judges=graded.judges.get(head, ()), heard=heard)


def _heads(rollouts: Iterable[_Rollout]) -> Mapping[str, str]:
    return {trace_id: rollout.head for rollout in rollouts for trace_id in rollout.traces}


def _shared(records: Iterable[Record]) -> Iterator[Record]:
    """Equal deliveries of a span as one object: then they take no memory."""
    first: dict[SpanKey, Span] = {}
    for record in records:
        known = first.setdefault(record.key, record) if isinstance(record, Span) else record
        yield known if known == record else record


class _Graded(NamedTuple):
    """The spans that judge each rollout, and the graders in whose traces they stand."""

    judges: Mapping[str, Sequence[Span]]
    graders: AbstractSet[str]


def _graded(rollouts: Sequence[_Rollout], bucket: Bucket) -> _Graded | None:
    """Who judges whom, where graders do nothing but that; None where kin are more to each other than that."""
    heads = _heads(rollouts)
    graders: set[str] = set()
    for record in _records(bucket, frozenset(heads)):
        if isinstance(record, Span):
            if is_reward_span(record) and declared_id(record) is not None:
                return None
            if any(judged_by(record)):
                graders.add(heads[record.trace_id])
    records = list(_records(bucket, _traces(rollout for rollout in rollouts if rollout.head in graders)))
    spans = [record for record in records if isinstance(record, Span)]
    united = unite_deliveries(spans)
    if len(spans) < len(records) or united.orphans or united.cyclic:
        return None
    judges: dict[str, list[Span]] = defaultdict(list)
    for span in united.spans.values():
        if not _only_grades(span, bucket):
            return None
        for head in {heads[trace_id] for trace_id in judged_by(span).traces if trace_id in heads} - graders:
            judges[head].append(span)
    return _Graded(judges, graders)


def _only_grades(span: Span, bucket: Bucket) -> bool:
    """Whether the span is no part of a rollout, and nothing of it can be missed in those that it judges."""
    is_part = declared_id(span) is not None or is_named_rollout(span, bucket.rollout_spans)
    if is_part or role_of(span) not in ("agent", "tool", "other") or span.end_ns is None:
        return False
    if span.dropped_attributes_count or span.dropped_events_count:
        return False
    rewards = rewards_of(span)
    return all(isinstance(reward, GivenReward) and _is_of_span(reward) for reward in rewards)


def _is_of_span(reward: GivenReward) -> bool:
    return reward.response_id is None and reward.choice is None and reward.token_end is None
