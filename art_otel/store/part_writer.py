"""PartWriter: write trajectories, as they come, to one Parquet file.

Invariant: equal trajectories in equal order give equal bytes, and the summary depends on the file only. Memory has one
row group.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.errors import StoreError
from art_otel.store.report import Bounds, Part, part_name
from art_otel.store.rows import row_source
from art_otel.store.schema import ROW, SCHEMA
from art_otel.trajectories import Trajectory

_PAGE_BYTES: Final = 1 << 16
"""Bytes of a page before it is compressed: zstd takes a fifth less time than for pyarrow's 1 MiB, and files grow by
0.3 %."""

_EMPTY_ROW: Final = 512
"""Bytes in memory."""

_DICTIONARY_LEAVES: Final = frozenset((
    "agent", "answer_known", "closed_by_app", "conventions", "error_type", "evidence", "failure", "field",
    "finish_reason", "first", "gathering", "group_id", "kind", "label", "last", "marked_untrained", "name",
    "operation_name", "parameters", "policy_version", "policy_version_end", "prompt_known", "provider", "reason",
    "request_model", "response_model", "role", "source", "split", "status", "tools", "toolsets", "trace_id",
    "tokens_untrained", "text_untrained",
))  # fmt: skip
"""Leaf columns of few different values, which a dictionary shrinks; elsewhere it only costs."""

_ENCODER: Final = msgspec.msgpack.Encoder()

RowValues: TypeAlias = tuple[Any, ...]
"""The flattened values of a row, one per column."""


class FlatRow(NamedTuple):
    """A trajectory as the values of its row. `order` and `split` are the trajectory's, `size` is about its bytes."""

    order: tuple[str, int, str]
    split: str | None
    values: RowValues
    size: int


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most rows and bytes (in memory, about) of a row group and of a part. One row may be larger."""

    group_rows: int = 1024
    group_bytes: int = 16 * 1024 * 1024
    part_rows: int = 64 * 1024
    part_bytes: int = 1024 * 1024 * 1024


FILE_LIMITS: Final = FileLimits()


def write_part(
    trajectories: Iterable[Trajectory],
    path: Path,
    number: int,
    limits: FileLimits = FILE_LIMITS,
    *,
    with_traces: bool = False,
) -> Part:
    """Write all trajectories into one file, `with_traces` of their calls, and return the summary of part `number`.

    The file has a temporary name; a commit gives it the name in the summary. Raises StoreError for a trajectory with a
    value that no column can hold, OSError if the disk cannot be written; then the file is removed.
    """
    with PartWriter(path, limits, with_traces=with_traces) as writer:
        for trajectory in trajectories:
            writer.add(trajectory)
        return writer.finish(number)


def flatten_row(trajectory: Trajectory, *, with_traces: bool = False) -> FlatRow:
    """Make the row of a trajectory. Raises StoreError for a value that no column can hold."""
    try:
        values: RowValues = ROW.flatten(row_source(trajectory, with_traces=with_traces))
        return FlatRow(trajectory.order, trajectory.split, values, estimate_size(values))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise _unfit(trajectory.rollout_id, error) from error


def estimate_size(row: RowValues) -> int:
    """About how many bytes the row takes in memory as Arrow columns, from the row alone.

    No text or token in it counts less than it is long: row groups and parts end by the sizes of their rows. Raises what
    msgspec does for values that no column can hold.
    """
    return _EMPTY_ROW + len(_ENCODER.encode(row))


class PartWriter:
    """One Parquet file while it is written. Without a call of `finish` it is removed at the end."""

    def __init__(self, path: Path, limits: FileLimits = FILE_LIMITS, *, with_traces: bool = False) -> None:
        self._with_traces = with_traces
        self.path = path
        self.rows = 0
        self._bytes = 0
        self._limits = limits
        self._group: list[RowValues] = []
        self._group_bytes = 0
        self._rows: list[pa.Table] = []
        self._splits: set[str | None] = set()
        self._finished = False
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pq.ParquetWriter(self._file, SCHEMA, **_writer_options())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Remove the file unless it is finished."""
        if not self._finished:
            with suppress(OSError, pa.ArrowException):  # closing may fail on a full disk; the file is removed anyway
                self._writer.close()
            with suppress(OSError):
                self._file.close()
            self.path.unlink(missing_ok=True)

    @property
    def full(self) -> bool:
        """Whether the file has as many rows or bytes as a part should."""
        return self.rows >= self._limits.part_rows or self._bytes >= self._limits.part_bytes

    def add(self, trajectory: Trajectory) -> None:
        """Add a row. Raises StoreError for a trajectory that no column can hold."""
        self.add_flat(flatten_row(trajectory, with_traces=self._with_traces))

    def add_flat(self, row: FlatRow) -> None:
        """Add a row that was flattened before."""
        if self._group and (
            len(self._group) == self._limits.group_rows or self._group_bytes + row.size > self._limits.group_bytes
        ):
            self._write_group()
        self._group.append(row.values)
        self._group_bytes += row.size
        self.rows += 1
        self._bytes += row.size
        self._splits.add(row.split)

    def add_table(self, table: pa.Table) -> None:
        """Add the rows of another part, unchanged."""
        self._rows.append(table.select(SCHEMA.names).cast(SCHEMA))
        self.rows += table.num_rows
        self._bytes += table.nbytes
        self._splits.update(table.column("split").to_pylist())
        if sum(rows.nbytes for rows in self._rows) >= self._limits.group_bytes:
            self._write_rows()

    def finish(self, number: int) -> Part:
        """Write the remaining rows, and return the summary of part `number`."""
        self._write_rows()
        self._write_group()
        self._writer.add_key_value_metadata(SCHEMA.metadata)
        self._writer.close()
        self._file.close()
        with self.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        metadata = pq.read_metadata(self.path)
        self._finished = True
        return Part(
            name=part_name(number, sha256),
            rows=self.rows,
            group_rows=tuple(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)),
            bytes=size,
            sha256=sha256,
            started_at=_bounds("started_at", metadata),
            training_step=_bounds("training_step", metadata),
            splits=tuple(sorted(self._splits, key=lambda split: (split is not None, split or ""))),
        )

    def _write_group(self) -> None:
        group, self._group, self._group_bytes = self._group, [], 0
        if group:
            self._writer.write_table(make_table(group), row_group_size=len(group))

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._writer.write_table(pa.concat_tables(rows), row_group_size=self._limits.group_rows)


def _bounds(column: str, metadata: pq.FileMetaData) -> Bounds | None:
    """The least and the greatest number of a column; None if no row has a number."""
    position = _LEAF_PATHS.index(column)
    groups = (metadata.row_group(index).column(position).statistics for index in range(metadata.num_row_groups))
    known = [statistics for statistics in groups if statistics.has_min_max]
    return Bounds(min(one.min for one in known), max(one.max for one in known)) if known else None


def make_table(rows: Sequence[RowValues]) -> pa.Table:
    """Make the table of rows. Raises StoreError for a value that no column can hold."""
    try:
        arrays = ROW.arrays(rows)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        if len(rows) > 1:  # find the one at fault
            for row in rows:
                make_table([row])
        raise _unfit(rows[0][SCHEMA.get_field_index("rollout_id")], error) from error
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _unfit(rollout_id: str, error: Exception) -> StoreError:
    return StoreError(f"rollout {rollout_id!r} cannot be stored: {error}; correct the value or leave the rollout out")


def _writer_options() -> dict[str, Any]:
    return {
        "version": "2.6",
        "compression": "zstd",
        "compression_level": 1,  # takes two thirds of the time of 3, for files of nearly the same size
        "use_dictionary": _DICTIONARY_COLUMNS,
        "write_statistics": [field.name for field in SCHEMA if not pa.types.is_nested(field.type)],
        "store_schema": False,
        "data_page_size": _PAGE_BYTES,
    }


def _leaf_paths(path: str, kind: pa.DataType) -> list[str]:
    """Parquet's paths of the columns that hold the values of one column, in the order of a file."""
    if pa.types.is_list(kind):
        return _leaf_paths(f"{path}.list.element", kind.value_type)
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaf_paths(f"{path}.{field.name}", field.type)]
    return [path]


_LEAF_PATHS: Final = tuple(path for field in SCHEMA for path in _leaf_paths(field.name, field.type))
_DICTIONARY_COLUMNS: Final = [
    path for path in _LEAF_PATHS if path.removesuffix(".list.element").rpartition(".")[2] in _DICTIONARY_LEAVES
]
