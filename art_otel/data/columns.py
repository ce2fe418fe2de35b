"""Columns: what decides which trajectories of some files are trained, read without restoring a trajectory.

Invariant: rows are trajectories; turns and calls are those of all rows, one behind the other. Neither a message nor a
token is read.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel import storage
from art_otel.calls import TokenIds, WeightVersion
from art_otel.data.completions import STREAM_BROKE
from art_otel.data.sources import Chunk
from art_otel.errors import StoreError, UsageError
from art_otel.store import RowGroup
from art_otel.store.read import open_parquet
from art_otel.trajectories import TOKEN_ROOT, Call, GroupKey, PolicyVersions, Reward, TokenNode, Trajectory, Turn

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

_TEXTS: Final = ("error_type", "error", "parameters")
"""Of calls: long texts, of which whether it `failed`, and the flags of `_Asked`, take the place."""

_PLAIN: Final = ("rollout_id", "status", "end", "split", "training_step", "gathering", "group_id", "reward")
_COUNTING: Final = ("stream", "toolset", "usage")
"""Of calls: whether one `is_uncounted` takes their place."""
_CALL: Final = (
    "closed_by_app",
    "request_model",
    "response_model",
    "agent",
    "marked_untrained",
    "policy_version",
    "policy_version_end",
    "logprobs_mode",
    *_TEXTS,
    "stream",
    "toolset",
    "usage.output_tokens",
    "drifted_at",
    "rewritten_at",
)
_TURN: Final = (
    "call", "token_parent", "tokens_untrained", "finish_reason", "prompt_tokens", "sampled_tokens", "unscored_tokens",
    "zero_logprobs",
)  # fmt: skip
_REWARD: Final = ("name", "value", "step", "target")
DECIDING: Final = (
    *_PLAIN,
    "policy_version",
    "incomplete_reasons.list.element.reason",
    *(f"calls.list.element.{name}" for name in _CALL),
    "calls.list.element.media.list.element",
    *(f"turns.list.element.{name}" for name in _TURN),
    *(f"rewards.list.element.{name}" for name in _REWARD),
)
_LIGHT_CALL: Final = ("span_id", "step", "request_model", "policy_version", "policy_version_end")
_REWARD_PART: Final = ("choice", "token_start", "token_end", "target_kind")
OF_CREDITS: Final = (
    *(f"calls.list.element.{name}" for name in ("span_id", "step")),
    "turns.list.element.choice",
    "turns.list.element.weight_versions.list.element.version",
    *(f"rewards.list.element.{name}" for name in _REWARD_PART),
)
"""What is read, too, where not only the final reward decides."""

_CALLED: Final = Call(trace_id="", span_id="", operation_name="chat", start_ns=0, end_ns=None)


@dataclass(slots=True)
class Columns:
    """The columns, and which call, prompt and row each turn is of. `ends[i]` is where row i begins, all at the end."""

    table: pa.Table
    call_ends: Ints
    turn_ends: Ints
    calls: pa.StructArray
    turns: pa.StructArray
    turn_rows: Ints
    turn_calls: Ints
    tokens_untrained: pa.Array
    prompt_tokens: Ints
    sampled_tokens: Ints
    has_tokens: Flags
    parents: Ints
    light: dict[int, Trajectory] = field(default_factory=dict[int, Trajectory])

    @property
    def rows(self) -> int:
        """How many trajectories there are."""
        return self.table.num_rows

    def column(self, name: str) -> pa.Array:
        """A column of the rows."""
        return one_array(self.table.column(name))

    def of_call(self, name: str) -> pa.Array:
        """A field of all calls."""
        return pc.struct_field(self.calls, name)

    def of_turn(self, name: str) -> pa.Array:
        """A field of all turns."""
        return pc.struct_field(self.turns, name)


def read_columns(chunks: Sequence[Chunk], columns: Sequence[str]) -> Columns:
    """Read these columns of the trajectories of the chunks. Raises StoreError, UsageError for those in memory."""
    groups = [chunk.stored for chunk in chunks]
    if not all(isinstance(group, RowGroup) for group in groups):
        raise UsageError("verdicts from columns are those of files; use verdicts() for trajectories in memory")
    by_file = groupby(cast("list[RowGroup]", groups), key=lambda group: group.file)
    tables = [table for file, of_file in by_file for table in _read_file(file, list(of_file), columns)]
    try:
        is_lifted = any(chunk.closed_streams == "train" for chunk in chunks)
        return _joined(pa.concat_tables(tables or [_decided(_empty(), _empty)]), is_lifted=is_lifted)
    except pa.ArrowException as error:
        raise StoreError(f"the columns of all files cannot be held together: {error}; look at fewer at once") from error


def _joined(table: pa.Table, *, is_lifted: bool) -> Columns:
    """The columns of a table of all rows. Raises StoreError and ArrowException.

    `is_lifted` says that the ids of streams that the app closed are trained, as `with_closed_streams` has it.
    """
    calls, call_ends = flattened(table.column("calls"))
    turns, turn_ends = flattened(table.column("turns"))
    turn_rows = np.repeat(np.arange(table.num_rows), np.diff(turn_ends))
    local = numbers(pc.struct_field(turns, "call"), -1)
    turn_calls = call_ends[turn_rows] + local
    if ((local < 0) | (turn_calls >= call_ends[turn_rows + 1])).any():
        row = int(turn_rows[np.argmax((local < 0) | (turn_calls >= call_ends[turn_rows + 1]))])
        raise StoreError(f"rollout {table.column('rollout_id')[row].as_py()!r}: a turn is of no call")
    parents = numbers(pc.struct_field(turns, "token_parent"), -1)
    tokens_untrained = pc.struct_field(turns, "tokens_untrained")
    if is_lifted:
        is_closed = pc.struct_field(calls, "closed_by_app").is_valid().take(pa.array(turn_calls))
        broke = pc.is_in(tokens_untrained, value_set=pa.array([STREAM_BROKE]))
        tokens_untrained = pc.if_else(pc.and_(is_closed, broke), None, tokens_untrained)
    prompt_tokens, sampled = pc.struct_field(turns, "prompt_tokens"), pc.struct_field(turns, "sampled_tokens")
    return Columns(
        table=table,
        call_ends=call_ends,
        turn_ends=turn_ends,
        calls=calls,
        turns=turns,
        turn_rows=turn_rows,
        turn_calls=turn_calls,
        tokens_untrained=tokens_untrained,
        prompt_tokens=numbers(prompt_tokens, 0),
        sampled_tokens=numbers(sampled, 0),
        has_tokens=flags(pc.and_(prompt_tokens.is_valid(), sampled.is_valid())),
        parents=np.where(parents < 0, -1, parents + turn_ends[turn_rows]),
    )


def _empty() -> pa.Table:
    from art_otel.store.schema import SCHEMA  # noqa: PLC0415 # seldom: there is no file

    return SCHEMA.empty_table()


def _read_file(file: str, groups: Sequence[RowGroup], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The columns of a file's trajectories, a row group at a time. Raises StoreError."""
    with open_parquet(file) as parquet:
        if parquet.num_row_groups != len(groups):
            raise StoreError(f"{storage.shown(file)}: was written anew while it was read; start again")
        for group in groups:
            table = with_group_ids(group.read(parquet, list(columns)), group.group_ids)
            yield _decided(table, partial(group.read, parquet, ["toolsets"]))


def with_group_ids(table: pa.Table, group_ids: Mapping[GroupKey, str]) -> pa.Table:
    """The table with the ids that groups have among several runs."""
    if not group_ids:
        return table
    keys = map(GroupKey, *(table.column(name).to_pylist() for name in GroupKey._fields))
    distinct = [group_ids.get(key, key.group_id) for key in keys]
    return table.set_column(table.schema.get_field_index("group_id"), "group_id", pa.array(distinct, pa.string()))


def _decided(table: pa.Table, read_toolsets: Callable[[], pa.Table]) -> pa.Table:
    """The table with what is needed of the long texts of calls: those of all calls may be more than one array holds."""
    calls, ends = flattened(table.column("calls"))
    by_name = {name: pc.struct_field(calls, name) for name in calls.type.names}
    error_type, error, parameters = (by_name.pop(name) for name in _TEXTS)
    by_name["failed"] = pc.or_(error_type.is_valid(), error.is_valid())
    by_name["has_media"] = pc.greater(lengths(by_name.pop("media")), 0)
    by_name |= _asked(parameters, by_name["logprobs_mode"])
    stream, toolset, usage = (by_name.pop(name) for name in _COUNTING)
    may_be_uncounted = among(stream, [True]) & flags(pc.struct_field(usage, "output_tokens").is_null())
    by_name["uncounted"] = pa.array(_with_tools(toolset, ends, may_be_uncounted, read_toolsets))
    decided = pa.StructArray.from_arrays(list(by_name.values()), list(by_name))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), decided)
    return table.set_column(table.schema.get_field_index("calls"), "calls", lists)


def _with_tools(toolset: pa.Array, ends: Ints, calls: Flags, read_toolsets: Callable[[], pa.Table]) -> Flags:
    """Which of these calls had tools, of which the texts may be long and are read only here. Shape: (calls,)."""
    with_tools = calls & flags(toolset.is_valid())
    if with_tools.any():
        texts, text_ends = flattened(read_toolsets().column("toolsets"))
        is_empty = np.append(flags(pc.equal(texts, "[]")), False)
        places = text_ends[:-1].repeat(np.diff(ends)) + numbers(toolset, 0)
        with_tools &= ~is_empty[np.minimum(places, len(texts))]
    return with_tools


class _Asked(NamedTuple):
    """What the parameters of a call say: see InferenceCall and Sampling."""

    is_constrained: bool
    has_masked_logprobs: bool
    has_masked_raw_logprobs: bool
    is_altered: bool
    is_greedy: bool


_NOTHING: Final = _Asked(*[False] * len(_Asked._fields))


def _asked(parameters: pa.Array, modes: pa.Array) -> dict[str, pa.Array]:
    """What the parameters of calls say, as columns; each different text of parameters is read once."""
    encoded = parameters.dictionary_encode()
    asked = [_NOTHING if text is None else _read_asked(text) for text in encoded.dictionary.to_pylist()]
    codes = numbers(encoded.indices, len(asked))
    columns = dict(zip(_Asked._fields, np.array([*asked, _NOTHING], np.bool_).T[:, codes], strict=True))
    masked_raw = columns.pop("has_masked_raw_logprobs")
    is_raw = among(modes, ["raw"])
    columns["has_masked_logprobs"] = np.where(is_raw, masked_raw, columns["has_masked_logprobs"])
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


def group_numbers(read: Columns) -> tuple[Ints, list[str]]:
    """The number of each row's group, negative where it has none, and the ids of the groups. Shape: (rows,)."""
    members = np.flatnonzero(flags(read.column("group_id").is_valid()))
    codes = first = np.zeros(len(members), np.int64)
    for name in GroupKey._fields:
        encoded = read.column(name).dictionary_encode()
        codes = codes * (len(encoded.dictionary) + 1) + numbers(encoded.indices, len(encoded.dictionary))[members]
        _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    keys = -1 - np.arange(read.rows)
    keys[members] = codes
    return keys, read.column("group_id").take(pa.array(members[first])).to_pylist()


def mixed_version_groups(read: Columns, selected: Flags, keys: Ints) -> int:
    """How many groups have rollouts of several policy versions, and nothing that tells whether they are several."""
    is_told = flags(pc.or_(*(read.column(name).is_valid() for name in ("training_step", "gathering"))))
    versions = read.column("policy_version")
    rows = np.flatnonzero(selected & (keys >= 0) & ~is_told & flags(versions.is_valid()))
    first, last = (pc.struct_field(versions, name).dictionary_encode() for name in ("first", "last"))
    codes = numbers(first.indices, -1) * (len(last.dictionary) + 1) + numbers(last.indices, -1)
    pairs = np.unique(np.stack([keys[rows], codes[rows]]), axis=1)
    return int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())


def light(read: Columns, row: int) -> Trajectory:
    """The trajectory of a row with its rewards and the places of its calls, and zeros as tokens.

    What credits and versions are found by; made once for all rows that anybody asks for.
    """
    if not read.light:
        read.light = dict(enumerate(_all_light(read)))
    return read.light[row]


def _all_light(read: Columns) -> Iterator[Trajectory]:
    rewards, reward_ends = flattened(read.table.column("rewards"))
    of_rewards = [field_of(rewards, name).to_pylist() for name in (*_REWARD, *_REWARD_PART)]
    all_rewards = list(map(_reward, *of_rewards))
    of_calls = [field_of(read.calls, name).to_pylist() for name in _LIGHT_CALL]
    errors = ["failed" if failed else None for failed in read.of_call("failed").to_pylist()]
    calls = list(map(_call, *of_calls, errors))
    zeros = {size: TokenIds(bytes(4 * size)) for size in set(read.sampled_tokens.tolist())}
    of_turns = [field_of(read.turns, name).to_pylist() for name in ("call", "choice", "weight_versions")]
    turns: list[list[Turn]] = [[] for _ in calls]
    sizes, owners = read.sampled_tokens.tolist(), read.turn_calls.tolist()
    for call, choice, versions, size, owner in zip(*of_turns, sizes, owners, strict=True):
        turns[owner].append(_turn(call, choice, zeros[size], versions and [each["version"] for each in versions]))
    calls = [
        msgspec.structs.replace(call, choices=tuple(choices)) if choices else call
        for call, choices in zip(calls, turns, strict=True)
    ]
    versions = read.column("policy_version").to_pylist()
    for row, (reward, version) in enumerate(zip(read.column("reward").to_pylist(), versions, strict=True)):
        yield Trajectory(
            rollout_id="",
            trace_id="",
            reward=reward,
            policy_version=None if version is None else PolicyVersions(**version),
            rewards=tuple(all_rewards[reward_ends[row] : reward_ends[row + 1]]),
            calls=tuple(calls[read.call_ends[row] : read.call_ends[row + 1]]),
        )


def field_of(structs: pa.StructArray, name: str) -> pa.Array:
    """A field of the structs; nulls where it was not read."""
    return pc.struct_field(structs, name) if structs.type.get_field_index(name) >= 0 else pa.nulls(len(structs))


def _reward(*values: object) -> Reward:
    fields: dict[str, Any] = dict(zip((*_REWARD, *_REWARD_PART), values, strict=True))
    return Reward(source="evaluation", time_ns=0, **fields)  # no evaluation is final by its source; the column has that


def _call(*values: object) -> Call:
    span_id, *fields, error = values
    known: dict[str, Any] = dict(zip(_LIGHT_CALL[1:], fields, strict=True))
    return msgspec.structs.replace(_CALLED, span_id=span_id or "", error=error, **known)


def _turn(call: int, choice: int | None, token_ids: TokenIds, versions: Iterable[str] | None) -> Turn:
    return Turn(
        call=call,
        choice=choice or 0,
        index=choice or 0,
        token_node=TokenNode(
            parent=TOKEN_ROOT,
            ids=token_ids,
            weight_versions=None
            if versions is None
            else tuple(WeightVersion(version=version, start=0, end=0) for version in versions),
        ),
    )


def among(column: pa.Array, values: Iterable[object]) -> Flags:
    """Mark what is one of the values, null where None is one. Shape: (rows,)."""
    wanted = list(values)
    matches = pc.is_in(column, value_set=pa.array([one for one in wanted if one is not None], column.type))
    return flags(pc.or_(matches, column.is_null()) if None in wanted else pc.and_(matches, column.is_valid()))


def flattened(column: pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """All items of the lists, and where each list's begin, with all at the end."""
    items = pc.list_flatten(column)
    return one_array(items), np.concatenate([[0], np.cumsum(lengths(column))]).astype(np.int64)


def lengths(column: pa.ChunkedArray | pa.Array) -> Ints:
    """How many items each list has."""
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def numbers(column: pa.Array, unknown: int) -> Ints:
    """The whole numbers, `unknown` for null."""
    return pc.fill_null(column, unknown).to_numpy(zero_copy_only=False).astype(np.int64)


def flags(column: pa.Array) -> Flags:
    """The truth values, of which none is null."""
    return column.to_numpy(zero_copy_only=False).astype(np.bool_)
