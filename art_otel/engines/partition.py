"""Partition: phase one. Records of all inputs are divided into buckets that can be assembled one by one.

Invariant: traces that are kin end in one bucket. Every record is in exactly one bucket, or counted here because it
belongs to no trace.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from art_otel.engines.buckets import Buckets, Content, Record, read_bucket
from art_otel.errors import SourceError
from art_otel.sources import FileAccount, Format, Input, Limits, ReadAhead, read_file
from art_otel.spans import Damage, Span
from art_otel.trajectories import Kinship

BUCKET_BYTES = 16 * 2**20
"""About how many input bytes go into one bucket."""

MEMORY_BUDGET = 64 * 2**20
"""How many bytes of records stay in memory before buckets go to disk."""

MAX_BUCKETS = 128
"""Each is a file that stays open while runs are merged."""

MAX_LISTED = 1000
"""How many damages are kept by name; all are counted."""


@dataclass(kw_only=True, slots=True)
class Partition:
    """What phase one found.

    `contents` are the buckets as `assemble_bucket` takes them; `moved` the traces that left their bucket. `spans` and
    `logs` count records that were read, `quarantined` and `quarantined_logs` those of which nothing could be kept.
    """

    contents: list[tuple[Content, Content]] = field(default_factory=list[tuple[Content, Content]])
    moved: dict[str, int] = field(default_factory=dict[str, int])
    files: list[FileAccount] = field(default_factory=list[FileAccount])
    spans: int = 0
    logs: int = 0
    quarantined: Counter[str] = field(default_factory=Counter[str])
    quarantined_logs: Counter[str] = field(default_factory=Counter[str])
    damages: list[Damage] = field(default_factory=list[Damage])


def partition_spans(
    inputs: Sequence[Input],
    folder: Path,
    limits: Limits,
    on_bytes: Callable[[int], None] | None = None,
    format: Format | None = None,  # noqa: A002 # as in read_file
) -> Partition:
    """Read every input into buckets below `folder`. A file that cannot be read is noted and the rest goes on."""
    buckets = Buckets(folder, _bucket_count(inputs), MEMORY_BUDGET)
    partition = Partition()
    kinship = Kinship()
    with ReadAhead([source.stored for source in inputs if source.stored]) as ahead:
        for source in inputs:
            account = FileAccount(path=source.name)
            partition.files.append(account)
            try:
                for record in read_file(source, account, limits=limits, on_bytes=on_bytes, format=format, ahead=ahead):
                    _take(record, buckets, kinship, partition)
            except SourceError as error:
                account.error = str(error)
    if kinship.seeks_responses:
        kinship.find_responses(record for record in _all(buckets) if isinstance(record, Span))
    moved = _homes(buckets, kinship)
    guests = _move(buckets, moved, folder)
    partition.moved = moved
    partition.contents = [(buckets.content(bucket), guests.content(bucket)) for bucket in range(buckets.count)]
    return partition


def _bucket_count(inputs: Sequence[Input]) -> int:
    """As many as the input is large; the most when nobody knows how large it is."""
    sizes = [source.size for source in inputs]
    if None in sizes:
        return MAX_BUCKETS
    return min(MAX_BUCKETS, 1 + sum(size or 0 for size in sizes) // BUCKET_BYTES)


def _take(record: Record, buckets: Buckets, kinship: Kinship, partition: Partition) -> None:
    if isinstance(record, Damage):
        if not record.partial:
            counts = partition.quarantined_logs if record.kind == "log" else partition.quarantined
            counts[record.reason] += 1
        if len(partition.damages) < MAX_LISTED:
            partition.damages.append(record)
        if record.trace_id is None:
            return
    elif isinstance(record, Span):
        partition.spans += 1
        kinship.see(record)
    else:
        partition.logs += 1
    buckets.add(buckets.bucket_of(str(record.trace_id)), record)


def _all(buckets: Buckets) -> Iterator[Record]:
    for bucket in range(buckets.count):
        yield from read_bucket(buckets.content(bucket))


def _homes(buckets: Buckets, kinship: Kinship) -> dict[str, int]:
    """The traces that must leave their bucket to be with their kin, and where they go."""
    homes = {trace_id: buckets.bucket_of(kinship.head(trace_id)) for trace_id in kinship.with_kin()}
    return {trace_id: home for trace_id, home in homes.items() if home != buckets.bucket_of(trace_id)}


def _move(buckets: Buckets, moved: dict[str, int], folder: Path) -> Buckets:
    """Copy the records of moved traces into buckets of their own beside their kin's."""
    below = folder / "moved"
    below.mkdir()
    guests = Buckets(below, buckets.count, MEMORY_BUDGET)
    for bucket in sorted({buckets.bucket_of(trace_id) for trace_id in moved}):
        for record in read_bucket(buckets.content(bucket)):
            home = moved.get(str(record.trace_id))
            if home is not None:
                guests.add(home, record)
    return guests
