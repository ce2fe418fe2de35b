"""Runs: sorted trajectories in scratch files, and the dataset that is merged from them.

Invariant: a dataset has the same bytes whatever runs its trajectories stood in and whichever processes encoded it.

A run has as many stretches of sorted rows as memory needed. Where there are several, an empty batch with the numbers of
the batches that begin them ends the file.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice, pairwise
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from art_otel.errors import StoreError
from art_otel.store.encode import BATCH_SCHEMA, WeighedRow, encode_batches, order_of, weighed_row
from art_otel.store.encoded_group import EncodedGroup, encode_group_into
from art_otel.store.grouping import KEYS, FileLimits, RowGroupPlan, RowKeys, gather, plan_groups, rows_of
from art_otel.store.write import FILE_LIMITS, WriteSummary, write_groups
from art_otel.trajectories.trajectory import Trajectory

_ALL_PIECES_BYTES: Final = 48 * 1024 * 1024
"""Encoding a group loads a piece of every run."""

_PIECE_BYTES: Final = 2 * 1024 * 1024
_LEAST_PIECE_BYTES: Final = 256 * 1024
"""Smaller ones take longer to describe than to write."""

_STRETCH_BYTES: Final = 32 * 1024 * 1024
_STARTS: Final = "starts"

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
    the place of its trajectory, which takes more. The more runs there are, the smaller are the pieces of each that
    merge_runs loads at once.
    """
    piece_bytes = max(_LEAST_PIECE_BYTES, min(_PIECE_BYTES, _ALL_PIECES_BYTES // runs))
    starts: list[int] = []
    count = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, BATCH_SCHEMA) as writer:
        for rows in _stretches(map(weighed_row, trajectories)):
            starts.append(count)
            for batch in encode_batches(sorted(rows, key=order_of)):
                for piece in _pieces(batch, piece_bytes):
                    writer.write_batch(piece)
                    count += 1
        if len(starts) > 1:
            nothing = pa.RecordBatch.from_pylist([], schema=BATCH_SCHEMA)
            writer.write_batch(nothing, custom_metadata={_STARTS: " ".join(map(str, starts))})


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


def _pieces(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of about `size` bytes."""
    count = ceil(batch.nbytes / size)
    rows = ceil(batch.num_rows / count)
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def merge_runs(
    runs: Iterable[str | Path], out: str | Path, *, limits: FileLimits = FILE_LIMITS, encode: Encoder = map
) -> WriteSummary:
    """Merge runs of disjoint rollouts into the dataset that write_trajectories makes of all of them in order.

    Runs may still be made while they are asked for: each is looked at when it comes. Memory is that of about one row
    group and one piece of each run in each process, and of each run's stretches the keys of a piece or of 256 rows. Raises StoreError for a file
    that is no run.
    """
    sorted_rows = [_begun(rows) for run in runs for rows in _sorted_rows(str(run))]
    rows = heapq.merge(*sorted_rows, key=attrgetter("order"))
    return write_groups(plan_groups(rows, limits), lambda plans: encode(_encode, plans), out, limits)


def _begun(rows: Iterator[RowKeys[Piece]]) -> Iterator[RowKeys[Piece]]:
    """The same rows, of which the first are there already."""
    return chain(tuple(islice(rows, _BEGUN)), rows)


def _sorted_rows(run: str) -> list[Iterator[RowKeys[Piece]]]:
    """The keys of each stretch of the run."""
    with _opened(run) as reader:
        count = reader.num_record_batches
        if count == 0:
            return []
        last, told = reader.get_batch_with_custom_metadata(count - 1)
        if last.num_rows:
            return [_keys(run, range(count))]
        starts = [int(start) for start in told[_STARTS].decode().split()]
        return [_keys(run, range(*ends)) for ends in pairwise([*starts, count - 1])]


def _keys(run: str, batches: Iterable[int]) -> Iterator[RowKeys[Piece]]:
    """Read, not mapped: all runs are open at once, and what was looked at would stay in memory."""
    with pa.OSFile(run) as file, pa.ipc.open_file(file, options=_KEYS_ONLY) as reader:
        for number in batches:
            yield from rows_of(reader.get_batch(number), Piece(run, number))


def _encode(plan: PiecePlan) -> EncodedGroup:
    """Encode a group into a file beside the runs."""
    first = plan.slices[0]
    name = f"{first.batch.run}-{first.batch.number}-{first.first}.group"  # no other group begins there
    return encode_group_into(name, gather(plan, _load))


def _load(piece: Piece) -> pa.RecordBatch:
    with _opened(piece.run) as reader:
        return reader.get_batch(piece.number)


@contextmanager
def _opened(run: str) -> Generator[pa.ipc.RecordBatchFileReader]:
    """A run in mapped memory, so that only what is looked at is read."""
    try:
        with pa.memory_map(run) as file, pa.ipc.open_file(file) as reader:
            if not reader.schema.equals(BATCH_SCHEMA):
                raise StoreError(f"{run}: not a run of this version; convert again")
            yield reader
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{run}: cannot be read as a run: {error}") from error
