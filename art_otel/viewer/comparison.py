"""Comparison: a trajectory among those of its group, as `art_otel.batches` compares them.

Invariant: most advantages depend on the group alone, so the group's members give the same numbers as the whole data;
those that compare groups with each other are taken from the judgement of the whole data.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean, pstdev, stdev
from typing import NamedTuple

import numpy as np

from art_otel.data import Batches, Decision
from art_otel.data.decisions import TurnReward, most_common_reason
from art_otel.data.sequences import TokenSequence
from art_otel.store import Wanted
from art_otel.trajectories import Trajectory
from art_otel.viewer.judging import Judgement, PlanOptions
from art_otel.viewer.snapshot import Snapshot

_OUTLINE = Wanted(messages=False, tokens=False)
_TOKENS = Wanted(messages=False)
_latest: "tuple[Snapshot, int, PlanOptions, Comparison] | None" = None
"""A reader asks for the tokens of one rollout, some turns after the others."""

_latest_group: "tuple[Snapshot, list[int], PlanOptions, _GroupPlan] | None" = None
"""An export asks for one member of a group after the other."""


class _GroupPlan(NamedTuple):
    """What is planned of the members of a group: why they are left out, by their numbers, and the turns of each."""

    batches: Batches
    skipped: dict[int, str]
    turns: list[tuple[TurnReward, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """`turn_rewards` has one entry a turn; `sequences` is None where an option refused the trajectory.

    `members` are the rows of the group, `turns_of_members` what is decided of their turns.
    """

    trajectory: Trajectory
    verdict: Decision
    turn_rewards: tuple[TurnReward, ...]
    sequences: list[TokenSequence] | None
    members: list[int]
    turns_of_members: list[tuple[TurnReward, ...]]

    @property
    def rewards(self) -> list[float | None]:
        """The reward of each member that counts, None of the others. Shape: (members,)."""
        return [turns[0].reward if turns else None for turns in self.turns_of_members]


def show_formula(name: str, reward: float, rewards: Sequence[float], advantage: float) -> str:
    """How an advantage came about: `group mean 0.9: (0 - 0.9) / 0.3 = -3`. `rewards` are those that count."""
    if len(rewards) < 2 or min(rewards) == max(rewards):
        return "all rewards of the group are equal: advantage 0"
    mean = (fsum(rewards) - reward) / (len(rewards) - 1) if name == "rloo" else fmean(rewards)
    std = {"grpo": pstdev, "grpo_sample": stdev}.get(name)
    baseline = _number(mean) if mean >= 0 else f"({_number(mean)})"
    difference = f"{_number(reward)} \N{MINUS SIGN} {baseline}"
    whole = difference if std is None else f"({difference}) / {_number(std(rewards))}"
    return f"{'mean of the others' if name == 'rloo' else 'group mean'} {_number(mean)}: {whole} = {_number(advantage)}"


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


def members_of(snapshot: Snapshot, row: int) -> list[int]:
    """The rows of the group of a row; the row alone where it has none."""
    groups, _ = snapshot.outlines.groups_of_rows
    return [row] if groups[row] < 0 else np.flatnonzero(groups == groups[row]).tolist()


def compare(snapshot: Snapshot, row: int, options: PlanOptions, trajectory: Trajectory | None = None) -> Comparison:
    """What would be trained of the trajectory of a row, which is read unless it is given.

    Raises ReplacedError and StoreError.
    """
    global _latest  # noqa: PLW0603 # see there
    if _latest is not None and _latest[0] is snapshot and _latest[1:3] == (row, options):
        return _latest[3]
    comparison = _compare(snapshot, row, options, trajectory)
    _latest = (snapshot, row, options, comparison)
    return comparison


def _compare(snapshot: Snapshot, row: int, options: PlanOptions, trajectory: Trajectory | None) -> Comparison:
    members = members_of(snapshot, row)
    number = members.index(row)
    if trajectory is None:
        (trajectory,) = snapshot.read([row], _TOKENS)
    planned = _plan_of(snapshot, members, options, (number, trajectory))
    turn_rewards = planned.turns[number]
    if options.compares_groups:
        turn_rewards = _with_advantages(turn_rewards, snapshot.judging.wait(options), row)
    refused = planned.skipped.get(number)
    sequences = planned.batches.build(trajectory, turn_rewards) if refused is None else None
    reasons = tuple(turn.skipped for turn in turn_rewards)
    skipped = refused or (None if sequences else most_common_reason(reasons))
    completions = () if sequences is None else reasons
    return Comparison(
        trajectory=trajectory,
        verdict=Decision(rollout_id=trajectory.rollout_id, skipped=skipped, completions=completions),
        turn_rewards=turn_rewards,
        sequences=sequences,
        members=members,
        turns_of_members=planned.turns,
    )


def _plan_of(snapshot: Snapshot, members: list[int], options: PlanOptions, own: tuple[int, Trajectory]) -> _GroupPlan:
    """Plan a group. Its own member alone has tokens, but where the snapshot holds all: those plans are one."""
    global _latest_group  # noqa: PLW0603 # see there
    if _latest_group and _latest_group[0] is snapshot and _latest_group[1:3] == (members, options):
        return _latest_group[3]
    compared = snapshot.read(members, _OUTLINE)
    compared[own[0]] = own[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdicts say it too
        batches = options.batches(compared)
        plan = batches.plan()
    planned = _GroupPlan(batches, plan.skipped, [each.turns for each in plan.decisions.each()])
    if snapshot.held.keys() >= set(members):
        _latest_group = (snapshot, members, options, planned)
    return planned


def _with_advantages(turn_rewards: tuple[TurnReward, ...], judgement: Judgement, row: int) -> tuple[TurnReward, ...]:
    if judgement.advantages is None:
        return turn_rewards
    first = int(judgement.completions.offsets[row])
    advantages = judgement.advantages[first : first + len(turn_rewards)].tolist()
    return tuple(
        one if one.advantage is None else one._replace(advantage=advantage)
        for one, advantage in zip(turn_rewards, advantages, strict=True)
    )
