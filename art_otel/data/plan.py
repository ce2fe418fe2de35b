"""Plan: the reward and the advantage of every turn of a dataset, and what is trained with them.

    columns ─► choose: rollouts and turns, or a reason ─► credit: a reward per turn ─► advantages ─► decide

    group g   rollout a  reward 1.0      advantage  0.5        with advantage="centered"
              rollout b  reward 0.0      advantage -0.5
              rollout c  no reward       not trained, and not in the mean

Invariant: an advantage compares a trajectory with all selected trajectories of its group, in whatever files they are.
A trajectory without a group is a group of its own. A rollout without a usable reward, and a completion that is not the
policy's (`choosing`), are not trained and count in no baseline.

Planning reads neither messages nor tokens, so it needs only about 600 bytes per completion, of which a plan keeps 80.
Only a credit that is a user's function gets trajectories.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from art_otel.attributes import REWARD_NAME
from art_otel.data import formulas
from art_otel.data.advantages import (
    FORMULAS,
    Advantage,
    AdvantageName,
    OverGroups,
    OverRewards,
    Rewards,
    find_advantage,
    name_of,
)
from art_otel.data.choosing import NOT_THE_POLICYS, SEVERAL, Chosen, SeveralModels, choose, parts_for, several_models
from art_otel.data.columns import Coded, ColumnPart, Columns, Flags, Floats, Ints, reason_where
from art_otel.data.credit import Credit, CreditName, KnownRewards, find_credit, named_rewards, shared_steps
from art_otel.data.decisions import SequenceOptions, TrainingDecisions, decide
from art_otel.data.options import validate
from art_otel.data.rewards import LARGEST, UNUSABLE, as_reward
from art_otel.data.selection import Selection
from art_otel.data.sources import Chunk, read_columns, read_numbered, why_left_out
from art_otel.errors import UsageError
from art_otel.trajectories import GroupKey, Trajectory

ZeroVariance: TypeAlias = Literal["keep", "drop"]
"""Whether groups are trained in which all known rewards are equal, so that there is nothing to compare."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scoring:
    """Options of `art_otel.batches` with these names. If `advantage` is None, turns without a reward are trained."""

    credit: Credit
    advantage: Advantage | None
    zero_variance: ZeroVariance = "keep"

    def __str__(self) -> str:
        """The options that decide which turns are trained; the name of the advantage does not."""
        trained = "all" if self.advantage is None else f"rewarded by {self.credit.per} {self.credit.name}"
        return f"{trained} zero_variance={self.zero_variance}"


class _ZeroVarianceOption(msgspec.Struct, frozen=True):
    zero_variance: ZeroVariance


def make_scoring(
    credit: CreditName | Credit, advantage: AdvantageName | Advantage | None, zero_variance: ZeroVariance
) -> Scoring:
    """Make the scoring from options of `art_otel.batches`. Raises UsageError for an unknown name or value."""
    choice = validate(_ZeroVarianceOption, {"zero_variance": zero_variance})
    return Scoring(credit=find_credit(credit), advantage=find_advantage(advantage), zero_variance=choice.zero_variance)


@dataclass(frozen=True, kw_only=True)
class RewardTable:
    """One entry for each rewarded unit: a rollout, a step of a rollout, or a turn (`Credit.per`).

    `rows` are the units' rollouts. Units with equal `groups` and equal `moments` (the step or the call) are compared
    with each other. A reward is NaN if it was not given, infinite if it is unusable. `parts` are the summed rewards by
    name, if the credit is a sum. Shapes: (rewarded,); `of_turns` has the position of each turn's unit, -1 without one.
    Shape: (turns,).
    """

    rows: Ints
    groups: Ints
    moments: Ints
    rewards: Floats
    parts: Mapping[str, Floats]
    of_turns: Ints

    @cached_property
    def order(self) -> Ints:
        """The positions of all units, sorted by group and moment. Shape: (rewarded,)."""
        return np.lexsort((self.moments, self.groups))

    @cached_property
    def starts(self) -> Ints:
        """The position in `order` at which each group and moment begins."""
        changes = (np.diff(self.groups[self.order]) != 0) | (np.diff(self.moments[self.order]) != 0)
        return np.concatenate([[0], np.flatnonzero(changes) + 1])[: len(self.rows)]

    @cached_property
    def owners(self) -> Ints:
        """The group and moment of each unit, as a position in `starts`. Shape: (rewarded,)."""
        owners = np.empty(len(self.rows), np.int64)
        owners[self.order] = np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.rows)))
        return owners

    def grouped(self, rewards: Floats) -> formulas.GroupedRewards:
        """The rewards in `order`; unusable ones are NaN, as unknown ones are."""
        ordered = rewards[self.order]
        ordered[~np.isfinite(ordered)] = np.nan
        return formulas.GroupedRewards(ordered, self.owners[self.order], len(self.starts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is trained with which reward and advantage, for all trajectories of a dataset, by their numbers."""

    decisions: TrainingDecisions
    groups: Ints
    """The group of each trajectory; negative for a skipped trajectory or one without a group. Shape: (rollouts,)."""
    fingerprint: str
    """A digest of the columns: it differs between datasets."""
    no_final_reward: Counter[str]
    """Selected rollouts without a final reward, counted by the names of their rewards."""
    several_models: SeveralModels
    compared: int
    """How many rollouts have a reward that was compared with another one."""
    mixed_version_groups: list[str]
    """Ids of groups with several policy versions, which may be several groups with one id."""
    is_rewarded: bool
    """Whether any reward that counts was given; True if there is nothing to reward."""
    has_groups: bool
    """Whether any trajectory has a group id."""
    compares: bool
    """Whether anything is compared with another member of its group."""

    @property
    def skipped(self) -> dict[int, str]:
        """The reasons why trajectories are left out as a whole, by trajectory number."""
        return {row: reason for row, reason in enumerate(self.decisions.refused) if reason is not None}


def make_plan(
    chunks: Sequence[Chunk],
    selection: Selection,
    scoring: Scoring,
    options: SequenceOptions | None,
    *,
    whole: bool = False,
) -> Plan:
    """Read the columns of all trajectories, compare the rewards of each group, and decide what is trained.

    Part files of which no row is chosen are read only if the plan must be `whole`. Without `options` there are no
    sequences (`decide`). Raises StoreError if a file cannot be read; UsageError if a credit or an advantage returns
    another number of values than it must, or an advantage that is not finite.
    """
    parts: set[ColumnPart] = {"counting", *parts_for(selection)}
    weights = None if options is None else options.weights
    if not scoring.credit.reads_final_reward or weights is not None:
        parts.add("crediting")
    if options is not None and options.has_masks:
        parts.add("masks")
    columns = read_columns(chunks, frozenset(parts), whole=whole)
    chosen = choose(columns, selection, why_left_out(chunks))
    selected = ~chosen.refused.known
    groups, keys = columns.groups(selected)
    learned = _learn(columns, chunks, chosen, selection, scoring, groups, keys)
    is_several = np.isin(np.arange(len(columns)), learned.several_models.rollouts)
    return Plan(
        decisions=decide(
            replace(columns, end=chosen.end) if selection.chooses_models else columns,
            chunks,
            chosen.refused.or_else(reason_where(is_several, SEVERAL)),
            chosen.untrained,
            (learned.rewards, learned.advantages, chosen.left_out.or_else(learned.reasons)),
            options,
            shared_steps(columns)[0] if scoring.credit.per == "step" else np.zeros(0, np.int64),
        ),
        groups=groups,
        fingerprint=columns.digest(chunk.name for chunk in chunks),
        no_final_reward=_names_without_final(columns, selected) if scoring.credit.reads_final_reward else Counter(),
        several_models=learned.several_models,
        compared=learned.compared,
        mixed_version_groups=_mixed_versions(columns, groups, keys),
        is_rewarded=learned.is_rewarded,
        has_groups=learned.has_groups,
        compares=learned.compares,
    )


class _Learned(NamedTuple):
    """The usable reward and the advantage of each turn (NaN: none), and why it is not trained. Shape: (turns,).

    The other fields are those of `Plan`.
    """

    rewards: Floats
    advantages: Floats
    reasons: Coded
    several_models: SeveralModels
    compared: int
    is_rewarded: bool
    has_groups: bool
    compares: bool


def _learn(
    columns: Columns,
    chunks: Sequence[Chunk],
    chosen: Chosen,
    selection: Selection,
    scoring: Scoring,
    groups: Ints,
    keys: Sequence[GroupKey],
) -> _Learned:
    """Give all turns their rewards, and compare the rewards of each group."""
    given = _rewards(columns, chunks, selection, scoring.credit, ~chosen.refused.known)
    rewarded = _rewarded(columns, chosen, scoring.credit, given, groups)
    advantages = None if scoring.advantage is None else _compare(rewarded, scoring, keys)
    flat = np.zeros(len(rewarded.rows), np.bool_)
    if scoring.zero_variance == "drop":
        flat = _flat(rewarded, is_by_name=isinstance(scoring.advantage, OverRewards))
    return _Learned(
        *_of_turns(rewarded, advantages, flat),
        several_models=several_models(columns, chosen, selection, given.known | (scoring.advantage is None)),
        compared=_count_compared(rewarded, scoring.advantage),
        is_rewarded=not len(rewarded.rewards) or not np.isnan(rewarded.rewards).all(),
        has_groups=bool((rewarded.groups >= 0).any()),
        compares=len(rewarded.starts) < len(rewarded.rows),
    )


def _rewards(
    columns: Columns, chunks: Sequence[Chunk], selection: Selection, credit: Credit, selected: Flags
) -> KnownRewards:
    """The reward of every turn. A user's function is called for selected trajectories only. Shape: (turns,)."""
    if credit.of_columns is not None:
        return credit.of_columns(columns)
    values, known = np.full(len(columns.call), np.nan), np.zeros(len(columns.call), np.bool_)
    for number, trajectory in read_numbered(chunks, selection.outline, frozenset(np.flatnonzero(selected).tolist())):
        for turn, reward in enumerate(rewards_of(trajectory, credit), int(columns.turn_offsets[number])):
            if reward is not None:
                values[turn], known[turn] = reward, True
    return KnownRewards(values, known)


def rewards_of(trajectory: Trajectory, credit: Credit) -> tuple[float | None, ...]:
    """Call a credit that is a user's function, and check its result: a number or None for each turn.

    Raises UsageError for any other result.
    """
    result = cast(object, credit.rewards(trajectory))
    turns, whose = len(trajectory.turns), f"credit: for rollout {trajectory.rollout_id!r}, it"
    rewards = tuple(cast(Iterable[object], result)) if isinstance(result, Iterable) else None
    if rewards is None or len(rewards) != turns:
        raise UsageError(f"{whose} returned {result!r:.200}; it must return {turns} rewards, one for each turn")
    return tuple([as_reward(whose, reward) for reward in rewards])


def _rewarded(columns: Columns, chosen: Chosen, credit: Credit, given: KnownRewards, groups: Ints) -> RewardTable:
    """Find the rewarded units of the selected trajectories, without turns that are not the policy's.

    credit per   a unit                    key of its turns   compared with, in its group
    rollout      all turns of a rollout    rollout            all rollouts
    step         all turns of one step     rollout and step   the same step of other rollouts
    call         a turn                    its position       the call at the same place in other rollouts (`_places`)

    The reward of a rollout is that of its first turn with one, the reward of a step that of its last turn.
    """
    rows, steps = columns.turn_rows, columns.step[columns.turn_calls]
    has_key = ~chosen.refused.known[rows]
    is_policys = ~chosen.left_out.where(NOT_THE_POLICYS.__contains__)
    match credit.per:
        case "rollout":
            keys, moments = rows, np.zeros(len(rows), np.int64)
        case "step":
            keys, moments = rows * len(steps.values) + steps.codes, steps.codes
            has_key &= steps.known
        case "call":
            keys, moments = np.arange(len(rows)), _places(columns, has_key & is_policys)
    turns = np.flatnonzero(has_key & is_policys)
    distinct, first, places = _distinct(keys[turns])
    order = np.flatnonzero(given.known[turns])[::-1] if credit.per == "rollout" else np.arange(len(turns))
    deciding = np.full(len(distinct), -1)  # the turn whose reward counts: numpy keeps the last one that is assigned
    deciding[places[order]] = turns[order]
    known = (deciding >= 0) & given.known[deciding]
    values = np.where(known, given.values[deciding], np.nan)
    rewarded_rows = rows[turns[first]]

    named = {name: named_rewards(columns, name) for name in credit.weights or ()}
    is_usable = known & (np.abs(values) < LARGEST)  # False for NaN, too
    for of_name in named.values():
        is_usable &= (~of_name.known | (np.abs(of_name.values) < LARGEST))[rewarded_rows]

    # Turns that are not the policy's make no unit, but show the reward of their rollout or step.
    of_turns = np.full(len(rows), -1)
    if len(distinct):
        nearest = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
        has_reward = has_key & (distinct[nearest] == keys)
        if credit.per == "rollout":  # a user's function may give some turns of a rollout no reward
            has_reward &= given.known
        of_turns[has_reward] = nearest[has_reward]
    return RewardTable(
        rows=rewarded_rows,
        groups=groups[rewarded_rows],
        moments=moments[turns[first]].astype(np.int64),
        rewards=np.where(is_usable, values, np.where(known, np.inf, np.nan)),
        parts={name: np.where(is_usable, one.values[rewarded_rows], np.nan) for name, one in named.items()},
        of_turns=of_turns,
    )


def _places(columns: Columns, compared: Flags) -> Ints:
    """The place of each turn's call: how many of its rollout's calls completed a turn that is `compared` before it.

    So neither a judge's call nor one that failed and was asked again has a place of its own. Shape: (turns,).
    """
    has_place = np.zeros(len(columns.call_rows), np.bool_)
    has_place[columns.turn_calls[compared]] = True
    before = np.concatenate([[0], np.cumsum(has_place & ~columns.failed)])
    return before[columns.turn_calls] - before[columns.call_offsets[columns.turn_rows]]


def _distinct(keys: Ints) -> tuple[Ints, Ints, Ints]:
    """The different keys in order, the first position of each, and for each key its position among these.

    [3, 3, 7]      [3, 7], [0, 2], [0, 0, 1]
    """
    changes = np.diff(keys, prepend=-1)
    if (changes >= 0).all():  # keys of rollouts and calls are sorted already, so np.unique's sort is saved
        first = np.flatnonzero(changes)
        return keys[first], first, np.cumsum(changes > 0) - 1
    return np.unique(keys, return_index=True, return_inverse=True)


def _of_turns(rewarded: RewardTable, advantages: Floats | None, flat: Flags) -> tuple[Floats, Floats, Coded]:
    """The usable reward and the advantage of each turn (NaN: none), and why it is not trained. Shape: (turns,)."""
    reasons: tuple[str | None, ...] = ("zero variance", "no reward", UNUSABLE, None)
    is_usable = np.isfinite(rewarded.rewards)
    is_unknown = np.isnan(rewarded.rewards)
    if advantages is None:  # without advantages a missing reward does not matter: every turn has weight 1
        trained = np.where(is_usable | is_unknown, 3, 2)
    else:
        trained = np.where(is_usable, 3, np.where(is_unknown, 1, 2))
    # The last entry of each array is for turns without a unit, whose position in `of_turns` is -1.
    codes = np.append(np.where(is_usable & flat, 0, trained), 3 if advantages is None else 1)
    reward = np.append(np.where(is_usable, rewarded.rewards, np.nan), np.nan)
    gains = np.append(np.full(len(flat), np.nan) if advantages is None else advantages, np.nan)
    gains[codes != len(reasons) - 1] = np.nan
    return reward[rewarded.of_turns], gains[rewarded.of_turns], Coded(codes[rewarded.of_turns], reasons)


def _names_without_final(columns: Columns, selected: Flags) -> Counter[str]:
    """Count rollouts without a final reward by the names of their rewards, none of which is `reward`."""
    whole = columns.has_value & ~columns.target.known & ~columns.reward_step.known
    names: dict[int, set[str]] = {}
    for reward in np.flatnonzero(whole & (selected & ~columns.is_rewarded)[columns.reward_rows]).tolist():
        names.setdefault(int(columns.reward_rows[reward]), set()).add(
            columns.reward_name.values[columns.reward_name.codes[reward]]
        )
    return Counter(", ".join(sorted(each)) for each in names.values() if REWARD_NAME not in each)


def _mixed_versions(columns: Columns, groups: Ints, keys: Sequence[GroupKey]) -> list[str]:
    """The ids of groups with several policy versions that may be several groups with one id."""
    may_be_several = np.array([*(key.may_be_several for key in keys), False], np.bool_)
    rows = np.flatnonzero(may_be_several[np.maximum(groups, -1)] & columns.version_first.known)
    versions = columns.version_first.codes.astype(np.int64) * len(columns.version_last.values)
    versions += columns.version_last.codes
    pairs = np.unique(np.stack([groups[rows], versions[rows]]), axis=1)
    numbers, counts = np.unique(pairs[0], return_counts=True)
    return [keys[int(group)].group_id for group in numbers[counts > 1]]


def warn(plan: Plan) -> None:
    """Warn of rollouts with rewards but no final one, and of group ids that may stand for several groups."""
    if plan.no_final_reward:
        _warn_of_names(plan.no_final_reward)
    if plan.mixed_version_groups:
        _warn_of_versions(plan.mixed_version_groups)


def _warn_of_names(without_final: Counter[str]) -> None:
    names, count = without_final.most_common(1)[0]
    several = names.split(", ")
    weights = ", ".join(f'"{name}": 1.0' for name in several)
    credit = f"weighted({{{weights}}})" if len(several) > 1 else f'outcome_reward("{names}")'
    total = without_final.total()
    have = "1 rollout has" if total == 1 else f"{total:,} rollouts have"
    warnings.warn(
        f"{have} {'several ' if len(several) > 1 else ''}rewards ({names}: {count:,}), and none is the final one, so"
        f" nothing is trained with them. Choose with credit=art_otel.data.{credit}, or give a reward without a name",
        stacklevel=4,
    )


def _warn_of_versions(group_ids: Sequence[str]) -> None:
    warnings.warn(
        f"{len(group_ids):,} groups, such as {group_ids[0]!r:.100}, have rollouts of several policy versions, and no"
        " training step or gathering tells whether a group id was used again. They are compared as one group, which is"
        " right if rollouts are sampled while the policy is trained. If each step has groups of its own, say so:"
        " gather_trajectory_groups(…, training_step=step) or @art_otel.rollout(training_step=step)",
        stacklevel=4,
    )


def _compare(rewarded: RewardTable, scoring: Scoring, keys: Sequence[GroupKey]) -> Floats:
    """The advantage of each unit, NaN for an unknown or unusable reward. Shape: (rewarded,)."""
    advantage = scoring.advantage
    # Advantages over named rewards need names: a credit that is no sum has one reward, which gets the usual name.
    weights = scoring.credit.weights or {REWARD_NAME: 1.0}
    parts = rewarded.parts if scoring.credit.weights else {REWARD_NAME: rewarded.rewards}
    name = name_of(advantage)
    if name is None:
        return _compare_by_functions(rewarded, cast(Advantage, advantage), parts, weights, keys)
    advantages = np.empty(len(rewarded.rows))
    if isinstance(advantage, OverRewards):
        named = {each: rewarded.grouped(part) for each, part in parts.items()}
        advantages[rewarded.order] = formulas.gdpo(named, weights)
    else:
        advantages[rewarded.order] = FORMULAS[name](rewarded.grouped(rewarded.rewards))
    return advantages


def _compare_by_functions(
    rewarded: RewardTable,
    advantage: Advantage,
    parts: Mapping[str, Floats],
    weights: Mapping[str, float],
    keys: Sequence[GroupKey],
) -> Floats:
    """`_compare` with a user's function, which gets the rewards of one group or of all groups."""
    members = np.split(rewarded.order, rewarded.starts[1:]) if len(rewarded.rows) else []
    rewards = [_known(rewarded.rewards[each]) for each in members]
    match advantage:
        case OverGroups():
            results = advantage.formula(rewards)
        case OverRewards():
            named = [{name: _known(part[each]) for name, part in parts.items()} for each in members]
            results = advantage.formula(named, weights)
        case _:
            results = [advantage(each) for each in rewards]
    if len(results) != len(members):
        raise UsageError(
            f"advantage: for {len(members)} groups, it returned {len(results)} results; it must return one array per"
            " group"
        )
    advantages = np.full(len(rewarded.rows), np.nan)
    for places, of_group, result in zip(members, rewards, results, strict=True):
        usable, numbers = np.isfinite(rewarded.rewards[places]), _as_numbers(result)
        if numbers.shape != usable.shape or not (np.abs(numbers[usable]) <= np.finfo(np.float32).max).all():
            group = int(rewarded.groups[int(places[0])])
            name = keys[group].group_id if group >= 0 else None
            raise UsageError(
                f"advantage: for the rewards {of_group!r:.200} of group {name!r}, it"
                f" returned {result!r:.200}; it must return a finite float32 number for each reward that is not None"
            )
        advantages[places] = numbers
    return advantages


def _known(rewards: Floats) -> Rewards:
    return [reward if math.isfinite(reward) else None for reward in rewards.tolist()]


def _as_numbers(result: ArrayLike) -> Floats:
    """Make an array of a function's result; an array of shape (), which fits no group, if it cannot be one."""
    try:
        return np.asarray(result, np.float64)
    except (TypeError, ValueError):
        return np.array(np.nan)


def _count_compared(rewarded: RewardTable, advantage: Advantage | None) -> int:
    """How many rollouts have a reward that was compared with at least one other reward."""
    usable = np.isfinite(rewarded.rewards)
    if advantage is None or not len(usable):
        return 0
    if isinstance(advantage, OverGroups | OverRewards):
        counted = usable & (np.count_nonzero(usable) > 1)
    else:
        counts = np.add.reduceat(usable[rewarded.order].astype(np.int64), rewarded.starts)
        counted = usable & (counts > 1)[rewarded.owners]
    return len(np.unique(rewarded.rows[counted]))


def _flat(rewarded: RewardTable, *, is_by_name: bool) -> Flags:
    """Which units have the same reward as all units that they are compared with. Shape: (rewarded,)."""
    flat = np.ones(len(rewarded.rows), np.bool_)
    # An advantage that compares each named reward by itself is not zero because the sums are equal.
    for rewards in rewarded.parts.values() if is_by_name and rewarded.parts else (rewarded.rewards,):
        ordered = rewards[rewarded.order]
        usable = np.isfinite(ordered)
        if len(ordered):
            least = np.minimum.reduceat(np.where(usable, ordered, np.inf), rewarded.starts)
            most = np.maximum.reduceat(np.where(usable, ordered, -np.inf), rewarded.starts)
            flat &= (least >= most)[rewarded.owners]
    return flat
