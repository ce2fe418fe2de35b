"""Partition: phase one. Records of the inputs are divided into buckets that can be assembled one by one.

Invariant: traces that are kin end in one bucket. Every record is in exactly one bucket, or counted here because it
belongs to no trace. `partition_spans` takes and returns plain values, so that any engine can run it in any process;
`join_partitions` then puts together what several processes found.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from art_otel.engines.buckets import Buckets, Content, Held, Record, Stored, bucket_of, read_bucket
from art_otel.errors import SourceError
from art_otel.sources import FileAccount, Format, Input, Limits, ReadAhead, read_file
from art_otel.spans import Quarantined, Span, list_quarantined
from art_otel.trajectories import TraceGroups

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
    """What one process found: its buckets, who is kin, its counts."""

    contents: list[Content]
    trace_groups: TraceGroups = msgspec.field(default_factory=TraceGroups)
    counts: Counts = msgspec.field(default_factory=Counts)


class Joined(msgspec.Struct, kw_only=True):
    """What all of phase one found: for each bucket its own content, what came from others, and the traces that left.

    `kin` leads each trace of a bucket that has kin with a smaller id to the smallest, `rollouts` to the smallest of
    those that share a rollout id.
    """

    own: list[Content]
    guests: list[Content]
    moved: list[list[str]]
    kin: list[dict[str, str]]
    rollouts: list[dict[str, str]]
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
    buckets = Buckets(folder, count, MEMORY_BUDGET if in_memory else 0)
    found = Partition(contents=[])
    with ReadAhead([source.stored for source in inputs if source.stored]) as ahead:
        for source in inputs:
            account = FileAccount(path=source.name)
            found.counts.files.append(account)
            try:
                records = read_file(source, account, limits=limits, on_bytes=on_bytes, format=format, ahead=ahead)
                _take(records, buckets, found)
            except SourceError as error:
                account.error = str(error)
    if not in_memory or buckets.spilled:
        buckets.flush()
    found.contents = [buckets.content(bucket) for bucket in range(count)]
    return found


def _take(records: Iterable[Record], buckets: Buckets, found: Partition) -> None:
    counts, see, add = found.counts, found.trace_groups.see, buckets.add
    last, bucket = "", -1  # records of a trace mostly stand together
    for record in records:
        if isinstance(record, Span):
            counts.spans += 1
            see(record)
        elif isinstance(record, Quarantined):
            counts.take(record)
            if record.trace_id is None:
                continue
        else:
            counts.logs += 1
        if record.trace_id != last:
            last = str(record.trace_id)
            bucket = bucket_of(last, buckets.count)
        add(bucket, record)


def join_partitions(partitions: Iterable[Partition], folder: Path) -> Joined:
    """Put together the partitions of consecutive inputs; traces of one kin move to one bucket."""
    trace_groups = TraceGroups()
    counts = Counts()
    contents: list[list[Content]] = []
    for partition in partitions:
        trace_groups.add(partition.trace_groups)
        counts.add(partition.counts)
        contents.append(partition.contents)
    own = [tuple(piece for content in bucket for piece in content) for bucket in zip(*contents, strict=True)]
    if trace_groups.seeks_responses:
        trace_groups.find_responses(record for record in _all(own) if isinstance(record, Span))
    moved: list[list[str]] = [[] for _ in own]
    kin: list[dict[str, str]] = [{} for _ in own]
    rollouts: list[dict[str, str]] = [{} for _ in own]
    for trace_id in trace_groups.with_kin():
        head = trace_groups.head(trace_id)
        home, bucket = bucket_of(head, len(own)), bucket_of(trace_id, len(own))
        kin[home][trace_id] = head
        rollouts[home][trace_id] = trace_groups.rollout_head(trace_id)
        if bucket != home:
            moved[bucket].append(trace_id)
    guests = _move(own, moved, trace_groups, folder)
    return Joined(own=own, guests=guests, moved=moved, kin=kin, rollouts=rollouts, counts=counts)


def _all(contents: Iterable[Content]) -> Iterator[Record]:
    for content in contents:
        yield from read_bucket(content)


def _move(own: Sequence[Content], moved: Sequence[list[str]], trace_groups: TraceGroups, folder: Path) -> list[Content]:
    """Copy the records of moved traces into buckets of their own beside their kin's."""
    below = folder / "moved"
    below.mkdir(parents=True)
    guests = Buckets(below, len(own), MEMORY_BUDGET)
    for content, leaving in zip(own, map(frozenset, moved), strict=True):
        for record in read_bucket(content) if leaving else ():
            trace_id = str(record.trace_id)
            if trace_id in leaving:
                guests.add(bucket_of(trace_groups.head(trace_id), len(own)), record)
    if any(isinstance(piece, Stored) for content in own for piece in content):
        guests.flush()
    return [guests.content(bucket) for bucket in range(len(own))]
