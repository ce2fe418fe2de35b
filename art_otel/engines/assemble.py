"""Assemble: phase two. One bucket becomes a run of trajectories, independent of all other buckets.

Invariant: takes and returns plain values, so that any engine can run it in any process. A rollout beyond the limits is
set aside whole, before its records fill the memory, and the others of its bucket are kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from art_otel.engines.buckets import Content, Held, Record, Weight, read_bucket, size_of, weigh_traces
from art_otel.sources import Limits, advice, option_of
from art_otel.spans import Damage, LogRecord, Span
from art_otel.store import write_run
from art_otel.trajectories import Account, SpanGroup, Trajectory, build_trajectories

_LEAST_ENTRY: Final = 60
"""Bytes that no record has fewer of as it stands in a bucket: its ids alone have 48."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be assembled into the file `run`.

    `own` holds the bucket's traces, of which those in `moved` were taken to another bucket; `guests` holds traces that
    came from others. `kin` leads a trace to the one that stands for all that are kin to it.
    """

    own: Content
    guests: Content
    moved: Sequence[str]
    kin: Mapping[str, str]
    rollout_spans: Sequence[str]
    limits: Limits
    run: Path


def assemble_bucket(bucket: Bucket) -> Account:
    """Assemble a bucket, in the order of rollout ids."""
    account = Account()
    trajectories: list[Trajectory] = []
    for group in _groups(_records(bucket, account), bucket.kin):
        weight = Weight(spans=len(group.spans), logs=len(group.logs))
        if _is_huge(weight, bucket.limits):
            _set_aside(group.spans[0].trace_id, weight, account)
            continue
        trajectories.extend(build_trajectories(group, bucket.rollout_spans, account).trajectories)
    trajectories.sort(key=lambda trajectory: trajectory.order)
    write_run(trajectories, bucket.run)
    return account


def _records(bucket: Bucket, account: Account) -> Iterator[Record]:
    """The records of the bucket but for those of traces beyond the limits, which are counted."""
    huge = _huge_traces(bucket, account)
    for content, left in ((bucket.own, huge.union(bucket.moved)), (bucket.guests, huge)):
        for record in read_bucket(content):
            if record.trace_id not in left:
                yield record


def _huge_traces(bucket: Bucket, account: Account) -> frozenset[str]:
    """The traces beyond the limits. Most buckets are too small to hold one."""
    contents, limits = (*bucket.own, *bucket.guests), bucket.limits
    if size_of(contents) <= limits.max_rollout_bytes and _most_records(contents) <= limits.max_rollout_spans:
        return frozenset()
    left = frozenset(bucket.moved)
    weights = {trace_id: weight for trace_id, weight in weigh_traces(bucket.own).items() if trace_id not in left}
    weights.update(weigh_traces(bucket.guests))
    huge = {trace_id for trace_id, weight in weights.items() if _is_huge(weight, bucket.limits)}
    for trace_id in sorted(huge):
        _set_aside(trace_id, weights[trace_id], account)
    return frozenset(huge)


def _most_records(content: Content) -> int:
    """How many records there can be at most, known without reading them."""
    sizes = (len(piece.data) if isinstance(piece, Held) else Path(piece.path).stat().st_size for piece in content)
    return sum(sizes) // _LEAST_ENTRY


def _is_huge(weight: Weight, limits: Limits) -> bool:
    return weight.spans > limits.max_rollout_spans or weight.bytes > limits.max_rollout_bytes


def _set_aside(trace_id: str, weight: Weight, account: Account) -> None:
    size = f", {weight.bytes:,} bytes" if weight.bytes else ""
    limits = f"{advice('max_rollout_spans')}, or {option_of('max_rollout_bytes')}"
    detail = f"{weight.spans:,} spans{size} are more than a rollout may have; {limits}"
    account.set_aside(trace_id, spans=weight.spans, logs=weight.logs, detail=detail)


def _groups(records: Iterable[Record], kin: Mapping[str, str]) -> Iterator[SpanGroup]:
    """The records of kin traces, in the order of the trace that stands for them."""
    spans: dict[str, list[Span]] = {}
    logs: dict[str, list[LogRecord]] = {}
    damages: dict[str, list[Damage]] = {}
    for record in records:
        trace_id = str(record.trace_id)
        head = kin.get(trace_id, trace_id) if kin else trace_id
        if isinstance(record, Span):
            spans.setdefault(head, []).append(record)
        elif isinstance(record, LogRecord):
            logs.setdefault(head, []).append(record)
        else:
            damages.setdefault(head, []).append(record)
    for head in sorted(spans.keys() | logs.keys() | damages.keys()):
        yield SpanGroup(spans=spans.pop(head, ()), logs=logs.pop(head, ()), damages=damages.pop(head, ()))
