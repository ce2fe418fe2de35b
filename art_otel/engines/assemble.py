"""Assemble: phase two. One bucket becomes a run of trajectories, independent of all other buckets.

Invariant: takes and returns plain values, so that any engine can run it in any process.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from art_otel.engines.buckets import Content, Record, read_bucket
from art_otel.spans import Damage, LogRecord, Span
from art_otel.store import write_run
from art_otel.trajectories import Account, Kinship, SpanGroup, Trajectory, build_trajectories


def assemble_bucket(
    own: Content, guests: Content, moved: Collection[str], rollout_spans: Sequence[str], run: Path
) -> Account:
    """Assemble a bucket into the file `run`, in the order of rollout ids.

    `own` holds the bucket's traces, of which those in `moved` were taken to another bucket; `guests` holds traces that
    came from others.
    """
    account = Account()
    trajectories: list[Trajectory] = []
    for group in _groups(_records(own, guests, moved)):
        assembly = build_trajectories(group, rollout_spans)
        account.add(assembly.account)
        trajectories.extend(assembly.trajectories)
    trajectories.sort(key=lambda trajectory: trajectory.order)
    write_run(trajectories, run)
    return account


def _records(own: Content, guests: Content, moved: Collection[str]) -> Iterator[Record]:
    for record in read_bucket(own):
        if record.trace_id not in moved:
            yield record
    yield from read_bucket(guests)


def _groups(records: Iterable[Record]) -> Iterator[SpanGroup]:
    """The records of kin traces, by the smallest trace id among them."""
    kinship = Kinship()
    by_trace: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_trace[str(record.trace_id)].append(record)
        if isinstance(record, Span):
            kinship.see(record)
    if kinship.seeks_responses:
        everything = (record for records in by_trace.values() for record in records)
        kinship.find_responses(record for record in everything if isinstance(record, Span))
    by_head: dict[str, list[Record]] = defaultdict(list)
    for trace_id in sorted(by_trace):
        by_head[kinship.head(trace_id)].extend(by_trace.pop(trace_id))
    for head in sorted(by_head):
        family = by_head.pop(head)
        yield SpanGroup(
            spans=[record for record in family if isinstance(record, Span)],
            logs=[record for record in family if isinstance(record, LogRecord)],
            damages=[record for record in family if isinstance(record, Damage)],
        )
