"""Partition: phase one. Records of the inputs are divided into buckets that can be assembled one by one.

Invariant: linked traces end in one bucket. Every record is in exactly one bucket, or counted here because it belongs
to no trace; what is copied is an ExternalReward, to the bucket of the trace that it is for. `partition_spans` takes and
returns plain values, so that any engine can run it in any process; `join_partitions` then puts together what several
processes read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from art_otel.engines.buckets import Buckets, Content, Held, Stored, bucket_of, read_bucket
from art_otel.engines.reward_delivery import deliver
from art_otel.errors import SourceError
from art_otel.sources import FileAccount, Format, Input, Limits, Prefetcher, read_file
from art_otel.sources.format import Record as SourceRecord
from art_otel.spans import LogRecord, Quarantined, Span, list_quarantined
from art_otel.trajectories import ExternalReward, TraceGroups, external_rewards

_R = TypeVar("_R", Span | LogRecord, ExternalReward)

BUCKET_BYTES = 16 * 2**20
"""About how many input bytes go into one bucket."""

MEMORY_BUDGET = 48 * 2**20
"""How many bytes of records stay in the memory of one process before buckets go to disk."""

MAX_BUCKETS = 128
"""Each is a file that stays open while runs are merged."""


class Counts(msgspec.Struct, kw_only=True):
    """What phase one counted.

    `spans` and `logs` count records that were read, `quarantined` and `quarantined_logs` those of which nothing could
    be kept.
    """

    files: list[FileAccount] = msgspec.field(default_factory=list[FileAccount])
    spans: int = 0
    logs: int = 0
    quarantined: Counter[str] = msgspec.field(default_factory=Counter[str])
    quarantined_logs: Counter[str] = msgspec.field(default_factory=Counter[str])
    damages: list[Quarantined] = msgspec.field(default_factory=list[Quarantined])

    def take(self, damage: Quarantined) -> None:
        """Count a damage."""
        if not damage.partial:
            counts = self.quarantined_logs if damage.kind == "log" else self.quarantined
            counts[damage.reason] += 1
        list_quarantined(self.damages, (damage,))

    def add(self, other: "Counts") -> None:
        """Add what another process counted of the inputs behind these; a file they shared is one again."""
        theirs = other.files
        if self.files and theirs and self.files[-1].path == theirs[0].path:
            self.files[-1].add(theirs[0])
            theirs = theirs[1:]
        self.files += theirs
        self.spans += other.spans
        self.logs += other.logs
        self.quarantined += other.quarantined
        self.quarantined_logs += other.quarantined_logs
        list_quarantined(self.damages, other.damages)


class Partition(msgspec.Struct, kw_only=True):
    """What one process read: its buckets, the traces of rollout ids, its counts.

    `rewards` are those of which it takes all traces to know where they go.
    """

    contents: list[Content]
    rewards: Content = ()
    trace_groups: TraceGroups = msgspec.field(default_factory=TraceGroups)
    counts: Counts = msgspec.field(default_factory=Counts)


class Joined(msgspec.Struct, kw_only=True):
    """What all of phase one read: for each bucket its own content, what came from others, and the traces that left.

    `representatives` leads each trace of a bucket that is linked to one with a smaller id to the smallest.
    """

    own: list[Content]
    guests: list[Content]
    moved: list[list[str]]
    representatives: list[dict[str, str]]
    counts: Counts

    @property
    def on_disk(self) -> bool:
        """Whether everything stands in files, so that it outlives this process."""
        return not any(isinstance(piece, Held) for content in (*self.own, *self.guests) for piece in content)


def count_buckets(inputs: Sequence[Input]) -> int:
    """As many as the input is large; the most when nobody knows how large it is."""
    sizes = [source.size for source in inputs]
    if None in sizes:
        return MAX_BUCKETS
    return min(MAX_BUCKETS, 1 + sum(size or 0 for size in sizes) // BUCKET_BYTES)


def partition_spans(
    inputs: Sequence[Input],
    folder: Path,
    count: int,
    limits: Limits,
    on_bytes: Callable[[int], None] | None = None,
    format: Format | None = None,  # noqa: A002 # as in read_file
    *,
    in_memory: bool = False,
) -> Partition:
    """Read every input into `count` buckets below `folder`. A file that cannot be read is noted and the rest goes on.

    `in_memory` lets what needs little memory stay there; else everything is written to files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    buckets = Buckets(folder, count + 1, MEMORY_BUDGET if in_memory else 0)
    found = Partition(contents=[])
    with Prefetcher(inputs) as prefetcher:
        for source in inputs:
            account = FileAccount(path=source.name)
            found.counts.files.append(account)
            try:
                records = read_file(
                    source, account, limits=limits, on_bytes=on_bytes, format=format, prefetcher=prefetcher
                )
                _take(records, buckets, found)
            except SourceError as error:
                account.error = str(error)
    if not in_memory or buckets.spilled:
        buckets.flush()
    *found.contents, found.rewards = (buckets.content(bucket) for bucket in range(count + 1))
    return found


def _take(records: Iterable[SourceRecord], buckets: Buckets, found: Partition) -> None:
    counts, see, add, count = found.counts, found.trace_groups.add, buckets.add, buckets.count - 1
    last, bucket = "", -1  # records of a trace mostly stand together
    for record in records:
        if isinstance(record, Quarantined):
            counts.take(record)
            if record.trace_id is None:
                continue
        else:
            for reward in external_rewards(record):
                add(bucket_of(reward.trace_id, count) if reward.trace_id else count, reward)
            if isinstance(record, Span):
                counts.spans += 1
                see(record)
            elif record.span_id:
                counts.logs += 1
            else:  # it is of no span, as its file's account says
                continue
        if record.trace_id != last:
            last = str(record.trace_id)
            bucket = bucket_of(last, count)
        add(bucket, record)


def join_partitions(partitions: Iterable[Partition], folder: Path) -> Joined:
    """Put together the partitions of consecutive inputs; linked traces meet in one bucket, rewards are delivered."""
    trace_groups = TraceGroups()
    counts = Counts()
    contents: list[list[Content]] = []
    rewards: list[Content] = []
    for partition in partitions:
        trace_groups.merge(partition.trace_groups)
        counts.add(partition.counts)
        contents.append(partition.contents)
        rewards.append(partition.rewards)
    own = [tuple(piece for content in bucket for piece in content) for bucket in zip(*contents, strict=True)]
    moved: list[list[str]] = [[] for _ in own]
    representatives: list[dict[str, str]] = [{} for _ in own]
    for trace_id in trace_groups.linked():
        representative = trace_groups.representative(trace_id)
        home, bucket = bucket_of(representative, len(own)), bucket_of(trace_id, len(own))
        representatives[home][trace_id] = representative
        if bucket != home:
            moved[bucket].append(trace_id)
    delivered = deliver(lambda: _all(rewards, ExternalReward), lambda: _all(own, Span, LogRecord), trace_groups)
    guests = _move(own, moved, delivered, trace_groups, folder)
    return Joined(own=own, guests=guests, moved=moved, representatives=representatives, counts=counts)


def _all(contents: Iterable[Content], *kinds: type[_R]) -> Iterator[_R]:
    for content in contents:
        yield from (record for record in read_bucket(content) if isinstance(record, kinds))


def _move(
    own: Sequence[Content],
    moved: Sequence[list[str]],
    rewards: Iterable[ExternalReward],
    trace_groups: TraceGroups,
    folder: Path,
) -> list[Content]:
    """Copy the records of moved traces, and the rewards, into buckets of their own beside those they belong to."""
    below = folder / "moved"
    below.mkdir(parents=True)
    guests = Buckets(below, len(own), MEMORY_BUDGET)
    leaving = (
        record
        for content, traces in zip(own, map(frozenset, moved), strict=True)
        for record in (read_bucket(content) if traces else ())
        if str(record.trace_id) in traces
    )
    for record in chain(leaving, rewards):
        guests.add(bucket_of(trace_groups.representative(str(record.trace_id)), len(own)), record)
    if any(isinstance(piece, Stored) for content in own for piece in content):
        guests.flush()
    return [guests.content(bucket) for bucket in range(len(own))]
