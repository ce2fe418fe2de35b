"""Writing: trajectories to the files of a dataset, at once or through sorted runs.

Invariant: the files' bytes follow from the trajectories and their order alone. Both ways go row by row through the same
cutting into row groups and parts, so it does not matter in which runs and batches the rows came.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from art_otel.errors import StoreError, UsageError
from art_otel.store.dataset import Dataset
from art_otel.store.encode import BATCH_SCHEMA, WEIGHT, encode_batches
from art_otel.store.schema import SCHEMA
from art_otel.trajectories.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLimits:
    """The most rows and bytes (in memory, about) of a row group and of a part. One row may be larger."""

    group_rows: int = 1024
    group_bytes: int = 32 * 1024 * 1024
    part_rows: int = 64 * 1024
    part_bytes: int = 1024 * 1024 * 1024


_FILE_LIMITS: Final = FileLimits()
_PIECE_BYTES: Final = 2 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteSummary:
    """What was written: how many trajectories, into which files, in order."""

    trajectories: int
    files: tuple[Path, ...]


def write_trajectories(
    trajectories: Iterable[Trajectory], path: str | Path, *, limits: FileLimits = _FILE_LIMITS
) -> WriteSummary:
    """Write trajectories, in `Trajectory.order`, into a folder as `part-*.parquet` or into one `*.parquet` file.

    What was there before is replaced when everything is written. A list or tuple may come in any order; an iterator is
    written as it comes, with memory of about one row group, and has to be sorted. Raises UsageError when it is not or
    the path cannot be a dataset, StoreError for a trajectory no column can hold, OSError for what the disk refuses.
    """
    if isinstance(trajectories, Sequence):
        trajectories = sorted(trajectories, key=attrgetter("order"))
    return _write(_rows(encode_batches(trajectories)), path, limits)


def write_run(trajectories: Iterable[Trajectory], path: str | Path) -> None:
    """Write trajectories, sorted by `Trajectory.order`, as a run for merge_runs: a scratch file in Arrow IPC.

    It is not compressed: that would take as long as all the rest of it.
    """
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, BATCH_SCHEMA) as writer:
        for batch in encode_batches(trajectories):
            for piece in _pieces(batch):
                writer.write_batch(piece)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of about 2 MiB, because merging holds a piece of every run."""
    count = ceil(batch.nbytes / _PIECE_BYTES)
    rows = ceil(batch.num_rows / count)
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def merge_runs(runs: Sequence[str | Path], out: str | Path, *, limits: FileLimits = _FILE_LIMITS) -> WriteSummary:
    """Merge runs of disjoint rollouts into the dataset that write_trajectories makes of all of them in order.

    Memory is that of about one row group and 2 MiB of each run. Raises StoreError for a file that is no run.
    """
    rows = heapq.merge(*map(_run_rows, runs), key=attrgetter("order"))
    return _write(rows, out, limits)


_Order: TypeAlias = tuple[str, int, str]


class _Row(NamedTuple):
    """One row of a batch. `order` is its `Trajectory.order`."""

    order: _Order
    group_id: str | None
    weight: int
    batch: pa.RecordBatch
    position: int


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        ids, attempts, traces, groups, weights = (
            batch.column(name).to_pylist() for name in ("rollout_id", "attempt", "trace_id", "group_id", WEIGHT)
        )
        for position, rollout_id in enumerate(ids):
            order = (rollout_id, attempts[position] or 0, traces[position])
            yield _Row(order, groups[position], weights[position], batch, position)


def _run_rows(run: str | Path) -> Iterator[_Row]:
    try:
        with pa.OSFile(str(run), "rb") as file, pa.ipc.open_file(file) as reader:
            if not reader.schema.equals(BATCH_SCHEMA):
                raise StoreError(f"{run}: not a run of this version; convert again")
            yield from _rows(map(reader.get_batch, range(reader.num_record_batches)))
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{run}: cannot be read as a run: {error}") from error


def _write(rows: Iterable[_Row], path: str | Path, limits: FileLimits) -> WriteSummary:
    group_indexes = _GroupIndexes()
    count = part_rows = part_bytes = 0
    with Dataset(path) as dataset:
        for group in _row_groups(_checked(rows), limits):
            weight = sum(row.weight for row in group)
            if part_rows and (part_rows + len(group) > limits.part_rows or part_bytes + weight > limits.part_bytes):
                dataset.end_part()
                part_rows = part_bytes = 0
            dataset.write(_table(group, group_indexes))
            count += len(group)
            part_rows += len(group)
            part_bytes += weight
        return WriteSummary(trajectories=count, files=dataset.commit())


def _checked(rows: Iterable[_Row]) -> Iterator[_Row]:
    before: _Order | None = None
    for row in rows:
        if before is not None and row.order < before:
            raise UsageError(
                f"rollout {row.order[0]!r} comes after {before[0]!r}: sort trajectories by their `order` before writing"
            )
        before = row.order
        yield row


def _row_groups(rows: Iterable[_Row], limits: FileLimits) -> Iterator[list[_Row]]:
    group: list[_Row] = []
    weight = 0
    for row in rows:
        if group and (len(group) == limits.group_rows or weight + row.weight > limits.group_bytes):
            yield group
            group, weight = [], 0
        group.append(row)
        weight += row.weight
    if group:
        yield group


class _GroupIndexes:
    """ART's number of each group, by first appearance. A rollout without a group is a group of its own."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._count = 0

    def of(self, group_id: str | None) -> int:
        index = self._count if group_id is None else self._known.setdefault(group_id, self._count)
        self._count = max(self._count, index + 1)
        return index


def _table(group: Sequence[_Row], group_indexes: _GroupIndexes) -> pa.Table:
    """The rows as one table in the file's schema."""
    indexes = pa.array([group_indexes.of(row.group_id) for row in group], pa.int64())
    table = _gather(group).drop_columns([WEIGHT]).combine_chunks()
    return table.add_column(0, "group_index", indexes).replace_schema_metadata(SCHEMA.metadata)


def _gather(group: Sequence[_Row]) -> pa.Table:
    """The rows in order: one slice of each batch, for its rows here are neighbours in it, then put in order."""
    places: dict[int, list[int]] = {}  # where in the group the rows of each batch stand
    for place, row in enumerate(group):
        places.setdefault(id(row.batch), []).append(place)
    slices = [group[taken[0]].batch.slice(group[taken[0]].position, len(taken)) for taken in places.values()]
    table = pa.Table.from_batches(slices)
    sliced = list(chain.from_iterable(places.values()))
    if sliced == sorted(sliced):
        return table
    return table.take(pa.array(sorted(range(len(sliced)), key=sliced.__getitem__), pa.int64()))
