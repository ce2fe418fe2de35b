"""Outlines: what the list shows of every trajectory, read as columns.

Invariant: row i is the i-th trajectory of the files in their order. Neither messages nor token ids are read.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.store import RowGroup
from art_otel.store.files import DataFile
from art_otel.store.read import groups_in, open_parquet
from art_otel.viewer.keys import GroupKey
from art_otel.viewer.snapshot.list_column import ListColumn
from art_otel.viewer.snapshot.sources import ViewedFile

_PLAIN: Final = (
    "rollout_id", "attempt", "trace_id", "name", "status", "reward", "complete", "group_id", "split", "training_step",
    "policy_version", "started_at", "ended_at",
)  # fmt: skip
_LISTS: Final = (
    "incomplete_reasons.list.element.reason",
    "calls.list.element.request_model",
    "turns.list.element.call",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlines:
    """`table` has a column for each plain field, and `source`, the number of the row's source.

    `starts[i]` is the number of the first row of row group i, with all rows at the end.
    """

    table: pa.Table
    calls: NDArray[np.int64]
    turns: NDArray[np.int64]
    reasons: ListColumn
    models: ListColumn
    groups: Sequence[RowGroup]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return self.table.num_rows

    def column(self, name: str) -> pa.Array:
        """The column as one array."""
        return self.table.column(name).chunk(0)

    def distinct(self, name: str) -> list[str]:
        """The different texts of a column."""
        return self.column(name).unique().drop_null().to_pylist()

    def records(self, rows: Sequence[int] | NDArray[np.int64]) -> list[dict[str, Any]]:
        """The plain fields of these rows."""
        return self.table.take(pa.array(rows, pa.int64())).to_pylist()

    def equal(self, name: str, value: object) -> NDArray[np.bool_]:
        """Which rows have the value, None for those without one. Shape: (rows,)."""
        column = self.column(name)
        matches = (
            column.is_null()
            if value is None
            else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), fill_value=False)
        )
        return matches.to_numpy(zero_copy_only=False)

    def in_group(self, key: GroupKey) -> NDArray[np.bool_]:
        """Mark the rows of the group. Shape: (rows,)."""
        return self.equal("group_id", key.group_id) & self.equal("training_step", key.training_step)


def read_outlines(files: Sequence[ViewedFile]) -> Outlines:
    """Read the outlines of the trajectories in these files. Raises StoreError."""
    tables: list[pa.Table] = []
    groups: list[RowGroup] = []
    for file in files:
        with open_parquet(file.data.location) as parquet:
            table = parquet.read(columns=[*_PLAIN, *_LISTS])
            groups += groups_in(file.data, parquet)
        if file.data.superseded:
            current = np.delete(np.arange(table.num_rows), file.data.superseded)
            table = table.take(pa.array(current, pa.int64()))
        tables.append(_with_place(table, file))
    whole = pa.concat_tables(tables).combine_chunks() if tables else _empty()
    calls, turns = (_lengths(whole.column(name)) for name in ("calls", "turns"))
    return Outlines(
        table=_one_chunk(whole.drop_columns(["calls", "turns", "incomplete_reasons"])),
        calls=calls,
        turns=turns,
        reasons=_list_column(whole.column("incomplete_reasons"), "reason"),
        models=_list_column(whole.column("calls"), "request_model"),
        groups=groups,
        starts=np.cumsum([0, *(group.rows for group in groups)], dtype=np.int64),
    )


def _with_place(table: pa.Table, file: ViewedFile) -> pa.Table:
    """The table with the number of its source and the ids of its groups; a run's file says its step and split, too."""
    for name, value, kind in (("training_step", file.step, pa.int64()), ("split", file.split, pa.string())):
        column = table.column(name)
        shown = column if value is None else pc.fill_null(column, pa.scalar(value, kind))
        table = table.append_column(f"shown_{name}", shown)
    if group_ids := file.data.group_ids:
        position, steps = table.schema.get_field_index("group_id"), table.column("training_step").to_pylist()
        ids = table.column("group_id").to_pylist()
        others = [group_ids.get((step, group_id), group_id) for step, group_id in zip(steps, ids, strict=True)]
        table = table.set_column(position, "group_id", pa.array(others, pa.string()))
    return table.append_column("source", pa.repeat(pa.scalar(file.source, pa.int32()), table.num_rows))


def _empty() -> pa.Table:
    from art_otel.store.schema import SCHEMA  # noqa: PLC0415 # seldom: nothing was written yet

    return _with_place(SCHEMA.empty_table(), ViewedFile(data=DataFile(location="", dataset="", source=""), source=0))


def _one_chunk(table: pa.Table) -> pa.Table:
    columns = [column.combine_chunks() for column in table.columns]
    arrays = [column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return pa.table(arrays, names=table.column_names)


def _lengths(column: pa.ChunkedArray) -> NDArray[np.int64]:
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)


def _list_column(column: pa.ChunkedArray, field: str) -> ListColumn:
    """The texts of one field of lists of structs."""
    texts = pc.struct_field(pc.list_flatten(column), field)
    encoded = texts.combine_chunks().dictionary_encode()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    return ListColumn(
        names=encoded.dictionary.to_pylist(),
        codes=pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(_lengths(column))]).astype(np.int64),
    )
