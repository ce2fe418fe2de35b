"""Local: convert on this machine. The story of a conversion.

Invariant: what stands in the output folder is either the previous dataset or the new one, never a part of it, and the
bytes depend on the spans only, not on files, order, buckets or workers.
"""

import multiprocessing
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from art_otel.engines.accounting import describe_conversion
from art_otel.engines.assemble import assemble_bucket
from art_otel.engines.partition import Partition, partition_spans
from art_otel.errors import SourceError, UsageError
from art_otel.sources import Limits, find_inputs, format_named
from art_otel.store import ConversionReport, merge_runs, write_report
from art_otel.trajectories import Account

_SCRATCH: Final = ".art-otel-scratch-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversion:
    """What to convert and how.

    `format` names a dump format, None detects it by content. `on_start` is told the total bytes (None: unknown),
    `on_bytes` each step of the way.
    """

    sources: Sequence[str]
    out: Path
    format: str | None = None
    rollout_spans: Sequence[str] = ()
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    on_start: Callable[[int | None], None] | None = None
    on_bytes: Callable[[int], None] | None = None


def convert(conversion: Conversion) -> ConversionReport:
    """Read the sources, assemble trajectories, write the dataset and its report."""
    if conversion.workers < 1:
        raise UsageError(f"--workers {conversion.workers}: needs at least one worker")
    known = None if conversion.format is None else format_named(conversion.format)
    inputs = find_inputs(conversion.sources)
    if conversion.on_start is not None:
        sizes = [source.size for source in inputs]
        conversion.on_start(None if None in sizes else sum(size or 0 for size in sizes))
    with _scratch(conversion.out) as scratch:
        partition = partition_spans(inputs, scratch, conversion.limits, conversion.on_bytes, known)
        _require_something_read(partition)
        account = Account()
        runs = [scratch / f"run-{bucket:05d}" for bucket in range(len(partition.contents))]
        for part in _assemble(partition, conversion, runs):
            account.add(part)
        merge_runs(runs, conversion.out)
    report = describe_conversion(partition, account)
    write_report(report, conversion.out)
    return report


def _require_something_read(partition: Partition) -> None:
    """Leave an earlier dataset alone when no source could be read at all."""
    errors = [file.error for file in partition.files if file.error is not None]
    if errors and len(errors) == len(partition.files) and not partition.spans:
        raise SourceError("; ".join(errors))


def _assemble(partition: Partition, conversion: Conversion, runs: Sequence[Path]) -> Iterator[Account]:
    tasks = [
        (own, guests, frozenset(partition.moved), tuple(conversion.rollout_spans), run)
        for (own, guests), run in zip(partition.contents, runs, strict=True)
    ]
    if conversion.workers == 1 or len(tasks) == 1:
        yield from (assemble_bucket(*task) for task in tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(conversion.workers, mp_context=context) as pool:
        yield from pool.map(assemble_bucket, *zip(*tasks, strict=True))


@contextmanager
def _scratch(out: Path) -> Generator[Path]:
    """A folder for temporary files inside the output folder; one that a killed run left behind is removed."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; name a folder for the dataset")
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=out))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
