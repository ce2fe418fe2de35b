"""Local: convert on this machine. The story of a conversion.

Invariant: every file in the output folder is whole, of the previous dataset or of the new one, and the bytes depend on
the spans only, not on files, order, buckets or workers. No file is replaced that art-otel did not write.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from art_otel.engines.assemble import assemble_bucket
from art_otel.engines.buckets import BUCKET_VERSION, Bucket, Stored, size_of
from art_otel.engines.checksum import FileChecksum, synced_checksum
from art_otel.engines.partition import (
    BUCKET_BYTES,
    MAX_BUCKETS,
    Counts,
    Joined,
    Partition,
    count_buckets,
    join_partitions,
    partition_spans,
)
from art_otel.engines.scratch import CHECKPOINT, Scratch, identity_of, open_scratch
from art_otel.engines.workers import Workers, advance, default_count
from art_otel.errors import SourceError, UsageError
from art_otel.sources import Format, Input, Limits, find_inputs, format_named, split_inputs
from art_otel.sources.files.own_output import WHAT_READS_IT, is_ours
from art_otel.store import SCHEMA_VERSION, check_conversion_folder, merge_runs
from art_otel.trajectories import AssemblyStats
from art_otel.version import __version__

if TYPE_CHECKING:
    from art_otel.store import ConversionReport


MIN_SPLIT_BYTES = 8 << 20
"""Smaller files are not cut."""


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What to convert and how.

    `format` names a dump format, None detects it by content. `workers` is the number of processes, None as many as
    there are processors and work for. `on_start` is told the total bytes (None: unknown), `on_bytes` each step of the
    way.
    """

    sources: Sequence[str]
    out: Path
    format: str | None = None
    rollout_spans: Sequence[str] = ()
    workers: int | None = None
    limits: Limits = msgspec.field(default_factory=Limits)
    on_start: Callable[[int | None], None] | None = None
    on_bytes: Callable[[int], None] | None = None


def convert(conversion: Conversion) -> "ConversionReport":
    """Read the sources, assemble trajectories, write the dataset and its report."""
    if conversion.workers is not None and conversion.workers < 1:
        raise UsageError(f"--workers {conversion.workers}: needs at least one worker")
    if conversion.format is not None:
        format_named(conversion.format)
    inputs = _without_dataset(find_inputs(conversion.sources), conversion.out)
    check_conversion_folder(conversion.out)
    sizes = [source.size for source in inputs]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    if conversion.on_start is not None:
        conversion.on_start(total)
    count = min(conversion.workers or default_count(total, BUCKET_BYTES), MAX_BUCKETS)  # more would have nothing to do
    with (
        open_scratch(conversion.out, identity_of(inputs, partial(_settings, conversion))) as scratch,
        Workers(count, conversion.on_bytes) as workers,
    ):
        joined = _divide(inputs, conversion, scratch, workers)
        _require_something_read(joined.counts)
        tasks = _buckets(joined, conversion, scratch)
        accounts = workers.run(_assemble, tasks)
        from art_otel.engines.accounting import describe_conversion  # noqa: PLC0415 # loads while the workers work
        from art_otel.store import write_report  # noqa: PLC0415 # as above

        account = AssemblyStats()
        merge_runs(_made(tasks, accounts, account), conversion.out, encode=workers.run_last)
        report = describe_conversion(joined.counts, account)
        write_report(report, conversion.out)
    return report


def _without_dataset(inputs: Sequence[Input], out: Path) -> list[Input]:
    """The inputs but for the dataset that is to be replaced, where the sources lead to it too."""
    folder = Path(os.path.realpath(out))
    others = [source for source in inputs if not _is_of_dataset(source, folder)]
    if inputs and not others:
        raise SourceError(f"{inputs[0].name}: {WHAT_READS_IT}")
    return others


def _is_of_dataset(source: Input, folder: Path) -> bool:
    if source.path is None:
        return False
    path = Path(os.path.realpath(source.path))
    return path.parent == folder and is_ours(path)


def _settings(conversion: Conversion) -> object:
    return (
        __version__,
        SCHEMA_VERSION,
        BUCKET_VERSION,
        conversion.format,
        tuple(conversion.rollout_spans),
        conversion.limits,
    )


def _require_something_read(counts: Counts) -> None:
    """Leave an earlier dataset alone when no source could be read at all."""
    errors = [file.error for file in counts.files if file.error is not None]
    if errors and len(errors) == len(counts.files) and not counts.spans:
        raise SourceError("; ".join(errors))


class _Share(NamedTuple):
    """What one worker reads."""

    inputs: Sequence[Input]
    folder: Path
    buckets: int
    limits: Limits
    format: str | None


def _divide(inputs: Sequence[Input], conversion: Conversion, scratch: Scratch, workers: Workers) -> Joined:
    """Phase one, unless a conversion that was killed had done it and all of its work is still as it was."""
    kept = scratch.kept(CHECKPOINT, Joined)
    if kept is not None and all([*workers.run(_is_as_kept, _buckets(kept, conversion, scratch))]):
        return kept
    scratch.clear()
    buckets = count_buckets(inputs)
    name = conversion.format
    split_bytes = max(MIN_SPLIT_BYTES, -(-sum(source.size or 0 for source in inputs) // workers.count))
    shares = [
        _Share(inputs=share, folder=scratch.new_folder(), buckets=buckets, limits=conversion.limits, format=name)
        for share in split_inputs(inputs, split_bytes, None if name is None else format_named(name))
    ]
    joined = join_partitions(_partitions(shares, workers), scratch.new_folder())
    if joined.on_disk:
        scratch.keep(CHECKPOINT, joined)
    return joined


def _partitions(shares: Sequence[_Share], workers: Workers) -> list[Partition]:
    """Read in several processes; what comes through standard input in this one, which has it."""
    if workers.count == 1:
        return [_partition(share, workers.advance, in_memory=True) for share in shares]
    others = workers.run(_partition, [share for share in shares if not _is_ours(share)])
    ours = [_partition(share, workers.advance) if _is_ours(share) else None for share in shares]
    return [next(others) if partition is None else partition for partition in ours]


def _is_ours(share: _Share) -> bool:
    return any(source.path is None and source.stored is None for source in share.inputs)


def _partition(share: _Share, on_bytes: Callable[[int], None] = advance, *, in_memory: bool = False) -> Partition:
    known: Format | None = None if share.format is None else format_named(share.format)
    return partition_spans(
        share.inputs, share.folder, share.buckets, share.limits, on_bytes, known, in_memory=in_memory
    )


class _Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """What phase two made of one bucket."""

    account: AssemblyStats
    run: FileChecksum


def _kept_of(bucket: Bucket) -> _Assembled | None:
    return Scratch(bucket.run.parent).kept(_name_of(bucket), _Assembled)


def _name_of(bucket: Bucket) -> str:
    return f"{bucket.run.name}.account"


def _stored(bucket: Bucket) -> list[Stored]:
    return [piece for piece in (*bucket.own, *bucket.guests) if isinstance(piece, Stored)]


def _is_as_kept(bucket: Bucket) -> bool:
    """Whether the run of a bucket, or else its records, stand in their files as they were written."""
    done = _kept_of(bucket)
    if done is not None:
        return done.run.matches(bucket.run)
    return all(piece.checksum.matches(Path(piece.path)) for piece in _stored(bucket))


def _assemble(bucket: Bucket) -> AssemblyStats:
    """Phase two of one bucket, unless a conversion that was killed had done it. Nobody needs its records then."""
    stored, done = _stored(bucket), _kept_of(bucket)
    account = assemble_bucket(bucket) if done is None else done.account
    if done is None and stored:  # what was only in memory is not taken up
        kept = _Assembled(account=account, run=synced_checksum(bucket.run))
        Scratch(bucket.run.parent).keep(_name_of(bucket), kept)
    for piece in stored:
        Path(piece.path).unlink(missing_ok=True)
    return account


def _made(tasks: Iterable[Bucket], accounts: Iterable[AssemblyStats], whole: AssemblyStats) -> Iterator[Path]:
    """The run of each bucket when it is made. What it counted is added to the whole."""
    for task, account in zip(tasks, accounts, strict=True):
        whole.add(account)
        yield task.run


def _buckets(joined: Joined, conversion: Conversion, scratch: Scratch) -> list[Bucket]:
    """The largest first, so that the workers are done at about one time."""
    parts = zip(joined.own, joined.guests, joined.moved, joined.representatives, strict=True)
    buckets = [
        Bucket(
            own=own,
            guests=guests,
            moved=moved,
            representatives=representatives,
            rollout_spans=tuple(conversion.rollout_spans),
            limits=conversion.limits,
            run=scratch.folder / f"run-{number:05d}",
            runs=len(joined.own),
        )
        for number, (own, guests, moved, representatives) in enumerate(parts)
    ]
    return sorted(buckets, key=lambda bucket: size_of((*bucket.own, *bucket.guests)), reverse=True)
