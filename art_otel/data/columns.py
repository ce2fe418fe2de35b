"""Columns: all that decides what is trained of some trajectories, as arrays: of rollouts, calls, turns and rewards.

Invariant: neither a message nor a token is here. Trajectories in files (`stored_columns`) and in memory give the same
columns, so what is decided over them (`choice`, `credit`, `plan`, `verdicts`) is decided once. What is of a rollout's
calls, turns or rewards stands one behind the other:

    rollouts    a      b                        turn_ends   0 2 5
    turns       0  1   0  1  2                  turn_rows   0 0 1 1 1
    turns.call  0  1   0  1  1   of its own     turn_calls  0 1 2 3 3   of all
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from art_otel.calls import media_of
from art_otel.data.rewards import as_reward
from art_otel.trajectories import GroupKey, Trajectory, Turn

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

UNKNOWN: Final = -(2**63)
"""A number that nobody knows: files may hold any other."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of few different values: that of item i is `values[codes[i]]`. The last of the values is None.

    A question about values is asked once for each, however many items have it.
    """

    codes: NDArray[np.integer[Any]]
    values: Sequence[Any]

    @classmethod
    def of(cls, items: Iterable[Any]) -> "Coded":
        """The column of these items."""
        positions: dict[Any, int] = {}
        codes = [UNKNOWN if item is None else positions.setdefault(item, len(positions)) for item in items]
        return cls(np.array([code if code >= 0 else len(positions) for code in codes], np.int32), [*positions, None])

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
        """Which items pass the test."""
        return np.array([bool(test(value)) for value in self.values], np.bool_)[self.codes]

    def equals(self, value: object) -> Flags:
        """Which items are this value."""
        return self.where(lambda each: each == value)

    def or_else(self, other: "Coded") -> "Coded":
        """The items, and those of the other column where they are None."""
        positions = {value: position for position, value in enumerate(self.values[:-1])}
        of_other = [positions.setdefault(value, len(positions)) for value in other.values[:-1]]
        others = np.array([*of_other, len(positions)], np.int32)[other.codes]
        return Coded(np.where(self.known, self.codes, others), [*positions, None])

    def codes_in(self, other: "Coded") -> Ints:
        """The code that each item has in the other column, UNKNOWN where it does not occur there or is None."""
        positions = {value: position for position, value in enumerate(other.values[:-1])}
        return np.array([*(positions.get(value, UNKNOWN) for value in self.values[:-1]), UNKNOWN], np.int64)[self.codes]


def reason_where(flags: Flags, reason: str) -> Coded:
    """The reason where the flag says so, None elsewhere."""
    return Coded(np.where(flags, 0, 1), (reason, None))


@dataclass(frozen=True, kw_only=True)
class Columns:
    """See the fields of Trajectory, InferenceCall, Turn and Reward by the same names; counts are those of a rollout.

    Flags of calls: whether one `failed`, is `closed` by the app, `has_media`, and what InferenceCall and Sampling say
    of it. `version_spans` are the versions that sampled ranges of tokens. Shapes: (rollouts,), (calls,), (turns,),
    (rewards,), (gaps,) and (version spans,). `reward` and `reward_value` are NaN, too, where `is_rewarded` and
    `has_value` say that there is none. Columns that nobody asked for are unknown.
    """

    rollout_id: Coded
    attempt: Coded
    trace_id: Coded
    status: Coded
    end: Coded
    split: Coded
    training_step: Coded
    gathering: Coded
    group_id: Coded
    version_first: Coded
    version_last: Coded
    reward: Floats
    is_rewarded: Flags
    calls: Ints
    turns: Ints
    rewards: Ints
    gaps: Ints
    drifts: Ints
    respellings: Ints

    gap: Coded

    span_id: Coded
    step: Coded
    request_model: Coded
    response_model: Coded
    agent: Coded
    marked_untrained: Coded
    version: Coded
    version_end: Coded
    logprobs_mode: Coded
    failed: Flags
    closed: Flags
    has_media: Flags
    is_constrained: Flags
    has_masked_logprobs: Flags
    is_altered: Flags
    is_greedy: Flags
    is_uncounted: Flags

    call: Ints
    choice: Ints
    token_parent: Ints
    tokens_untrained: Coded
    text_untrained: Coded
    finish_reason: Coded
    prompt_tokens: Ints
    sampled_tokens: Ints
    unscored_tokens: Ints
    zero_logprobs: Ints
    version_spans: Ints

    span_version: Coded

    reward_name: Coded
    reward_value: Floats
    has_value: Flags
    reward_step: Coded
    target: Coded
    target_kind: Coded
    reward_choice: Ints
    token_start: Ints
    token_end: Ints

    def __len__(self) -> int:
        return len(self.reward)

    @cached_property
    def turn_ends(self) -> Ints:
        """Where the turns of each rollout begin, and all end. Shape: (rollouts + 1,)."""
        return _ends(self.turns)

    @cached_property
    def call_ends(self) -> Ints:
        """Where the calls of each rollout begin, and all end. Shape: (rollouts + 1,)."""
        return _ends(self.calls)

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
        return self.call_ends[self.turn_rows] + self.call

    @cached_property
    def has_tokens(self) -> Flags:
        """Whether the ids of prompt and completion are known. Shape: (turns,)."""
        return (self.prompt_tokens >= 0) & (self.sampled_tokens >= 0)

    @cached_property
    def model(self) -> Coded:
        """The request's model, the response's where that is unknown. Shape: (calls,)."""
        return self.request_model.or_else(self.response_model)

    def digest(self, names: Iterable[str]) -> str:
        """Tell these trajectories from others, by the names of what they stand in and all that options look at."""
        digest = sha256(repr(list(names)).encode())
        for one in fields(self):
            column: Coded | NDArray[Any] = getattr(self, one.name)
            if isinstance(column, Coded):
                digest.update(repr(column.values).encode())
            digest.update(np.ascontiguousarray(column.codes if isinstance(column, Coded) else column).data)
        return digest.hexdigest()

    def groups(self, rows: Flags) -> tuple[Ints, list[GroupKey]]:
        """The group of each of these rollouts as a position among the keys; others have a negative one of their own."""
        numbers = -1 - np.arange(len(self))
        members = np.flatnonzero(rows & self.group_id.known)
        codes = first = np.zeros(len(members), np.int64)
        of_keys = (self.training_step, self.gathering, self.group_id)
        for column in of_keys:
            codes = codes * len(column.values) + column.codes[members]
            _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        numbers[members] = codes
        return numbers, list(map(GroupKey, *(column[members[first]] for column in of_keys)))


def _ends(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def join_columns(parts: Sequence[Columns]) -> Columns:
    """The columns of all parts, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {}
    for one in fields(Columns):
        columns: list[Any] = [getattr(part, one.name) for part in parts]
        joined[one.name] = _join_coded(columns) if isinstance(columns[0], Coded) else np.concatenate(columns)
    return Columns(**joined)


def _join_coded(columns: Sequence[Coded]) -> Coded:
    positions: dict[Any, int] = {}
    new_codes = [[positions.setdefault(value, len(positions)) for value in column.values[:-1]] for column in columns]
    codes = [
        np.array([*new, len(positions)], np.int32)[column.codes] for new, column in zip(new_codes, columns, strict=True)
    ]
    return Coded(np.concatenate(codes), [*positions, None])


def columns_of(trajectories: Sequence[Trajectory], *, counting: bool = False) -> Columns:
    """The columns of trajectories in memory; `counting` says that their logprobs are counted, too.

    Raises UsageError for a reward that is no number.
    """
    calls = [call for one in trajectories for call in one.calls]
    turns = [turn for one in trajectories for turn in one.turns]
    rewards = [reward for one in trajectories for reward in one.rewards]
    spans = [span for turn in turns for span in turn.weight_versions or ()]
    final = [as_reward(f"rollout {one.rollout_id!r}", one.reward) for one in trajectories]
    values = [as_reward(f"reward {one.name!r}", one.value) for one in rewards]
    scores = [_scores(turn) if counting else (None, None) for turn in turns]
    samplings = [call.sampling for call in calls]
    versions = [one.policy_version for one in trajectories]
    return Columns(
        rollout_id=Coded.of(one.rollout_id for one in trajectories),
        attempt=Coded.of(one.attempt for one in trajectories),
        trace_id=Coded.of(one.trace_id for one in trajectories),
        status=Coded.of(one.status for one in trajectories),
        end=Coded.of(one.end for one in trajectories),
        split=Coded.of(one.split for one in trajectories),
        training_step=Coded.of(one.training_step for one in trajectories),
        gathering=Coded.of(one.gathering for one in trajectories),
        group_id=Coded.of(one.group_id for one in trajectories),
        version_first=Coded.of(version and version.first for version in versions),
        version_last=Coded.of(version and version.last for version in versions),
        reward=_floats(final),
        is_rewarded=_flags(value is not None for value in final),
        calls=_ints(len(one.calls) for one in trajectories),
        turns=_ints(len(one.turns) for one in trajectories),
        rewards=_ints(len(one.rewards) for one in trajectories),
        gaps=_ints(len(one.incomplete_reasons) for one in trajectories),
        drifts=_ints(sum(prompt.drifted_at is not None for prompt in one.prompts) for one in trajectories),
        respellings=_ints(sum(prompt.respelled_at is not None for prompt in one.prompts) for one in trajectories),
        gap=Coded.of(chain.from_iterable(one.incomplete_reasons for one in trajectories)),
        span_id=Coded.of(call.span_id for call in calls),
        step=Coded.of(call.step for call in calls),
        request_model=Coded.of(call.request_model for call in calls),
        response_model=Coded.of(call.response_model for call in calls),
        agent=Coded.of(call.agent for call in calls),
        marked_untrained=Coded.of(call.marked_untrained for call in calls),
        version=Coded.of(call.policy_version for call in calls),
        version_end=Coded.of(call.policy_version_end for call in calls),
        logprobs_mode=Coded.of(call.logprobs_mode for call in calls),
        failed=_flags(call.failed for call in calls),
        closed=_flags(call.closed_by_app is not None for call in calls),
        has_media=_flags(bool(media_of(call)) for call in calls),
        is_constrained=_flags(call.is_constrained for call in calls),
        has_masked_logprobs=_flags(call.has_masked_logprobs for call in calls),
        is_altered=_flags(sampling.is_altered for sampling in samplings),
        is_greedy=_flags(sampling.is_greedy for sampling in samplings),
        is_uncounted=_flags(call.is_uncounted for call in calls),
        call=_ints(turn.call for turn in turns),
        choice=_ints(turn.choice for turn in turns),
        token_parent=_ints(turn.token_parent for turn in turns),
        tokens_untrained=Coded.of(turn.tokens_untrained for turn in turns),
        text_untrained=Coded.of(turn.text_untrained for turn in turns),
        finish_reason=Coded.of(turn.finish_reason for turn in turns),
        prompt_tokens=_ints(map(_prompt_tokens, turns)),
        sampled_tokens=_ints(None if turn.token_ids is None else len(turn.token_ids) for turn in turns),
        unscored_tokens=_ints(unscored for unscored, _ in scores),
        zero_logprobs=_ints(zeros for _, zeros in scores),
        version_spans=_ints(len(turn.weight_versions or ()) for turn in turns),
        span_version=Coded.of(span.version for span in spans),
        reward_name=Coded.of(one.name for one in rewards),
        reward_value=_floats(values),
        has_value=_flags(value is not None for value in values),
        reward_step=Coded.of(one.step for one in rewards),
        target=Coded.of(one.target for one in rewards),
        target_kind=Coded.of(one.target_kind for one in rewards),
        reward_choice=_ints(one.choice for one in rewards),
        token_start=_ints(one.token_start for one in rewards),
        token_end=_ints(one.token_end for one in rewards),
    )


def _ints(values: Iterable[int | None]) -> Ints:
    return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def _flags(values: Iterable[bool]) -> Flags:
    return np.array(list(values), np.bool_)


def _floats(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _prompt_tokens(turn: Turn) -> int | None:
    ids = turn.prompt.context_token_ids
    return None if ids is None else turn.prompt.kept_tokens + len(ids)


def _scores(turn: Turn) -> tuple[int | None, int | None]:
    """How many of the sampled ids have no logprob, and how many one of exactly 0.0."""
    ids, logprobs = turn.token_ids, turn.logprobs
    if ids is None:
        return None, None
    if logprobs is None or len(logprobs) != len(ids):
        return len(ids), 0
    numbers = np.frombuffer(logprobs.data, "<f4")
    return int(np.isnan(numbers).sum()), int((numbers == 0).sum())
