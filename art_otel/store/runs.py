"""Runs: sorted trajectories in scratch files, and the dataset that is merged from them.

Invariant: a dataset has the same bytes whatever runs its trajectories stood in and whichever processes encoded it.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice, tee
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from art_otel.errors import StoreError
from art_otel.store.dataset import Dataset
from art_otel.store.encode import BATCH_SCHEMA, WeighedRow, encode_batches, order_of, weighed_row
from art_otel.store.encoded_group import EncodedGroup, encode_group_into
from art_otel.store.grouping import KEYS, BatchT, RowGroupPlan, RowKeys, gather, plan_groups, rows_of, take_rows
from art_otel.store.part_writer import FILE_LIMITS, FileLimits
from art_otel.store.write import WriteSummary
from art_otel.trajectories import Trajectory

_ALL_PIECES_BYTES: Final = 48 * 1024 * 1024
"""Encoding a group loads a piece of every run."""

_PIECE_BYTES: Final = 2 * 1024 * 1024
_LEAST_PIECE_BYTES: Final = 256 * 1024
"""Smaller ones take longer to describe than to write."""

_STRETCH_BYTES: Final = 32 * 1024 * 1024
_UNITED: Final = FileLimits(group_bytes=8 * 1024 * 1024)
"""How much is in memory while stretches are merged."""

_KEYS_ONLY: Final = pa.ipc.IpcReadOptions(included_fields=[BATCH_SCHEMA.get_field_index(name) for name in KEYS])

_BEGUN: Final = 256
"""Rows of which the keys are read when a run is made: all of it where rows are large."""


class Piece(NamedTuple):
    """A batch of a run: the run's file and the number of the batch in it."""

    run: str
    number: int


PiecePlan: TypeAlias = RowGroupPlan[Piece]
Encoder: TypeAlias = Callable[[Callable[[PiecePlan], EncodedGroup], Iterable[PiecePlan]], Iterable[EncodedGroup]]
"""`map`, or what does the same with several processes. The results come in the order of the plans."""


def write_run(trajectories: Iterable[Trajectory], path: str | Path, *, runs: int = 1) -> None:
    """Write trajectories as one of about `runs` runs for merge_runs, sorted: a scratch file in Arrow IPC.

    It is not compressed: that would take as long as all the rest of it. Memory holds the rows of about 32 MiB, each in
    the place of its trajectory, which takes more; where there are more rows, stretches of them are written and then
    merged. The more runs there are, the smaller are the pieces of each that merge_runs loads at once.
    """
    piece_bytes = max(_LEAST_PIECE_BYTES, min(_PIECE_BYTES, _ALL_PIECES_BYTES // runs))
    stretches = _stretches(map(weighed_row, trajectories))
    names = [str(path)]
    _write(_sorted(next(stretches, [])), names[0], piece_bytes)
    for number, rows in enumerate(stretches, 1):
        names.append(f"{path}-stretch-{number}")
        _write(_sorted(rows), names[-1], piece_bytes)
    if len(names) > 1:
        united = f"{path}-united"
        plans = plan_groups(_in_order(map(_keys, names)), _UNITED)
        _write((batch for plan in plans for batch in take_rows(plan, _load).to_batches()), united, piece_bytes)
        for name in names[1:]:
            Path(name).unlink()
        Path(united).replace(path)


def _sorted(rows: Iterable[WeighedRow]) -> Iterator[pa.RecordBatch]:
    return encode_batches(sorted(rows, key=order_of))


def _write(batches: Iterable[pa.RecordBatch], path: str, piece_bytes: int) -> None:
    """Write sorted rows in pieces of about so many bytes."""
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, BATCH_SCHEMA) as writer:
        for batch in batches:
            count = ceil(batch.nbytes / piece_bytes)
            rows = ceil(batch.num_rows / count)
            for start in range(0, batch.num_rows, rows):
                writer.write_batch(batch.slice(start, rows))


def _stretches(rows: Iterable[WeighedRow]) -> Iterator[list[WeighedRow]]:
    """As many rows as memory is meant to hold, and then the next."""
    stretch: list[WeighedRow] = []
    size = 0
    for row in rows:
        stretch.append(row)
        size += row.weight
        if size > _STRETCH_BYTES:
            yield stretch
            stretch, size = [], 0
    if stretch:
        yield stretch


def merge_runs(
    runs: Iterable[str | Path], out: str | Path, *, limits: FileLimits = FILE_LIMITS, encode: Encoder = map
) -> WriteSummary:
    """Merge runs of disjoint rollouts into the dataset that write_trajectories makes of all of them in order.

    Runs may still be made while they are asked for: each is looked at when it comes. Memory is that of about one row
    group and one piece of each run in each process, and the keys of a piece of each run or of 256 rows. Raises
    StoreError for a file that is no run.
    """
    rows = _in_order(_begun(_keys(str(run))) for run in runs)
    return write_groups(plan_groups(rows, limits), lambda plans: encode(_encode, plans), out, limits)


def write_groups(
    plans: Iterator[RowGroupPlan[BatchT]],
    encode: Callable[[Iterable[RowGroupPlan[BatchT]]], Iterable[EncodedGroup]],
    path: str | Path,
    limits: FileLimits,
) -> WriteSummary:
    """Write row groups as `encode` makes them, in order."""
    count = part_rows = part_bytes = 0
    with Dataset(path) as dataset:
        planned, ahead = tee(plans)
        for plan, group in zip(planned, encode(ahead), strict=True):
            if part_rows and (part_rows + plan.rows > limits.part_rows or part_bytes + plan.weight > limits.part_bytes):
                dataset.end_part()
                part_rows = part_bytes = 0
            dataset.write(group)
            count += plan.rows
            part_rows += plan.rows
            part_bytes += plan.weight
        return WriteSummary(trajectories=count, files=tuple(map(str, dataset.commit())))


def _in_order(runs: Iterable[Iterator[RowKeys[Piece]]]) -> Iterator[RowKeys[Piece]]:
    return heapq.merge(*runs, key=attrgetter("order"))


def _begun(rows: Iterator[RowKeys[Piece]]) -> Iterator[RowKeys[Piece]]:
    """The same rows, of which the first are there already."""
    return chain(tuple(islice(rows, _BEGUN)), rows)


def _keys(run: str) -> Iterator[RowKeys[Piece]]:
    """Read, not mapped: all runs are open at once, and what was looked at would stay in memory."""
    with _opened(run, pa.OSFile) as file:
        if not pa.ipc.open_file(file).schema.equals(BATCH_SCHEMA):
            raise StoreError(f"{run}: not a run of this version; convert again")
        reader = pa.ipc.open_file(file, options=_KEYS_ONLY)
        for number in range(reader.num_record_batches):
            yield from rows_of(reader.get_batch(number), Piece(run, number))


def _encode(plan: PiecePlan) -> EncodedGroup:
    """Encode a group into a file beside the runs."""
    first = plan.slices[0]
    name = f"{first.batch.run}-{first.batch.number}-{first.first}.group"  # no other group begins there
    return encode_group_into(name, gather(plan, _load))


def _load(piece: Piece) -> pa.RecordBatch:
    """A batch in mapped memory, so that only what is looked at is read."""
    with _opened(piece.run, pa.memory_map) as file:
        return pa.ipc.open_file(file).get_batch(piece.number)


@contextmanager
def _opened(run: str, open_file: Callable[[str], pa.NativeFile]) -> Generator[pa.NativeFile]:
    try:
        with open_file(run) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{run}: cannot be read as a run: {error}") from error
