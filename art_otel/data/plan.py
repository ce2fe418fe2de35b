"""Plan: the reward and advantage of every turn, computed before any token is read.

Invariant: an advantage compares a trajectory with the others of its group that are selected, wherever in the files
they stand. A trajectory without a group is a group of its own. Who has no reward, or one that is no usable number, is
not trained and counts in no baseline. Neither does a completion that is not the policy's (`completions`).

Planning reads no messages and no tokens. It keeps about 50 bytes for each reward and 100 for each group.
"""

import hashlib
import math
import sys
import warnings
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from art_otel.attributes import REWARD_NAME
from art_otel.data.advantages import (
    Advantage,
    AdvantageName,
    GroupAdvantage,
    OverGroups,
    OverRewards,
    Rewards,
    find_advantage,
)
from art_otel.data.completions import NOT_THE_POLICYS, CompletionChoice, SeveralModels, facts_of
from art_otel.data.credit import Credit, CreditName, TurnRewards, find_credit, named_rewards
from art_otel.data.options import validate
from art_otel.data.rewards import LARGEST, UNUSABLE, as_reward, names_without_final
from art_otel.data.selection import Selection
from art_otel.data.sources import Chunk
from art_otel.errors import UsageError
from art_otel.store import RowGroup
from art_otel.trajectories import GroupKey, PolicyVersions, Trajectory, Turn

ZeroVariance: TypeAlias = Literal["keep", "drop"]
"""What becomes of groups in which all known rewards are equal."""

_WHOLE: Final = 0  # the unit that is a whole rollout


@dataclass(frozen=True, kw_only=True, slots=True)
class Scoring:
    """Options of `art_otel.batches` by the same names. Without an `advantage`, turns without a reward are trained."""

    credit: Credit
    advantage: Advantage | None
    zero_variance: ZeroVariance = "keep"

    def __str__(self) -> str:
        """What decides which turns are trained, whatever their rewards come to."""
        trained = "all" if self.advantage is None else f"rewarded by {self.credit.per} {self.credit.name}"
        return f"{trained} zero_variance={self.zero_variance}"


class _Choice(msgspec.Struct, frozen=True):
    zero_variance: ZeroVariance


def make_scoring(
    credit: CreditName | Credit, advantage: AdvantageName | Advantage | None, zero_variance: ZeroVariance
) -> Scoring:
    """The scoring that these options of `art_otel.batches` mean. Raises UsageError."""
    choice = validate(_Choice, {"zero_variance": zero_variance})
    return Scoring(credit=find_credit(credit), advantage=find_advantage(advantage), zero_variance=choice.zero_variance)


class TurnReward(NamedTuple):
    """What a turn is trained with, or why it is skipped: for its reward, or by an option (`CompletionChoice`).

    `reward` is None where it is unknown or not usable: NaN, infinite or not below 1e37. `advantage` is None where
    nobody asked for advantages or the turn is skipped.
    """

    reward: float | None = None
    advantage: float | None = None
    skipped: str | None = None


@dataclass(slots=True)
class Units:
    """Everything that is rewarded, in the order it was met: a rollout, a step or a turn.

    `ends[i]` is the number of units up to and with trajectory i. `keys` tell units of a trajectory apart; `groups` and
    `moments` which are compared with each other. A reward is NaN where nobody gave one, infinite where it is unusable.
    `parts` has the rewards that were summed, by name, where a credit sums some. `groups_of_rollouts` has the group of
    each trajectory, negative where it has none or is skipped.
    `unrewarded` has the turns to which a credit of whole rollouts gave nothing though it gave something to others, by
    the number of their trajectory.
    """

    ends: "array[int]" = field(default_factory=lambda: array("q"))
    keys: "array[int]" = field(default_factory=lambda: array("q"))
    groups: "array[int]" = field(default_factory=lambda: array("q"))
    moments: "array[int]" = field(default_factory=lambda: array("q"))
    rewards: "array[float]" = field(default_factory=lambda: array("d"))
    groups_of_rollouts: "array[int]" = field(default_factory=lambda: array("q"))
    parts: "dict[str, array[float]]" = field(default_factory=dict[str, "array[float]"])
    unrewarded: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """`skipped` are the reasons why trajectories are skipped, by their number. Advantages have shape (units,).

    `fingerprint` tells the dataset that was read from others. `no_final_reward` counts selected rollouts without
    one by the names of the rewards that they have. `several_models` has those of which nobody chose a model. `compared`
    counts rollouts whose reward counted in a baseline, `mixed_version_groups` the groups of several policy versions of
    which nothing tells whether they are one.
    """

    credit: Credit
    completions: CompletionChoice
    skipped: dict[int, str]
    units: Units
    advantages: NDArray[np.float64] | None
    zero_variance: NDArray[np.bool_]
    fingerprint: str
    no_final_reward: Counter[str]
    several_models: SeveralModels
    compared: int
    mixed_version_groups: int

    @property
    def unusable_rewards(self) -> int:
        """How many rewards are NaN, infinite or not below 1e37."""
        return sum(map(math.isinf, self.units.rewards))

    @property
    def is_rewarded(self) -> bool:
        """Whether anything has the reward that counts, where there is anything to have it."""
        return not self.units.rewards or not all(map(math.isnan, self.units.rewards))

    @property
    def has_groups(self) -> bool:
        """Whether a trajectory has a group id."""
        return any(group >= 0 for group in self.units.groups)

    def compares(self) -> bool:
        """Whether anything is compared with another member of its group."""
        return any(len(members) > 1 for members in _groups(self.units))

    def turn_rewards(self, number: int, trajectory: Trajectory) -> tuple[TurnReward, ...]:
        """What the turns of trajectory `number` are trained with, or why an option leaves them out. Shape: (turns,)."""
        rewards = self.unit_rewards(number, trajectory)
        return tuple(
            [
                reward if reason is None else reward._replace(skipped=reason)
                for reward, reason in zip(rewards, self.completions.reasons(trajectory), strict=True)
            ]
        )

    def unit_rewards(self, number: int, trajectory: Trajectory) -> list[TurnReward]:
        """What the turns of trajectory `number` are trained with, whatever options leave out. Shape: (turns,)."""
        start = self.units.ends[number - 1] if number else 0
        of_unit: dict[int | None, TurnReward] = {
            self.units.keys[unit]: self._of_unit(unit) for unit in range(start, self.units.ends[number])
        }
        unknown = TurnReward(skipped=None if self.advantages is None else "no reward")
        if self.credit.per == "rollout":
            whole, without = of_unit.get(_WHOLE, unknown), self.units.unrewarded.get(number, frozenset[int]())
            return [unknown if turn in without else whole for turn in range(len(trajectory.turns))]
        return [
            of_unit.get(_key(self.credit, position, turn, trajectory), unknown)
            for position, turn in enumerate(trajectory.turns)
        ]

    def _of_unit(self, unit: int) -> TurnReward:
        reward = self.units.rewards[unit]
        usable = reward if math.isfinite(reward) else None
        if usable is not None and self.zero_variance[unit]:
            return TurnReward(usable, skipped="zero variance")
        if self.advantages is None:
            return TurnReward(usable)
        if usable is None:
            return TurnReward(skipped="no reward" if math.isnan(reward) else UNUSABLE)
        return TurnReward(usable, float(self.advantages[unit]))


def make_plan(chunks: Iterable[Chunk], selection: Selection, scoring: Scoring) -> Plan:
    """Read the rewards of all trajectories, and compare those of each group.

    Groups in which all known rewards are equal are skipped where `scoring` says so. Warns where a rollout has
    rewards and none of them is final, and where a group of several policy versions may be several. Raises UsageError
    for a credit or an advantage that gives something of another shape, or advantages that are not finite.
    """
    credit = scoring.credit
    skipped: dict[int, str] = {}
    units, numbers, versions = Units(), dict[GroupKey, int](), defaultdict[GroupKey, set[PolicyVersions]](set)
    without_final, digest, several_models = Counter[str](), hashlib.sha256(), SeveralModels(selection.version)
    for number, outline in enumerate(_outlines(chunks, selection, digest.update)):
        trajectory, reason = (None, outline) if isinstance(outline, str) else (outline, selection.skip_reason(outline))
        group = -1 - number  # without a group it is alone
        if trajectory is not None and reason is None:
            key = trajectory.group_key
            group = group if key is None else numbers.setdefault(key, len(numbers))
            if key is not None and key.may_be_several and trajectory.policy_version is not None:
                versions[key].add(trajectory.policy_version)
            rewards = rewards_of(trajectory, credit)
            add_units(units, trajectory, group, credit, rewards, selection.completions.reasons(trajectory))
            if selection.completions.is_open:
                trained = [reward is not None or scoring.advantage is None for reward in rewards]
                several_models.add(number, compress(selection.sampled_by(trajectory), trained))
            if credit.reads_final_reward and (names := names_without_final(trajectory)):
                without_final[", ".join(names)] += 1
        elif reason is not None:
            skipped[number] = sys.intern(reason)
        units.ends.append(len(units.keys))
        units.groups_of_rollouts.append(group)
    mixed = [key.group_id for key, of_group in versions.items() if len(of_group) > 1]
    if without_final and scoring.advantage is not None:
        _warn(without_final)
    if mixed and scoring.advantage is not None:
        _warn_of_versions(mixed)
    return finish_plan(
        units,
        [key.group_id for key in numbers],
        scoring,
        selection.completions,
        skipped=skipped,
        fingerprint=digest.hexdigest(),
        no_final_reward=without_final,
        several_models=several_models,
        mixed_version_groups=len(mixed),
    )


def finish_plan(  # noqa: PLR0913 # every one is a part of the plan
    units: Units,
    group_ids: Sequence[str | None],
    scoring: Scoring,
    completions: CompletionChoice,
    *,
    skipped: dict[int, str],
    fingerprint: str,
    no_final_reward: Counter[str],
    several_models: SeveralModels,
    mixed_version_groups: int,
) -> Plan:
    """The plan of everything that is rewarded: compares each unit with the others of its group. Raises UsageError."""
    return Plan(
        credit=scoring.credit,
        completions=completions,
        skipped=skipped,
        units=units,
        advantages=None if scoring.advantage is None else _compare(units, scoring, group_ids),
        zero_variance=_flat(units, is_by_name=isinstance(scoring.advantage, OverRewards))
        if scoring.zero_variance == "drop"
        else np.zeros(len(units.keys), np.bool_),
        fingerprint=fingerprint,
        no_final_reward=no_final_reward,
        several_models=several_models,
        compared=_count_compared(units, scoring.advantage),
        mixed_version_groups=mixed_version_groups,
    )


def _outlines(
    chunks: Iterable[Chunk], selection: Selection, note: Callable[[bytes], object]
) -> Iterator[Trajectory | str]:
    """Every trajectory without messages and tokens, or why it is skipped where nobody has to read it.

    `note` is given what tells this dataset from others: names and sizes of files, and all of each trajectory that
    options look at. Times and folders are not in it, so that a copy has the same.
    """
    for chunk in chunks:
        if isinstance(chunk.stored, RowGroup):
            size = 0 if chunk.version is None else chunk.version[0]
            note(repr((Path(chunk.stored.file).name, size, chunk.stored.index)).encode())
        if chunk.left_out is not None:
            yield from repeat(chunk.left_out, chunk.rows)
            continue
        for one in chunk.read(selection.outline):
            chosen_by = (one.status, sorted(one.incomplete_reasons), one.split, one.policy_version)
            compared_by = (one.group_key, one.reward, one.rewards)
            calls = [(call.step, call.policy_version, call.policy_version_end) for call in one.calls]
            end = one.end
            turns = [tuple(facts_of(one.calls[turn.call], turn, end)) for turn in one.turns]
            note(repr((one.order, chosen_by, compared_by, calls, turns)).encode())
            yield one


def _warn(without_final: Counter[str]) -> None:
    names, count = without_final.most_common(1)[0]
    several = names.split(", ")
    weights = ", ".join(f'"{name}": 1.0' for name in several)
    credit = f"weighted({{{weights}}})" if len(several) > 1 else f'outcome_reward("{names}")'
    warnings.warn(
        f"{without_final.total():,} rollouts have {'several ' if len(several) > 1 else ''}rewards ({names}: {count:,})"
        " and none is the final one, so they are not trained. Say what they come to, with"
        f" credit=art_otel.data.{credit}, or give one without a name",
        stacklevel=2,
    )


def _warn_of_versions(group_ids: Sequence[str]) -> None:
    warnings.warn(
        f"{len(group_ids):,} groups, such as {group_ids[0]!r:.100}, have rollouts of several policy versions, and no"
        " training step or gathering tells whether a group id was used again. They are compared as one group, which is"
        " right if rollouts are sampled while the policy is trained. If each step has groups of its own, say so:"
        " gather_trajectory_groups(…, training_step=step) or @art_otel.rollout(training_step=step)",
        stacklevel=2,
    )


def add_units(
    units: Units,
    trajectory: Trajectory,
    group: int,
    credit: Credit,
    rewards: TurnRewards,
    reasons: Sequence[str | None],
) -> None:
    """Add what is rewarded of a selected trajectory, in the group of this number.

    `rewards` are those of its turns. `reasons` are those of `CompletionChoice.reasons`: what is not the policy's is no
    unit. A rollout has the reward that its first turn with one has; a turn without one is not trained.
    """
    is_policys = [reason not in NOT_THE_POLICYS for reason in reasons]
    if credit.per == "rollout":
        of_policy = [reward for reward, is_its in zip(rewards, is_policys, strict=True) if is_its]
        first = next((reward for reward in of_policy if reward is not None), None)
        rewarded = {_WHOLE: (0, first)} if of_policy else dict[int, tuple[int, float | None]]()
        if first is not None and None in rewards:
            number = len(units.ends)
            units.unrewarded[number] = frozenset(turn for turn, reward in enumerate(rewards) if reward is None)
    else:
        rewarded = {
            key: (turn.call if credit.per == "call" else key, reward)
            for position, (turn, reward) in enumerate(zip(trajectory.turns, rewards, strict=True))
            if is_policys[position] and (key := _key(credit, position, turn, trajectory)) is not None
        }
    named = named_rewards(trajectory) if credit.weights else {}
    is_usable = all(abs(named[name]) < LARGEST for name in credit.weights or () if name in named)
    for key, (moment, reward) in rewarded.items():
        units.keys.append(key)
        units.groups.append(group)
        units.moments.append(moment)
        is_number = is_usable and reward is not None and abs(reward) < LARGEST
        units.rewards.append(math.nan if reward is None else reward if is_number else math.inf)
        for name in credit.weights or ():
            of_name = units.parts.setdefault(name, array("d"))
            of_name.append(named[name] if is_number else math.nan)


def rewards_of(trajectory: Trajectory, credit: Credit) -> TurnRewards:
    """Call the credit, which may be a user's function, and check what it gives. Raises UsageError."""
    result = cast(object, credit.rewards(trajectory))
    turns, whose = len(trajectory.turns), f"credit: of rollout {trajectory.rollout_id!r} it"
    rewards = tuple(cast(Iterable[object], result)) if isinstance(result, Iterable) else None
    if rewards is None or len(rewards) != turns:
        raise UsageError(f"{whose} gave {result!r:.200}; it has to give {turns} rewards, one for each turn")
    return tuple([as_reward(whose, reward) for reward in rewards])


def _key(credit: Credit, position: int, turn: Turn, trajectory: Trajectory) -> int | None:
    """Which unit of the trajectory the turn belongs to; None for a turn outside of every step."""
    return position if credit.per == "call" else trajectory.calls[turn.call].step


def _compare(units: Units, scoring: Scoring, names: Sequence[str | None]) -> NDArray[np.float64]:
    rewards = np.array(units.rewards, np.float64)
    advantages = np.full(len(rewards), np.nan)
    for members, group_rewards, result in _compared(units, rewards, scoring):
        usable = np.isfinite(rewards[members])
        numbers = _as_numbers(result)
        if numbers.shape != usable.shape or not (np.abs(numbers[usable]) <= np.finfo(np.float32).max).all():
            group = units.groups[int(members[0])]
            raise UsageError(
                f"advantage: of the rewards {group_rewards!r:.200} of group {names[group] if group >= 0 else None!r} it"
                f" made {result!r:.200}; it has to give each that is not None a finite number, of float32"
            )
        advantages[members] = numbers
    return advantages


def _compared(
    units: Units, rewards: NDArray[np.float64], scoring: Scoring
) -> Iterator[tuple[NDArray[np.intp], Rewards, ArrayLike]]:
    """Give each group's positions and rewards, None for those that do not count, and what the advantage made of it."""
    advantage = scoring.advantage
    if not isinstance(advantage, OverGroups | OverRewards):
        for members in _groups(units):
            group_rewards = _known(rewards[members])
            yield members, group_rewards, cast(GroupAdvantage, advantage)(group_rewards)
        return
    groups = list(_groups(units))
    all_rewards = [_known(rewards[members]) for members in groups]
    if isinstance(advantage, OverGroups):
        results = advantage.formula(all_rewards)
    else:
        # A credit that names no rewards gives one, which is then compared by itself.
        weights = scoring.credit.weights or {REWARD_NAME: 1.0}
        is_one = scoring.credit.weights is None
        parts = {name: rewards if is_one else np.array(units.parts.get(name, ()), np.float64) for name in weights}
        by_name = [{name: _known(part[members]) for name, part in parts.items()} for members in groups]
        results = advantage.formula(by_name, weights)
    if len(results) != len(groups):
        raise UsageError(f"advantage: of {len(groups)} groups it gave {len(results)}; it has to give one array a group")
    yield from zip(groups, all_rewards, results, strict=True)


def _known(rewards: NDArray[np.float64]) -> Rewards:
    return [reward if math.isfinite(reward) else None for reward in rewards.tolist()]


def _count_compared(units: Units, advantage: Advantage | None) -> int:
    """How many rollouts have a reward that counted in a baseline beside that of another."""
    usable = np.isfinite(np.array(units.rewards, np.float64))
    if advantage is None or not len(usable):
        return 0
    counted = np.zeros(len(usable), np.bool_)
    if isinstance(advantage, OverGroups | OverRewards):
        counted = usable & (np.count_nonzero(usable) > 1)
    else:
        order, starts = _order_and_starts(units)
        counts = np.add.reduceat(usable[order].astype(np.int64), starts)
        counted[order] = np.repeat(counts > 1, np.diff([*starts, len(order)]))
        counted &= usable
    rollouts = np.repeat(np.arange(len(units.ends)), np.diff([0, *units.ends]))
    return len(np.unique(rollouts[counted]))


def _as_numbers(result: ArrayLike) -> NDArray[np.float64]:
    """Make an array of what a function gave; one without a shape where it cannot be one."""
    try:
        return np.asarray(result, np.float64)
    except (TypeError, ValueError):
        return np.array(np.nan)


def _flat(units: Units, *, is_by_name: bool) -> NDArray[np.bool_]:
    """Which units are as good as all others that they are compared with. Shape: (units,)."""
    flat = np.ones(len(units.keys), np.bool_)
    # Equal sums of different rewards are no equal rewards where each is compared by itself.
    compared = units.parts.values() if is_by_name and units.parts else (units.rewards,)
    for rewards in (np.array(one, np.float64) for one in compared):
        for members in _groups(units):
            usable = rewards[members][np.isfinite(rewards[members])]
            flat[members] &= not len(usable) or usable.min() == usable.max()
    return flat


def _groups(units: Units) -> Iterator[NDArray[np.intp]]:
    """Give, for each group and moment, the positions of its units."""
    if units.keys:
        order, starts = _order_and_starts(units)
        yield from np.split(order, starts[1:])


def _order_and_starts(units: Units) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The positions of the units, sorted by group and moment, and where each of these begins among them."""
    groups, moments = np.array(units.groups, np.int64), np.array(units.moments, np.int64)
    order = np.lexsort((moments, groups))
    changes = (np.diff(groups[order]) != 0) | (np.diff(moments[order]) != 0)
    return order, np.concatenate([[0], np.flatnonzero(changes) + 1])
