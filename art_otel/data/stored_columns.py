"""Stored columns: the columns of trajectories in files, read without restoring a trajectory.

Invariant: they are those of the same trajectories in memory (`columns.columns_of`). Only the columns that are asked for
are read; parts that the manifest leaves out are not opened, unless `counting` asks for all.
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
from art_otel.data.columns import UNKNOWN, Coded, Columns, Flags, Ints, join_columns
from art_otel.errors import StoreError
from art_otel.store import RowGroup
from art_otel.store.read import open_parquet
from art_otel.store.schema import SCHEMA
from art_otel.trajectories import GroupKey

_ROLLOUT: Final = (
    "rollout_id", "attempt", "trace_id", "status", "end", "split", "training_step", "gathering", "group_id", "reward"
)  # fmt: skip
_CALL: Final = (
    "closed_by_app", "request_model", "response_model", "agent", "marked_untrained", "policy_version", "logprobs_mode",
    "error_type", "error", "parameters", "media.list.element",
)  # fmt: skip
_TURN: Final = (
    "call", "tokens_untrained", "text_untrained", "finish_reason", "prompt_tokens", "sampled_tokens"
)  # fmt: skip
_CHOOSING: Final = (
    *_ROLLOUT,
    "policy_version",
    "incomplete_reasons.list.element.reason",
    *(f"calls.list.element.{name}" for name in _CALL),
    *(f"turns.list.element.{name}" for name in _TURN),
    *(f"rewards.list.element.{name}" for name in ("name", "value", "step", "target")),
)
_CREDITING: Final = (
    *(f"calls.list.element.{name}" for name in ("span_id", "step", "policy_version_end")),
    "turns.list.element.choice",
    "turns.list.element.weight_versions.list.element.version",
    *(f"rewards.list.element.{name}" for name in ("choice", "token_start", "token_end", "target_kind")),
)
_COUNTING: Final = (
    *(f"calls.list.element.{name}" for name in ("stream", "toolset", "usage.output_tokens")),
    *(f"calls.list.element.prompt.{name}" for name in ("token_parent", "drifted_at", "respelled_at")),
    *(f"turns.list.element.{name}" for name in ("unscored_tokens", "zero_logprobs")),
)

_CALLED: Final = InferenceCall(trace_id="", span_id="", operation_name="chat", start_ns=0, end_ns=None)


def read_stored(
    groups: Sequence[RowGroup], left_out: Sequence[bool], *, crediting: bool = False, counting: bool = False
) -> Columns:
    """Read the columns of row groups; of those that are left out rows of which nothing is known.

    `crediting` says that more than the final reward is looked at, `counting` that tokens are counted. Raises
    StoreError.
    """
    names = [*_CHOOSING, *(_CREDITING if crediting else ()), *(_COUNTING if counting else ())]
    empty = _reduced(pa.schema([field for field in SCHEMA if field.name in _ROOTS]).empty_table(), None, None)
    parts, tables = list[Columns](), [empty]
    for file, of_file in groupby(zip(groups, left_out, strict=True), key=lambda each: each[0].file):
        members = list(of_file)
        if all(is_left_out for _, is_left_out in members):
            rows = sum(group.rows for group, _ in members)
            tables.append(pa.table([pa.nulls(rows, field.type) for field in empty.schema], empty.schema))
            continue
        with open_parquet(file) as parquet:
            if parquet.num_row_groups != len(members):
                raise StoreError(f"{storage.shown(file)}: was written anew while it was read; start again")
            for group, _ in members:
                table = _with_group_ids(group.read(parquet, names), group.group_ids)
                tables.append(_reduced(table, group, parquet))
                if sum(map(len, tables)) > _AT_ONCE:
                    parts.append(_columns(tables))
                    tables = [empty]
                    pa.default_memory_pool().release_unused()  # else the pool keeps what the texts of all calls took
    return join_columns([*parts, _columns(tables)])


_AT_ONCE: Final = 20_000
"""So many rollouts are held as Arrow has them, which takes more memory."""
_ROOTS: Final = frozenset(name.partition(".")[0] for name in (*_CHOOSING, *_COUNTING))


def _with_group_ids(table: pa.Table, group_ids: Mapping[GroupKey, str]) -> pa.Table:
    return with_group_ids(table, group_ids) if group_ids else table


def with_group_ids(table: pa.Table, group_ids: Mapping[GroupKey, str]) -> pa.Table:
    """The table with the ids that groups have among several runs."""
    keys = map(GroupKey, *(table.column(name).to_pylist() for name in GroupKey._fields))
    distinct = [group_ids.get(key, key.group_id) for key in keys]
    return table.set_column(table.schema.get_field_index("group_id"), "group_id", pa.array(distinct, pa.string()))


def _reduced(table: pa.Table, group: RowGroup | None, parquet: pq.ParquetFile | None) -> pa.Table:
    """The table with what is needed of the long texts of calls: those of all calls may be more than one array holds."""
    calls, ends = _flattened(table.column("calls"))
    by_name = {name: pc.struct_field(calls, name) for name in calls.type.names}
    error_type, error, parameters = (by_name.pop(name) for name in ("error_type", "error", "parameters"))
    by_name["failed"] = pc.or_(error_type.is_valid(), error.is_valid())
    by_name["has_media"] = pc.greater(_lengths(by_name.pop("media")), 0)
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
    """What the parameters of a call say: see InferenceCall and Sampling."""

    is_constrained: bool
    has_masked_logprobs: bool
    has_masked_raw_logprobs: bool
    is_altered: bool
    is_greedy: bool


def _asked(parameters: pa.Array, modes: pa.Array) -> dict[str, pa.Array]:
    """What the parameters of calls say, as columns; each different text of parameters is read once."""
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


def _columns(tables: Sequence[pa.Table]) -> Columns:
    """The columns of tables of rollouts, one behind the other. Raises StoreError."""
    table = pa.concat_tables(tables, promote_options="default")
    rollouts = {name: _one_array(table.column(name)) for name in table.column_names}
    calls, call_ends = _flattened(table.column("calls"))
    turns, turn_ends = _flattened(table.column("turns"))
    rewards, reward_ends = _flattened(table.column("rewards"))
    gaps, gap_ends = _flattened(table.column("incomplete_reasons"))
    spans, span_ends = _flattened(_field(turns, "weight_versions"))
    versions, prompts = rollouts["policy_version"], _field(calls, "prompt")
    call = _numbers(_field(turns, "call"), UNKNOWN)
    turn_rows = np.repeat(np.arange(table.num_rows), np.diff(turn_ends))
    is_outside = (call < 0) | (call >= np.diff(call_ends)[turn_rows])
    if is_outside.any():
        row = int(turn_rows[np.argmax(is_outside)])
        raise StoreError(f"rollout {rollouts['rollout_id'][row].as_py()!r}: a turn is of no call")
    turn_calls = call_ends[turn_rows] + call
    call_rows = np.repeat(np.arange(table.num_rows), np.diff(call_ends))

    def of_calls(name: str) -> Coded:
        return _coded(_field(calls, name))

    def flags_of_calls(name: str) -> Flags:
        return _flags(_field(calls, name))

    def count_prompts(name: str) -> Ints:
        differing = call_rows[_flags(_field(prompts, name).is_valid())]
        return np.bincount(differing, minlength=table.num_rows).astype(np.int64)

    final, values = rollouts["reward"], _field(rewards, "value")
    return Columns(
        rollout_id=_coded(rollouts["rollout_id"]),
        attempt=_coded(rollouts["attempt"]),
        trace_id=_coded(rollouts["trace_id"]),
        status=_coded(rollouts["status"]),
        end=_coded(rollouts["end"]),
        split=_coded(rollouts["split"]),
        training_step=_coded(rollouts["training_step"]),
        gathering=_coded(rollouts["gathering"]),
        group_id=_coded(rollouts["group_id"]),
        version_first=_coded(_field(versions, "first")),
        version_last=_coded(_field(versions, "last")),
        reward=_floats(final),
        is_rewarded=_flags(final.is_valid()),
        calls=np.diff(call_ends),
        turns=np.diff(turn_ends),
        rewards=np.diff(reward_ends),
        gaps=np.diff(gap_ends),
        drifts=count_prompts("drifted_at"),
        respellings=count_prompts("respelled_at"),
        gap=_coded(_field(gaps, "reason")),
        span_id=of_calls("span_id"),
        step=of_calls("step"),
        request_model=of_calls("request_model"),
        response_model=of_calls("response_model"),
        agent=of_calls("agent"),
        marked_untrained=of_calls("marked_untrained"),
        version=of_calls("policy_version"),
        version_end=of_calls("policy_version_end"),
        logprobs_mode=of_calls("logprobs_mode"),
        failed=flags_of_calls("failed"),
        closed=flags_of_calls("closed"),
        has_media=flags_of_calls("has_media"),
        is_constrained=flags_of_calls("is_constrained"),
        has_masked_logprobs=flags_of_calls("has_masked_logprobs"),
        is_altered=flags_of_calls("is_altered"),
        is_greedy=flags_of_calls("is_greedy"),
        is_uncounted=flags_of_calls("is_uncounted"),
        call=call,
        choice=_numbers(_field(turns, "choice"), 0),
        token_parent=_numbers(_field(prompts, "token_parent"), UNKNOWN)[turn_calls],
        tokens_untrained=_coded(_field(turns, "tokens_untrained")),
        text_untrained=_coded(_field(turns, "text_untrained")),
        finish_reason=_coded(_field(turns, "finish_reason")),
        prompt_tokens=_numbers(_field(turns, "prompt_tokens"), UNKNOWN),
        sampled_tokens=_numbers(_field(turns, "sampled_tokens"), UNKNOWN),
        unscored_tokens=_numbers(_field(turns, "unscored_tokens"), UNKNOWN),
        zero_logprobs=_numbers(_field(turns, "zero_logprobs"), UNKNOWN),
        version_spans=np.diff(span_ends),
        span_version=_coded(_field(spans, "version")),
        reward_name=_coded(_field(rewards, "name")),
        reward_value=_floats(values),
        has_value=_flags(values.is_valid()),
        reward_step=_coded(_field(rewards, "step")),
        target=_coded(_field(rewards, "target")),
        target_kind=_coded(_field(rewards, "target_kind")),
        reward_choice=_numbers(_field(rewards, "choice"), UNKNOWN),
        token_start=_numbers(_field(rewards, "token_start"), UNKNOWN),
        token_end=_numbers(_field(rewards, "token_end"), UNKNOWN),
    )


def _field(structs: pa.Array, name: str) -> pa.Array:
    """A field of the structs; nulls where it was not read."""
    is_read = pa.types.is_struct(structs.type) and structs.type.get_field_index(name) >= 0
    return pc.struct_field(structs, name) if is_read else pa.nulls(len(structs), pa.int64())


def _flattened(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Ints]:
    """All items of the lists, and where each list's begin, with all at the end; no items where none was read."""
    if not pa.types.is_list(column.type):
        return pa.nulls(0, pa.int64()), np.zeros(len(column) + 1, np.int64)
    ends = np.concatenate([[0], np.cumsum(_lengths(column))]).astype(np.int64)
    return _one_array(pc.list_flatten(column)), ends


def _lengths(column: pa.ChunkedArray | pa.Array) -> Ints:
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def _coded(column: pa.Array) -> Coded:
    encoded = column.dictionary_encode()
    values: list[Any] = encoded.dictionary.to_pylist()
    return Coded(_numbers(encoded.indices, len(values)).astype(np.int32), [*values, None])


def _numbers(column: pa.Array, unknown: int) -> Ints:
    return pc.fill_null(pc.cast(column, pa.int64()), unknown).to_numpy(zero_copy_only=False)


def _floats(column: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    return pc.fill_null(column, np.nan).to_numpy(zero_copy_only=False).astype(np.float64)


def _flags(column: pa.Array) -> Flags:
    """The truth values; null is false."""
    return pc.fill_null(pc.cast(column, pa.bool_()), fill_value=False).to_numpy(zero_copy_only=False).astype(np.bool_)
