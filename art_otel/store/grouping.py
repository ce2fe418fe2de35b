"""Grouping: which rows make up a row group, and the table of those.

Invariant: only the rows and their order decide where a group ends; in which batches the rows stand does not matter. A
batch is any hashable value that says where rows are, and is loaded when they are gathered.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
import pyarrow as pa

# As pyarrow.compute has it, without the wrappers of all functions, which take 40 ms to make: as long as a row group.
from pyarrow._compute import call_function

from art_otel.errors import UsageError
from art_otel.store.encode import WEIGHT
from art_otel.store.part_writer import FileLimits
from art_otel.store.schema import SCHEMA

KEYS: Final = ("rollout_id", "attempt", "trace_id", WEIGHT)
"""The columns that grouping needs."""

Order: TypeAlias = tuple[str, int, str]
BatchT = TypeVar("BatchT", bound=Hashable)


class RowKeys(NamedTuple, Generic[BatchT]):
    """One row of a batch. `order` is its `Trajectory.order`."""

    order: Order
    weight: int
    batch: BatchT
    position: int


class Slice(msgspec.Struct, Generic[BatchT], frozen=True, kw_only=True):
    """`count` neighbours of a batch, from row `first` on."""

    batch: BatchT
    first: int
    count: int


class RowGroupPlan(msgspec.Struct, Generic[BatchT], frozen=True, kw_only=True):
    """The row group that consists of the rows of `slices`.

    `order` (shape (rows,)) puts them in order; it is None where they are in order already.
    """

    slices: tuple[Slice[BatchT], ...]
    order: tuple[int, ...] | None
    rows: int
    weight: int


def rows_of(keys: pa.RecordBatch, batch: BatchT) -> Iterator[RowKeys[BatchT]]:
    """The rows of a batch, of which `keys` has the columns KEYS at least."""
    ids, attempts, traces, weights = [keys.column(name).to_pylist() for name in KEYS]
    del keys  # the rows may be asked for much later, and it may hold the memory of all that was read with it
    for position, rollout_id in enumerate(ids):
        order = (rollout_id, attempts[position] or 0, traces[position])
        yield RowKeys(order, weights[position], batch, position)


def plan_groups(rows: Iterable[RowKeys[BatchT]], limits: FileLimits) -> Iterator[RowGroupPlan[BatchT]]:
    """The row groups of rows in order. Raises UsageError where the order breaks."""
    return map(_plan, _balanced(_groups(rows, limits), limits))


def _groups(rows: Iterable[RowKeys[BatchT]], limits: FileLimits) -> Iterator[list[RowKeys[BatchT]]]:
    """As many rows as the limits let into a group, and then the next."""
    group: list[RowKeys[BatchT]] = []
    weight = 0
    before: Order | None = None
    for row in rows:
        if before is not None and row.order < before:
            raise UsageError(
                f"rollout {row.order[0]!r} comes after {before[0]!r}: sort trajectories by their `order` before writing"
            )
        before = row.order
        if group and (len(group) == limits.group_rows or weight + row.weight > limits.group_bytes):
            yield group
            group, weight = [], 0
        group.append(row)
        weight += row.weight
    if group:
        yield group


def _balanced(groups: Iterable[list[RowKeys[BatchT]]], limits: FileLimits) -> Iterator[list[RowKeys[BatchT]]]:
    """The groups, of which the last two share what they have: processes that encode them are done together."""
    before: list[RowKeys[BatchT]] = []
    last: list[RowKeys[BatchT]] = []
    for group in groups:
        if before:
            yield before
        before, last = last, group
    if before:
        before, last = _halves(before + last, limits.group_rows)
    yield from filter(None, (before, last))


def _halves(rows: list[RowKeys[BatchT]], most: int) -> tuple[list[RowKeys[BatchT]], list[RowKeys[BatchT]]]:
    """Rows in two groups of at most `most` rows, the heavier of which is as light as can be."""
    before = list(accumulate((row.weight for row in rows), initial=0))
    cuts = range(max(1, len(rows) - most), min(len(rows), most + 1))
    cut = min(reversed(cuts), key=lambda cut: max(before[cut], before[-1] - before[cut]))
    return rows[:cut], rows[cut:]


def take_rows(plan: RowGroupPlan[BatchT], load: Callable[[BatchT], pa.RecordBatch]) -> pa.Table:
    """The rows of a group as one table in the batches' schema."""
    table = pa.Table.from_batches([load(piece.batch).slice(piece.first, piece.count) for piece in plan.slices])
    return table if plan.order is None else call_function("take", [table, pa.array(plan.order, pa.int64())])


def gather(plan: RowGroupPlan[BatchT], load: Callable[[BatchT], pa.RecordBatch]) -> pa.Table:
    """The rows of a group as one table in the file's schema."""
    table = take_rows(plan, load).drop_columns([WEIGHT]).combine_chunks()
    return table.replace_schema_metadata(SCHEMA.metadata)


def _plan(group: Sequence[RowKeys[BatchT]]) -> RowGroupPlan[BatchT]:
    """One slice of each batch, for its rows here are neighbours in it, then put in order."""
    places: dict[BatchT, list[int]] = {}  # where in the group the rows of each batch stand
    for place, row in enumerate(group):
        places.setdefault(row.batch, []).append(place)
    sliced = list(chain.from_iterable(places.values()))
    return RowGroupPlan(
        slices=tuple(
            Slice(batch=batch, first=group[taken[0]].position, count=len(taken)) for batch, taken in places.items()
        ),
        order=None if sliced == sorted(sliced) else tuple(sorted(range(len(sliced)), key=sliced.__getitem__)),
        rows=len(group),
        weight=sum(row.weight for row in group),
    )
