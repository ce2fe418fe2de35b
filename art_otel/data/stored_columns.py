"""Stored columns: read the columns of trajectories from files, without making trajectories.

Invariant: the columns are equal to those of the same trajectories in memory (`columns.columns_of`). Only the needed
columns are read, and parts that are left out are not opened.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from art_otel import storage
from art_otel.calls import InferenceCall
from art_otel.data.columns import (
    COLUMNS,
    EVERY_PART,
    UNKNOWN,
    Coded,
    ColumnPart,
    Columns,
    Flags,
    Floats,
    Ints,
    Texts,
    code_type,
    join_columns,
    narrow,
    unknown_of,
    unread,
)
from art_otel.errors import StoreError
from art_otel.store import RowGroup
from art_otel.store.read import open_parquet
from art_otel.store.schema import SCHEMA
from art_otel.trajectories import GroupKey

_LISTS: Final = {
    "rollout": "",
    "gap": "incomplete_reasons.list.element.",
    "call": "calls.list.element.",
    "call gap": "calls.list.element.gaps.list.element.",
    "turn": "turns.list.element.",
    "span": "turns.list.element.weight_versions.list.element.",
    "reward": "rewards.list.element.",
}
"""The Parquet path of each kind of item, before the name of a field."""

_MADE: Final[Mapping[str, tuple[str, ...]]] = {
    "incomplete_reasons": (), "calls": (), "turns": (), "rewards": (), "weight_versions": (), "gaps": (),
    "error_type": (),  # read for `failed`
    "drifts": ("calls.list.element.drifted_at",),
    "sampling_mask": ("turns.list.element.sampling_mask.list.element.list.element",),
    "rewritten_prompts": ("calls.list.element.rewritten_at",),
    "failed": ("calls.list.element.error_type", "calls.list.element.error"),
    "closed": ("calls.list.element.closed_by_app",),
    "media": ("calls.list.element.media.list.element",),
    "is_constrained": ("calls.list.element.parameters",),
    "has_masked_logprobs": (), "is_altered": (), "is_greedy": (),
    "is_uncounted": tuple(f"calls.list.element.{name}" for name in ("stream", "toolset", "usage.output_tokens")),
}  # fmt: skip
"""Columns without a field of their own in files: the paths of the fields that they are computed from."""


def _paths(parts: frozenset[ColumnPart]) -> list[str]:
    """The Parquet paths that the columns of these parts need."""
    sources = [source for _, _, source in COLUMNS if source.part in parts]
    return [path for one in sources for path in _MADE.get(one.name, (_LISTS[one.of] + one.name,))]


_CALLED: Final = InferenceCall(trace_id="", span_id="", operation_name="chat", start_ns=0, end_ns=None)


def read_stored(groups: Sequence[RowGroup], left_out: Sequence[bool], read: frozenset[ColumnPart]) -> Columns:
    """Read these parts of the columns of row groups. Row groups that are left out get rows of unknown values.

    Raises StoreError.
    """
    names = _paths(read)
    roots = {name.partition(".")[0] for name in _paths(EVERY_PART)}
    empty = _reduced(pa.schema([field for field in SCHEMA if field.name in roots]).empty_table(), None, None)
    parts, tables = list[Columns](), [empty]
    for file, of_file in groupby(zip(groups, left_out, strict=True), key=lambda each: each[0].file):
        members = list(of_file)
        if all(is_left_out for _, is_left_out in members):
            rows = sum(group.rows for group, _ in members)
            tables.append(pa.table([pa.nulls(rows, field.type) for field in empty.schema], empty.schema))
            continue
        with open_parquet(file) as parquet:
            if parquet.num_row_groups != len(members):
                raise StoreError(f"{storage.shown(file)}: was rewritten while it was read; start again")
            for group, _ in members:
                table = group.read(parquet, names)
                table = with_group_ids(table, group.group_ids) if group.group_ids else table
                tables.append(_reduced(table, group, parquet))
                if sum(map(len, tables)) > _AT_ONCE:
                    parts.append(_columns(tables, read))
                    tables = [empty]
                    pa.default_memory_pool().release_unused()  # else the pool keeps the memory of all calls' texts
    parts.append(_columns(tables, read))
    return join_columns(parts)


_AT_ONCE: Final = 1_500
"""How many rollouts are kept as Arrow tables, before they become columns, which take less memory."""


def with_group_ids(table: pa.Table, group_ids: Mapping[GroupKey, str]) -> pa.Table:
    """The table with new group ids, if several runs use the same ids."""
    keys = map(GroupKey, *(table.column(name).to_pylist() for name in GroupKey._fields))
    distinct = [group_ids.get(key, key.group_id) for key in keys]
    return table.set_column(table.schema.get_field_index("group_id"), "group_id", pa.array(distinct, pa.string()))


def _reduced(table: pa.Table, group: RowGroup | None, parquet: pq.ParquetFile | None) -> pa.Table:
    """Replace long texts of calls by the flags that are needed of them: all texts together may overflow one array."""
    calls, ends = _flattened(table.column("calls"))
    by_name = {name: pc.struct_field(calls, name) for name in calls.type.names}
    error, parameters = by_name.pop("error"), by_name.pop("parameters")
    by_name["failed"] = pc.or_(by_name["error_type"].is_valid(), error.is_valid())
    by_name["media"] = pa.array(_lengths(by_name["media"]) > 0)
    by_name["closed"] = by_name.pop("closed_by_app").is_valid()
    by_name |= _asked(parameters, by_name["logprobs_mode"])
    if "stream" in by_name:
        stream, toolset, usage = (by_name.pop(name) for name in ("stream", "toolset", "usage"))
        has_tools = _flags(stream) & _flags(pc.struct_field(usage, "output_tokens").is_null())
        has_tools &= _flags(toolset.is_valid())
        if group is not None and parquet is not None and has_tools.any():  # the texts of tools may be long
            texts, text_ends = _flattened(group.read(parquet, ["toolsets"]).column("toolsets"))
            is_empty = np.append(_flags(pc.equal(texts, "[]")), False)
            places = text_ends[:-1].repeat(np.diff(ends)) + _numbers(toolset, 0)
            has_tools &= ~is_empty[np.minimum(places, len(texts))]
        by_name["is_uncounted"] = pa.array(has_tools)
    reduced = pa.StructArray.from_arrays(list(by_name.values()), list(by_name))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), reduced)
    return table.set_column(table.schema.get_field_index("calls"), "calls", lists)


class _Asked(NamedTuple):
    """The flags that follow from the parameters of a call (`InferenceCall`, `Sampling`)."""

    is_constrained: bool
    has_masked_logprobs: bool
    has_masked_raw_logprobs: bool
    is_altered: bool
    is_greedy: bool


def _asked(parameters: pa.Array, modes: pa.Array) -> dict[str, pa.Array]:
    """The flags of calls' parameters, as columns. Each different text is parsed once: most calls have equal ones."""
    encoded = parameters.dictionary_encode()
    nothing = _Asked(*[False] * len(_Asked._fields))
    asked = [nothing if text is None else _read_asked(text) for text in encoded.dictionary.to_pylist()]
    codes = _numbers(encoded.indices, len(asked))
    columns = dict(zip(_Asked._fields, np.array([*asked, nothing], np.bool_).T[:, codes], strict=True))
    masked_raw = columns.pop("has_masked_raw_logprobs")
    columns["has_masked_logprobs"] = np.where(
        _flags(pc.equal(modes, "raw")), masked_raw, columns["has_masked_logprobs"]
    )
    return {name: pa.array(column) for name, column in columns.items()}


def _read_asked(parameters: str) -> _Asked:
    call = msgspec.structs.replace(_CALLED, parameters=msgspec.json.decode(parameters))
    return _Asked(
        is_constrained=call.is_constrained,
        has_masked_logprobs=call.has_masked_logprobs,
        has_masked_raw_logprobs=msgspec.structs.replace(call, logprobs_mode="raw").has_masked_logprobs,
        is_altered=call.sampling.is_altered,
        is_greedy=call.sampling.is_greedy,
    )


def _columns(tables: Sequence[pa.Table], read: frozenset[ColumnPart]) -> Columns:
    """Make the columns of these tables of rollouts, table after table. Raises StoreError."""
    table = pa.concat_tables(tables, promote_options="default")
    rollouts = pa.StructArray.from_arrays([_one_array(column) for column in table.columns], table.column_names)
    (calls, call_offsets), (turns, turn_offsets), (rewards, _), (gaps, _) = (
        _flattened(_field(rollouts, name)) for name in ("calls", "turns", "rewards", "incomplete_reasons")
    )
    structs = {"rollout": rollouts, "gap": gaps, "call": calls, "turn": turns, "reward": rewards}
    structs["span"], _ = _flattened(_field(turns, "weight_versions"))
    structs["call gap"], _ = _flattened(_field(calls, "gaps"))
    made = _where_trees_part(rollouts, calls, call_offsets, turns, turn_offsets)
    columns: dict[str, Any] = {}
    for name, kind, source in COLUMNS:
        if source.part not in read:
            columns[name] = unread(name, kind, 0 if source.of in ("span", "call gap") else len(structs[source.of]))
            continue
        values = made[name] if name in made else _field(structs[source.of], source.name)
        if kind is Coded:
            encoded = values.dictionary_encode()
            known: list[Any] = encoded.dictionary.to_pylist()
            codes = _numbers(encoded.indices, len(known)).astype(code_type(len(known)))
            columns[name] = Coded(codes, [*known, None])
        elif kind == Texts:
            columns[name] = values.to_numpy(zero_copy_only=False)
        elif kind == Floats:
            numbers = np.asarray(pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False), np.float64)
            columns[name] = np.where(np.isnan(numbers) & _flags(values.is_valid()), np.inf, numbers)
        elif kind == Flags:
            columns[name] = _flags(values.is_valid() if pa.types.is_list(values.type) else values)
        elif pa.types.is_list(values.type):
            columns[name] = narrow(_lengths(values))
        else:
            columns[name] = narrow(_numbers(values, unknown_of(name)))
    return Columns(**columns)


def _where_trees_part(
    rollouts: pa.StructArray, calls: pa.Array, call_offsets: Ints, turns: pa.Array, turn_offsets: Ints
) -> dict[str, pa.Array]:
    """How many prompts of each rollout drifted or were rewritten. Raises StoreError for a turn without a call."""
    call = _numbers(_field(turns, "call"), UNKNOWN)
    turn_rows, call_rows = (np.repeat(np.arange(len(rollouts)), np.diff(ends)) for ends in (turn_offsets, call_offsets))
    is_outside = (call < 0) | (call >= np.diff(call_offsets)[turn_rows])
    if is_outside.any():
        rollout_id = _field(rollouts, "rollout_id")[int(turn_rows[np.argmax(is_outside)])].as_py()
        raise StoreError(f"rollout {rollout_id!r}: a turn belongs to no call")
    counts = {
        name: np.bincount(call_rows[_flags(_field(calls, field).is_valid())], minlength=len(rollouts))
        for name, field in (("drifts", "drifted_at"), ("rewritten_prompts", "rewritten_at"))
    }
    return {name: pa.array(numbers) for name, numbers in counts.items()}


def _field(structs: pa.Array, path: str) -> pa.Array:
    """A field of the structs; nulls if it was not read."""
    for name in path.split("."):
        if not pa.types.is_struct(structs.type) or structs.type.get_field_index(name) < 0:
            return pa.nulls(len(structs), pa.int64())
        structs = pc.struct_field(structs, name)
    return structs


def _flattened(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Ints]:
    """All items of the lists, and the offset of each list's items; no items if the column was not read."""
    if not pa.types.is_list(column.type):
        return pa.nulls(0, pa.int64()), np.zeros(len(column) + 1, np.int64)
    ends = np.concatenate([[0], np.cumsum(_lengths(column))]).astype(np.int64)
    return _one_array(pc.list_flatten(column)), ends


def _lengths(column: pa.ChunkedArray | pa.Array) -> Ints:
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def _numbers(column: pa.Array, unknown: int) -> Ints:
    return pc.fill_null(pc.cast(column, pa.int64()), unknown).to_numpy(zero_copy_only=False)


def _flags(column: pa.Array) -> Flags:
    """The column as flags; null is False."""
    return pc.fill_null(pc.cast(column, pa.bool_()), fill_value=False).to_numpy(zero_copy_only=False).astype(np.bool_)
