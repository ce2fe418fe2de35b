"""Outlines: what the page knows of every trajectory, read as columns, and a search in all texts.

Invariant: row i is the i-th trajectory of the files in their order. The columns hold neither messages nor token ids; a
search looks through messages in the files, a row group at a time, so that memory does not grow with them.

A task is what stays the same over the steps of training: the id of a group where ids come again, or there is one step
alone, and no id has rollouts of several names; else the name.

    step 0   group "parser"   parser          step 0   group "0000-1"   hour
    step 1   group "parser"   parser          step 1   group "0001-4"   hour
             task: parser                              task: hour
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.data.stored_columns import with_group_ids
from art_otel.store import RowGroup
from art_otel.store.files import DataFile
from art_otel.store.read import groups_in, open_parquet
from art_otel.trajectories import GroupKey

_PLAIN: Final = (
    "rollout_id", "attempt", "trace_id", "name", "status", "reward", "complete", "gathering", "group_id", "split",
    "training_step", "policy_version", "started_at", "ended_at", "error",
)  # fmt: skip

_LISTS: Final = (
    "incomplete_reasons.list.element.reason",
    "calls.list.element.request_model",
    "calls.list.element.agent",
    "calls.list.element.error",
    "calls.list.element.error_type",
    "turns.list.element.call",
    "turns.list.element.finish_reason",
)

_MESSAGE: Final = (
    "content",
    "reasoning",
    "refusal",
    "parts",
    "tool_calls.list.element.name",
    "tool_calls.list.element.arguments",
)

_SEARCHED: Final = (
    "rollout_id", "trace_id", "name", "group_id", "error", "metadata", "nested_metadata", "logs",
    "rewards.list.element.label", "rewards.list.element.explanation",
    *(f"message_nodes.list.element.message.{field}" for field in _MESSAGE),
    *(f"turns.list.element.message.{field}" for field in _MESSAGE),
    "tool_calls.list.element.name", "tool_calls.list.element.arguments", "tool_calls.list.element.result",
    "tool_calls.list.element.error",
)  # fmt: skip

_REMEMBERED: Final = 16
CUT: Final = "length"
"""The finish reason of an answer that was cut at the limit of tokens."""

_ID: Final = re.compile(r"(?=[\w-]*\d)[\w-]{9,}")
_LONGEST_ERROR: Final = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewedFile:
    """A trajectory file of the source of this number. A run's files are of a step and a split."""

    data: DataFile
    source: int
    step: int | None = None
    split: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListColumn:
    """Row i has the names of `codes[offsets[i]:offsets[i + 1]]`; -1 is an unknown one."""

    names: list[str]
    codes: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Iterable[str]]) -> Self:
        """The column of these rows."""
        numbers: dict[str, int] = {}
        codes: list[int] = []
        offsets = [0]
        for row in rows:
            codes.extend([numbers.setdefault(name, len(numbers)) for name in row])
            offsets.append(len(codes))
        return cls(names=list(numbers), codes=np.array(codes, np.int32), offsets=np.array(offsets, np.int64))

    def row(self, number: int) -> list[str]:
        """The different texts of a row, in their order."""
        codes = self.codes[self.offsets[number] : self.offsets[number + 1]].tolist()
        return [self.names[code] for code in dict.fromkeys(codes) if code >= 0]

    def having(self, name: str) -> NDArray[np.bool_]:
        """Mark the rows that have the text. Shape: (rows,)."""
        if name not in self.names:
            return np.zeros(len(self.offsets) - 1, np.bool_)
        before = np.concatenate([[0], np.cumsum(self.codes == self.names.index(name))])
        return before[self.offsets[1:]] > before[self.offsets[:-1]]

    def counts(self) -> dict[str, int]:
        """In how many rows each text is, the most frequent first."""
        counts = Counter({name: int(np.count_nonzero(self.having(name))) for name in self.names})
        return dict(counts.most_common())


class ValueColumn(NamedTuple):
    """Row i has the value `names[codes[i]]`; -1 is an unknown one. Shape of `codes`: (rows,)."""

    codes: NDArray[np.int64]
    names: list[Any]

    @classmethod
    def of(cls, column: pa.Array) -> Self:
        """The values of a column."""
        encoded = column.dictionary_encode()
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(codes, encoded.dictionary.to_pylist())

    def or_else(self, other: "ValueColumn") -> "ValueColumn":
        """The values, and those of the other column where they are unknown."""
        numbers = {name: number for number, name in enumerate(self.names)}
        used = np.unique(other.codes[(self.codes < 0) & (other.codes >= 0)]).tolist()
        table = np.full(len(other.names) + 1, -1)
        table[used] = [numbers.setdefault(other.names[code], len(numbers)) for code in used]
        return ValueColumn(np.where(self.codes < 0, table[other.codes], self.codes), [*numbers])

    def equal(self, name: object) -> NDArray[np.bool_]:
        """Mark the rows that have the value. Shape: (rows,)."""
        return self.codes == (self.names.index(name) if name in self.names else len(self.names))

    def most(self, other: "ValueColumn") -> int:
        """With how many values of the other column one value of this occurs, at most."""
        are_known = (self.codes >= 0) & (other.codes >= 0)
        pairs = np.unique(self.codes[are_known] * len(other.names) + other.codes[are_known])
        return int(np.bincount(pairs // max(len(other.names), 1), minlength=1).max())


@dataclass(frozen=True, kw_only=True)
class Outlines:
    """`table` has a column for each plain field, and `source`, the number of the row's source.

    `finishes` are the finish reasons of turns, `turn_calls` the calls of all turns among all calls; `failures` are the
    errors of calls. `starts[i]` is the number of the first row of row group i, `file_starts[i]` of file i, with all
    rows at the end. `newest` are the rows by their start, the newest first; those without one are the last.
    """

    table: pa.Table
    calls: NDArray[np.int64]
    turns: NDArray[np.int64]
    reasons: ListColumn
    models: ListColumn
    agents: ListColumn
    failures: ListColumn
    finishes: ListColumn
    turn_calls: NDArray[np.int64]
    newest: NDArray[np.int64]
    groups: Sequence[RowGroup]
    starts: NDArray[np.int64]
    file_starts: NDArray[np.int64]

    def __len__(self) -> int:
        return self.table.num_rows

    def column(self, name: str) -> pa.Array:
        """The column as one array."""
        return self.table.column(name).chunk(0)

    def distinct(self, name: str) -> list[Any]:
        """The different values of a column."""
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
        return np.logical_and.reduce([self.equal(name, value) for name, value in key._asdict().items()])

    @cached_property
    def rewards(self) -> NDArray[np.float64]:
        """The rewards, NaN where there is none. Shape: (rows,)."""
        return self.column("reward").to_numpy(zero_copy_only=False).astype(np.float64)

    @cached_property
    def sources(self) -> NDArray[np.int64]:
        """The number of the source of each row. Shape: (rows,)."""
        return self.column("source").to_numpy(zero_copy_only=False).astype(np.int64)

    @cached_property
    def steps(self) -> ValueColumn:
        """The training step of each row."""
        return ValueColumn.of(self.column("shown_training_step"))

    @cached_property
    def tasks(self) -> ValueColumn:
        """The task of each row."""
        ids, names = (ValueColumn.of(self.column(name)) for name in ("recorded_group_id", "name"))
        comes_again = len(self.steps.names) < 2 or ids.most(self.steps) > 1
        if not ids.names or (names.names and not (comes_again and ids.most(names) == 1)):
            return names.or_else(ids)
        # Where each id has one name and each name one id, the name says it: an id may be a number.
        return names.or_else(ids) if names.most(ids) == 1 else ids.or_else(names)

    @cached_property
    def groups_of_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of the group of each row, -1 for none, and a row of each group. Shapes: (rows,), (groups,)."""
        codes = np.zeros(len(self), np.int64)
        for name in GroupKey._fields:
            values = ValueColumn.of(self.column(name))
            _, codes = np.unique(codes * (len(values.names) + 1) + values.codes, return_inverse=True)
        rows = np.flatnonzero(~self.equal("group_id", None))
        _, first, numbers = np.unique(codes[rows], return_index=True, return_inverse=True)
        result = np.full(len(self), -1)
        result[rows] = numbers
        return result, rows[first]

    @cached_property
    def errors(self) -> ValueColumn:
        """What each row failed with: its own error, or that of its last failed call; ids in it are left out."""
        own = ValueColumn.of(self.column("error"))
        failures, last = self.failures, np.full(len(self), -1)
        places = np.flatnonzero(failures.codes >= 0)
        last[np.searchsorted(failures.offsets, places, "right") - 1] = failures.codes[places]
        found = own.or_else(ValueColumn(last, failures.names))
        return ValueColumn.of(
            pa.array([*map(plain_error, found.names), None]).take(pa.array(found.codes % (len(found.names) + 1)))
        )

    @cached_property
    def cut(self) -> NDArray[np.bool_]:
        """Mark the rows with an answer that was cut at the limit of tokens. Shape: (rows,)."""
        return self.finishes.having(CUT)

    @cached_property
    def failed(self) -> NDArray[np.bool_]:
        """Mark the rows with a failed call. Shape: (rows,)."""
        before = np.concatenate([[0], np.cumsum(self.failures.codes >= 0)])
        return before[self.failures.offsets[1:]] > before[self.failures.offsets[:-1]]


def plain_error(text: str) -> str:
    """The first line of an error without its ids, so that errors of one cause are equal."""
    first = text.strip().split("\n", 1)[0]
    return _ID.sub("…", first)[:_LONGEST_ERROR]


class Search:
    """The searches of one snapshot; the latest are remembered."""

    def __init__(self, outlines: "Outlines") -> None:
        self._outlines = outlines
        self._matches: OrderedDict[str, NDArray[np.bool_]] = OrderedDict()

    def rows(self, query: str) -> NDArray[np.bool_]:
        """Mark the rows that hold the text. Shape: (rows,). Raises StoreError."""
        if query not in self._matches:
            self._matches[query] = self._look(query)
        while len(self._matches) > _REMEMBERED:
            self._matches.popitem(last=False)
        return self._matches[query]

    def _look(self, query: str) -> NDArray[np.bool_]:
        parts = [np.zeros(0, np.bool_)]
        for file, groups in groupby(self._outlines.groups, key=attrgetter("file")):
            with open_parquet(file) as parquet:
                for group in groups:
                    table = group.read(parquet, list(_SEARCHED))
                    matches = np.zeros(table.num_rows, np.bool_)
                    for column in table.columns:
                        for start, chunk in zip(_starts(column), column.chunks, strict=True):
                            matches[start : start + len(chunk)] |= _holding(chunk, query)
                    parts.append(matches)
        return np.concatenate(parts)


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
    turn_calls = pc.struct_field(pc.list_flatten(whole.column("turns")), "call").to_numpy().astype(np.int64)
    call_starts = np.concatenate([[0], np.cumsum(calls)])[:-1]
    newest = pc.array_sort_indices(_one_chunk(whole.select(["started_at"])).column(0).chunk(0), order="descending")
    return Outlines(
        table=_one_chunk(whole.drop_columns(["calls", "turns", "incomplete_reasons"])),
        calls=calls,
        turns=turns,
        reasons=_list_column(whole.column("incomplete_reasons"), "reason"),
        models=_list_column(whole.column("calls"), "request_model"),
        agents=_list_column(whole.column("calls"), "agent"),
        failures=_list_column(whole.column("calls"), "error", "error_type"),
        finishes=_list_column(whole.column("turns"), "finish_reason"),
        turn_calls=turn_calls + np.repeat(call_starts, turns),
        newest=newest.to_numpy().astype(np.int64),
        groups=groups,
        starts=np.cumsum([0, *(group.rows for group in groups)], dtype=np.int64),
        file_starts=np.cumsum([0, *(table.num_rows for table in tables)], dtype=np.int64),
    )


def _with_place(table: pa.Table, file: ViewedFile) -> pa.Table:
    """The table with the number of its source and the ids of its groups, also as they were recorded.

    A run's file says its step and split, too.
    """
    for name, value, kind in (("training_step", file.step, pa.int64()), ("split", file.split, pa.string())):
        column = table.column(name)
        shown = column if value is None else pc.fill_null(column, pa.scalar(value, kind))
        table = table.append_column(f"shown_{name}", shown)
    version = pc.struct_field(table.column("policy_version"), "last")
    table = table.append_column("shown_policy_version", version)
    table = table.append_column("recorded_group_id", table.column("group_id"))
    if group_ids := file.data.group_ids:
        table = with_group_ids(table, group_ids)
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


def _list_column(column: pa.ChunkedArray, *fields: str) -> ListColumn:
    """The texts of one field of lists of structs, or of the first of several that is known."""
    structs = pc.list_flatten(column)
    texts = pc.coalesce(*(pc.struct_field(structs, field) for field in fields))
    encoded = texts.combine_chunks().dictionary_encode()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    return ListColumn(
        names=encoded.dictionary.to_pylist(),
        codes=pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(_lengths(column))]).astype(np.int64),
    )


def _starts(column: pa.ChunkedArray) -> list[int]:
    return [0, *np.cumsum([len(chunk) for chunk in column.chunks]).tolist()][: column.num_chunks]


def _holding(array: pa.Array, query: str) -> NDArray[np.bool_]:
    """Mark the values that hold the text, at any depth. Shape: (values,)."""
    if pa.types.is_struct(array.type):
        matches = np.zeros(len(array), np.bool_)
        for field in range(array.type.num_fields):
            matches |= _holding(pc.struct_field(array, [field]), query)
        return matches
    if pa.types.is_list(array.type):
        inner = _holding(pc.list_flatten(array), query)
        before = np.concatenate([[0], np.cumsum(inner)])
        ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False))
        return np.diff(before[np.concatenate([[0], ends])]) > 0
    matching = pc.match_substring(array, query, ignore_case=True)
    return pc.fill_null(matching, fill_value=False).to_numpy(zero_copy_only=False)
