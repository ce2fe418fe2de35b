"""Columns: the fields of trajectories that decide what is trained, as arrays over rollouts, calls, turns and rewards.

The turns of all rollouts are in one array, rollout after rollout; likewise calls and rewards:

    rollouts    a      b                                   turn_offsets   0 2 5
    turns       0  1   0  1  2                             turn_rows      0 0 1 1 1
    turns.call  0  1   0  1  1   in its own rollout        turn_calls     0 1 2 3 3   among all calls

Invariant: trajectories in files (`stored_columns`) and in memory give equal columns, so that `choosing`, `credit`,
`plan` and `decisions` treat them alike. Columns have neither messages nor tokens, so a large dataset fits into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from art_otel.calls import CallRecord
from art_otel.data.rewards import as_reward
from art_otel.trajectories import GroupKey, Trajectory, Turn

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Texts: TypeAlias = NDArray[np.object_]

UNKNOWN: Final = -(2**31)
"""Stands for an unknown number in columns of integers, which have no NaN. Counts and positions are never negative."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column with few different values: item i has `values[codes[i]]`. The last value is always None.

        Coded.of(["ok", "error", "ok", None])      codes [0, 1, 0, 2], values ["ok", "error", None]

    A test runs once per value and not once per item, so it may be a slow Python function.
    """

    codes: NDArray[np.integer[Any]]
    values: Sequence[Any]

    @classmethod
    def of(cls, items: Iterable[Any]) -> "Coded":
        """Make the column of these items."""
        positions: dict[Any, int] = {}
        codes = [-1 if item is None else positions.setdefault(item, len(positions)) for item in items]
        array = np.array(codes, code_type(len(positions)))
        return cls(np.where(array < 0, array.dtype.type(len(positions)), array), [*positions, None])

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, chosen: "Ints | Flags | slice") -> "Coded":
        """The column of some of the items."""
        return Coded(self.codes[chosen], self.values)

    def __iter__(self) -> Iterator[Any]:
        return map(self.values.__getitem__, self.codes.tolist())

    @property
    def known(self) -> Flags:
        """Which items are not None."""
        return self.codes < len(self.values) - 1

    def where(self, test: Callable[[Any], object]) -> Flags:
        """Which items pass the test. Shape: (items,)."""
        return np.array([bool(test(value)) for value in self.values], np.bool_)[self.codes]

    def equals(self, value: object) -> Flags:
        """Which items have this value. Shape: (items,)."""
        return self.where(lambda each: each == value)

    def or_else(self, other: "Coded") -> "Coded":
        """This column, with the other column's item in place of each None."""
        positions = {value: position for position, value in enumerate(self.values[:-1])}
        of_other = [positions.setdefault(value, len(positions)) for value in other.values[:-1]]
        kind = code_type(len(positions))
        others = np.array([*of_other, len(positions)], kind)[other.codes]
        return Coded(np.where(self.known, self.codes.astype(kind), others), [*positions, None])

    def without(self, flags: Flags) -> "Coded":
        """This column, with None in place of each flagged item."""
        return Coded(np.where(flags, self.codes.dtype.type(len(self.values) - 1), self.codes), self.values)

    def codes_in(self, other: "Coded") -> Ints:
        """Each item's code in the other column; UNKNOWN for None and for values that the other column lacks."""
        positions = {value: position for position, value in enumerate(other.values[:-1])}
        return np.array([*(positions.get(value, UNKNOWN) for value in self.values[:-1]), UNKNOWN], np.int64)[self.codes]


def reason_where(flags: Flags, reason: str) -> Coded:
    """A column with the reason for flagged items, and None for the others."""
    return Coded(np.where(flags, np.int8(0), np.int8(1)), (reason, None))


def code_type(count: int) -> type[np.integer[Any]]:
    """The smallest integer type for the codes of so many values and None: most columns need one byte per item."""
    return np.int8 if count < 2**7 else np.int16 if count < 2**15 else np.int32


ColumnPart: TypeAlias = Literal["choosing", "blaming", "crediting", "counting", "masks", "naming"]
"""The purpose that a column is read for: `choosing` rollouts and turns, `blaming` a call for what is wrong with a
rollout, `crediting` with more than the final reward, `counting` tokens, sampling `masks`, or `naming` rollouts by id.
Ids take more memory than all other columns."""


Owner: TypeAlias = Literal["rollout", "gap", "call", "call gap", "turn", "span", "reward"]
"""The kind of item that a column has one entry for. `gap`: an incomplete reason; `call gap`: a gap of a call; `span`:
the tokens of one version."""


class ColumnSource(NamedTuple):
    """Where a column comes from: the field `name` in files, and `get` of an object in memory.

    `name` defaults to the column's name, `get` to the attribute with this name.
    """

    of: Owner
    name: str = ""
    part: ColumnPart = "choosing"
    get: Callable[[Any], Any] | None = None


def _version_first(trajectory: Trajectory) -> str | None:
    return None if trajectory.policy_version is None else trajectory.policy_version.first


def _version_last(trajectory: Trajectory) -> str | None:
    return None if trajectory.policy_version is None else trajectory.policy_version.last


def _drifts(trajectory: Trajectory) -> int:
    return sum(call.drifted_at is not None for call in trajectory.calls)


def _rewritten_prompts(trajectory: Trajectory) -> int:
    return sum(call.rewritten_at is not None for call in trajectory.calls)


def _is_closed(call: CallRecord) -> bool:
    return call.closed_by_app is not None


def _has_sampling_mask(turn: Turn) -> bool:
    return turn.sampling_mask is not None


def _prompt_tokens(turn: Turn) -> int | None:
    return None if turn.token_node is None or turn.token_node.parent is None else turn.token_node.parent.end


def _unscored_tokens(turn: Turn) -> int | None:
    """How many of the sampled ids have no logprob; None without ids."""
    if turn.token_ids is None:
        return None
    logprobs = _logprobs(turn)
    return len(turn.token_ids) if logprobs is None else int(np.isnan(logprobs).sum())


def _zero_logprobs(turn: Turn) -> int | None:
    """How many of the sampled ids have a logprob of exactly 0.0; None without ids."""
    logprobs = _logprobs(turn)
    return None if turn.token_ids is None else 0 if logprobs is None else int((logprobs == 0).sum())


def _logprobs(turn: Turn) -> NDArray[np.float32] | None:
    if turn.logprobs is None or turn.token_ids is None or len(turn.logprobs) != len(turn.token_ids):
        return None
    return np.frombuffer(turn.logprobs.data, "<f4")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """All columns, each with its source. Columns of parts that were not asked for hold only unknown values.

    Shapes: (rollouts,), (gaps,), (calls,), (call gaps,), (turns,), (version spans,) and (rewards,), as
    `ColumnSource.of` says. A list in a trajectory becomes its number of items. A reward is NaN if none was given,
    infinite if NaN was given.
    """

    rollout_id: Annotated[Texts, ColumnSource("rollout", part="naming")]
    status: Annotated[Coded, ColumnSource("rollout")]
    end: Annotated[Coded, ColumnSource("rollout")]
    split: Annotated[Coded, ColumnSource("rollout")]
    training_step: Annotated[Coded, ColumnSource("rollout")]
    gathering: Annotated[Coded, ColumnSource("rollout")]
    group_id: Annotated[Coded, ColumnSource("rollout")]
    version_first: Annotated[Coded, ColumnSource("rollout", "policy_version.first", get=_version_first)]
    version_last: Annotated[Coded, ColumnSource("rollout", "policy_version.last", get=_version_last)]
    reward: Annotated[Floats, ColumnSource("rollout")]
    gaps: Annotated[Ints, ColumnSource("rollout", "incomplete_reasons")]
    calls: Annotated[Ints, ColumnSource("rollout")]
    turns: Annotated[Ints, ColumnSource("rollout")]
    rewards: Annotated[Ints, ColumnSource("rollout")]
    drifts: Annotated[Ints, ColumnSource("rollout", part="counting", get=_drifts)]
    rewritten_prompts: Annotated[Ints, ColumnSource("rollout", part="counting", get=_rewritten_prompts)]

    gap: Annotated[Coded, ColumnSource("gap", "reason", get=str)]

    span_id: Annotated[Coded, ColumnSource("call", part="crediting")]
    step: Annotated[Coded, ColumnSource("call", part="crediting")]
    request_model: Annotated[Coded, ColumnSource("call")]
    response_model: Annotated[Coded, ColumnSource("call")]
    agent: Annotated[Coded, ColumnSource("call")]
    marked_untrained: Annotated[Coded, ColumnSource("call")]
    version: Annotated[Coded, ColumnSource("call", "policy_version")]
    version_end: Annotated[Coded, ColumnSource("call", "policy_version_end", "crediting")]
    logprobs_mode: Annotated[Coded, ColumnSource("call")]
    failed: Annotated[Flags, ColumnSource("call")]
    error_type: Annotated[Coded, ColumnSource("call", part="blaming")]
    failure: Annotated[Coded, ColumnSource("call", part="blaming")]
    start_ns: Annotated[Ints, ColumnSource("call", part="blaming")]
    end_ns: Annotated[Ints, ColumnSource("call", part="blaming")]
    call_gaps: Annotated[Ints, ColumnSource("call", "gaps", "blaming")]
    closed: Annotated[Flags, ColumnSource("call", get=_is_closed)]
    has_media: Annotated[Flags, ColumnSource("call", "media")]
    is_constrained: Annotated[Flags, ColumnSource("call")]
    has_masked_logprobs: Annotated[Flags, ColumnSource("call", part="counting")]
    is_altered: Annotated[Flags, ColumnSource("call", part="counting", get=attrgetter("sampling.is_altered"))]
    is_greedy: Annotated[Flags, ColumnSource("call", part="counting", get=attrgetter("sampling.is_greedy"))]
    is_uncounted: Annotated[Flags, ColumnSource("call", part="counting")]

    call_gap: Annotated[Coded, ColumnSource("call gap", "kind", "blaming")]

    call: Annotated[Ints, ColumnSource("turn")]
    choice: Annotated[Ints, ColumnSource("turn", part="crediting")]
    token_parent: Annotated[Ints, ColumnSource("turn", part="counting")]
    tokens_untrained: Annotated[Coded, ColumnSource("turn")]
    text_untrained: Annotated[Coded, ColumnSource("turn")]
    finish_reason: Annotated[Coded, ColumnSource("turn")]
    prompt_tokens: Annotated[Ints, ColumnSource("turn", get=_prompt_tokens)]
    sampled_tokens: Annotated[Ints, ColumnSource("turn", get=attrgetter("token_ids"))]
    unscored_tokens: Annotated[Ints, ColumnSource("turn", part="counting", get=_unscored_tokens)]
    zero_logprobs: Annotated[Ints, ColumnSource("turn", part="counting", get=_zero_logprobs)]
    has_sampling_mask: Annotated[Flags, ColumnSource("turn", "sampling_mask", "masks", get=_has_sampling_mask)]
    version_spans: Annotated[Ints, ColumnSource("turn", "weight_versions", "crediting")]

    span_version: Annotated[Coded, ColumnSource("span", "version", "crediting")]

    reward_name: Annotated[Coded, ColumnSource("reward", "name")]
    reward_value: Annotated[Floats, ColumnSource("reward", "value")]
    reward_step: Annotated[Coded, ColumnSource("reward", "step")]
    target: Annotated[Coded, ColumnSource("reward")]
    target_kind: Annotated[Coded, ColumnSource("reward", part="crediting")]
    reward_choice: Annotated[Ints, ColumnSource("reward", "choice", "crediting")]
    token_start: Annotated[Ints, ColumnSource("reward", part="crediting")]
    token_end: Annotated[Ints, ColumnSource("reward", part="crediting")]

    def __len__(self) -> int:
        return len(self.reward)

    @cached_property
    def is_rewarded(self) -> Flags:
        """Whether the rollout has a final reward. Shape: (rollouts,)."""
        return ~np.isnan(self.reward)

    @cached_property
    def has_value(self) -> Flags:
        """Whether the reward has a value, and not only a label. Shape: (rewards,)."""
        return ~np.isnan(self.reward_value)

    @cached_property
    def turn_offsets(self) -> Ints:
        """The turns of rollout i are [turn_offsets[i], turn_offsets[i + 1]). Shape: (rollouts + 1,)."""
        return _offsets(self.turns)

    @cached_property
    def call_offsets(self) -> Ints:
        """The calls of rollout i are [call_offsets[i], call_offsets[i + 1]). Shape: (rollouts + 1,)."""
        return _offsets(self.calls)

    @cached_property
    def turn_rows(self) -> Ints:
        """The rollout of each turn. Shape: (turns,)."""
        return np.repeat(np.arange(len(self)), self.turns)

    @cached_property
    def call_rows(self) -> Ints:
        """The rollout of each call. Shape: (calls,)."""
        return np.repeat(np.arange(len(self)), self.calls)

    @cached_property
    def reward_rows(self) -> Ints:
        """The rollout of each reward. Shape: (rewards,)."""
        return np.repeat(np.arange(len(self)), self.rewards)

    @cached_property
    def turn_calls(self) -> Ints:
        """The call of each turn, among all calls. Shape: (turns,)."""
        return self.call_offsets[self.turn_rows] + self.call

    @cached_property
    def has_tokens(self) -> Flags:
        """Whether the ids of prompt and completion are known. Shape: (turns,)."""
        return (self.prompt_tokens >= 0) & (self.sampled_tokens >= 0)

    @cached_property
    def model(self) -> Coded:
        """The request's model, or the response's if the request names none. Shape: (calls,)."""
        return self.request_model.or_else(self.response_model)

    def any_turn(self, flags: Flags) -> Flags:
        """Which rollouts have a flagged turn. Shape: (rollouts,)."""
        return np.bincount(self.turn_rows[flags], minlength=len(self)) > 0

    def any_call(self, flags: Flags) -> Flags:
        """Which rollouts have a flagged call. Shape: (rollouts,)."""
        return np.bincount(self.call_rows[flags], minlength=len(self)) > 0

    def digest(self, names: Iterable[str]) -> str:
        """A digest of these columns and of the `names` of their files: equal only for the same trajectories."""
        digest = sha256(repr(list(names)).encode())
        for one in fields(self):
            column: Coded | NDArray[Any] = getattr(self, one.name)
            if isinstance(column, Coded):
                digest.update(repr(column.values).encode())
                column = column.codes
            if column.strides == (0,):  # an unread column (`unread`), which has no content
                continue
            is_text = column.dtype == np.object_
            digest.update(repr(column.tolist()).encode() if is_text else np.ascontiguousarray(column).data)
        return digest.hexdigest()

    def groups(self, rows: Flags) -> tuple[Ints, list[GroupKey]]:
        """The group of each rollout as a position among the keys; others have a negative number of their own each.

        Only rollouts flagged in `rows` with a group id are in a group. Shape: (rollouts,).
        """
        numbers = -1 - np.arange(len(self))
        members = np.flatnonzero(rows & self.group_id.known)
        codes = first = np.zeros(len(members), np.int64)
        of_keys = (self.training_step, self.gathering, self.group_id)
        for column in of_keys:
            # Renumbered after each column, so that the product of codes cannot overflow.
            codes = codes * len(column.values) + column.codes[members]
            _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        numbers[members] = codes
        return numbers, list(map(GroupKey, *(column[members[first]] for column in of_keys)))


def _offsets(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def join_columns(parts: Sequence[Columns]) -> Columns:
    """Concatenate the columns of all parts. Each column is removed from the parts at once, to halve the peak memory."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {}
    for one in fields(Columns):
        columns: list[Any] = [vars(part).pop(one.name) for part in parts]
        if not isinstance(columns[0], Coded):
            joined[one.name] = _join_arrays(columns)
            continue
        positions: dict[Any, int] = {}
        codes: list[NDArray[Any]] = []
        new_codes = [[positions.setdefault(value, len(positions)) for value in each.values[:-1]] for each in columns]
        for new, column in zip(new_codes, columns, strict=True):
            table = np.array([*new, len(positions)], code_type(len(positions)))
            is_unread = not new and column.codes.strides == (0,)
            codes.append(np.broadcast_to(table[0], len(column)) if is_unread else table[column.codes])
        joined[one.name] = Coded(_join_arrays(codes), [*positions, None])
    return Columns(**joined)


def _join_arrays(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if all(one.strides == (0,) for one in arrays) and len({one[0] for one in arrays if len(one)}) == 1:
        return np.broadcast_to(next(one[0] for one in arrays if len(one)), sum(map(len, arrays)))
    return np.concatenate(arrays)


def unread(name: str, kind: Any, size: int) -> Any:  # noqa: ANN401 # a column
    """An unread column of this name: one unknown value with a stride of 0, which takes no memory."""
    if kind is Coded:
        return Coded(np.broadcast_to(np.int8(0), size), (None,))
    if kind == Texts:
        return np.broadcast_to(np.array("", np.object_), size)
    number = np.float64(np.nan) if kind == Floats else np.False_ if kind == Flags else np.int32(unknown_of(name))
    return np.broadcast_to(number, size)


class Described(NamedTuple):
    """A column's name, its type (Coded, Texts, Floats, Flags or Ints), and its source."""

    name: str
    kind: Any
    source: ColumnSource


def _described(name: str, hint: Any) -> Described:  # noqa: ANN401 # a type
    kind, source = get_args(hint)
    source = source if source.name else source._replace(name=name)
    return Described(name, kind, source if source.get else source._replace(get=attrgetter(source.name)))


COLUMNS: Final = tuple(_described(*each) for each in get_type_hints(Columns, include_extras=True).items())
"""All columns, in order."""


CHOOSING: Final[frozenset[ColumnPart]] = frozenset({"choosing"})
CREDITING: Final[frozenset[ColumnPart]] = frozenset({"choosing", "crediting"})
EVERY_PART: Final[frozenset[ColumnPart]] = frozenset(get_args(ColumnPart))


def columns_of(trajectories: Sequence[Trajectory], parts: frozenset[ColumnPart] = CHOOSING) -> Columns:
    """Make the columns of these parts from trajectories in memory. Raises UsageError for a reward that is no number."""
    turns = [turn for one in trajectories for turn in one.turns]
    objects: dict[str, Sequence[Any]] = {
        "rollout": trajectories,
        "gap": [reason for one in trajectories for reason in one.incomplete_reasons],
        "call": [call for one in trajectories for call in one.calls],
        "call gap": [gap for one in trajectories for call in one.calls for gap in call.gaps]
        if "blaming" in parts
        else [],
        "turn": turns,
        "span": [span for turn in turns for span in turn.weight_versions or ()] if "crediting" in parts else [],
        "reward": [reward for one in trajectories for reward in one.rewards],
    }
    columns: dict[str, Any] = {}
    for name, kind, source in COLUMNS:
        if source.part not in parts or source.get is None:
            columns[name] = unread(name, kind, len(objects[source.of]))
            continue
        values = map(source.get, objects[source.of])
        if kind is Coded:
            columns[name] = Coded.of(values)
        elif kind == Texts:
            columns[name] = np.array([*values], np.object_)
        elif kind == Floats:
            columns[name] = np.array([_number(value) for value in values], np.float64)
        elif kind == Flags:
            columns[name] = np.array([bool(value) for value in values], np.bool_)
        else:
            columns[name] = narrow(np.array([_whole(value, unknown_of(name)) for value in values], np.int64))
    return Columns(**columns)


def narrow(numbers: Ints) -> Ints:
    """The numbers as int32 if they fit, which halves the memory of large datasets."""
    is_small = not len(numbers) or (numbers.min() >= UNKNOWN and numbers.max() < -UNKNOWN)
    return cast(Ints, numbers.astype(np.int32)) if is_small else numbers


def unknown_of(name: str) -> int:
    """The number that stands for an unknown one in this column: 0 in counts that are summed, else UNKNOWN."""
    return 0 if name in ("drifts", "rewritten_prompts", "version_spans", "call_gaps") else UNKNOWN


def _whole(value: int | Sized | None, unknown: int) -> int:
    """The value if it is a number, the number of items of a list, or `unknown` for None."""
    return unknown if value is None else value if isinstance(value, int) else len(value)


def _number(value: object) -> float:
    number = as_reward("a trajectory", value)
    return np.nan if number is None else np.inf if np.isnan(number) else number
