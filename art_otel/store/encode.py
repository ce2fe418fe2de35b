"""Encoding: trajectories to Arrow batches, each row with its weight.

Invariant: a row's weight depends on that row alone, so that where files are cut does not depend on how trajectories
were spread over batches, runs or processes.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from art_otel.errors import StoreError
from art_otel.store.row_size import estimate_size
from art_otel.store.row_source import row_source
from art_otel.store.schema import ROW
from art_otel.trajectories import Trajectory

WEIGHT: Final = "weight"
BATCH_SCHEMA: Final = pa.schema([*ROW.type, pa.field(WEIGHT, pa.int64())])
"""A batch's columns: those of a file, and the weight of each row in bytes."""

_ROLLOUT_ID: Final = BATCH_SCHEMA.get_field_index("rollout_id")
_BATCH_ROWS: Final = 1024
_BATCH_BYTES: Final = 8 * 1024 * 1024  # large, because a hundred small arrays take long to make


Row: TypeAlias = tuple[Any, ...]


class WeighedRow(NamedTuple):
    """A row, about how many bytes it takes in memory as Arrow columns, and its `Trajectory.order`."""

    row: Row
    weight: int
    order: tuple[str, int, str]


def encode_batches(weighed: Iterable[WeighedRow]) -> Iterator[pa.RecordBatch]:
    """Batches of about 8 MiB or 1024 rows, of schema BATCH_SCHEMA.

    Raises StoreError, which names the rollout, for a value that no column can hold.
    """
    rows: list[Row] = []
    weights: list[int] = []
    total = 0
    for row, weight, _ in weighed:
        rows.append(row)
        weights.append(weight)
        total += weight
        if len(rows) == _BATCH_ROWS or total >= _BATCH_BYTES:
            yield _batch(rows, weights)
            rows, weights, total = [], [], 0
    if rows:
        yield _batch(rows, weights)


def weighed_row(trajectory: Trajectory) -> WeighedRow:
    """The row of a trajectory. Raises StoreError for a value that cannot be stored."""
    try:
        row = ROW.flatten(row_source(trajectory))
        return WeighedRow(row, estimate_size(row), trajectory.order)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise _unfit(trajectory.rollout_id, error) from error


def order_of(weighed: WeighedRow) -> tuple[str, int, str]:
    """`Trajectory.order` of the row's trajectory."""
    return weighed.order


def _batch(rows: Sequence[Row], weights: Sequence[int]) -> pa.RecordBatch:
    try:
        columns = [*ROW.arrays(rows), pa.array(weights, pa.int64())]
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        if len(rows) > 1:  # find the one at fault
            for row, weight in zip(rows, weights, strict=True):
                _batch([row], [weight])
        raise _unfit(rows[0][_ROLLOUT_ID], error) from error
    return pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA)


def _unfit(rollout_id: str, error: Exception) -> StoreError:
    return StoreError(f"rollout {rollout_id!r} cannot be stored: {error}; correct the value or leave the rollout out")
