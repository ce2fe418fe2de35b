"""Comparison: a trajectory among those of its group, as `art_otel.batches` compares them.

Invariant: most advantages depend on the group alone, so the group's members give the same numbers as the whole data;
those that compare groups with each other are taken from the judgement of the whole data.
"""

import warnings
from dataclasses import dataclass

import numpy as np

from art_otel.data import Verdict
from art_otel.data.choosing import SEVERAL
from art_otel.data.plan import TurnReward
from art_otel.data.sequences import BuiltSequences
from art_otel.store import Wanted
from art_otel.trajectories import Trajectory
from art_otel.viewer.addresses import group_key_of
from art_otel.viewer.judging import Judgement, PlanOptions
from art_otel.viewer.snapshot import Snapshot

_OUTLINE = Wanted(messages=False, tokens=False)
_TOKENS = Wanted(messages=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """`turn_rewards` has one entry a turn; `built` is None where an option refused the trajectory.

    `members` are the rows of the group, `compared` their trajectories; only its own has tokens.
    """

    trajectory: Trajectory
    verdict: Verdict
    turn_rewards: tuple[TurnReward, ...]
    built: BuiltSequences | None
    members: list[int]
    compared: list[Trajectory]


def members_of(snapshot: Snapshot, row: int) -> list[int]:
    """The rows of the group of a row; the row alone where it has none."""
    outlines = snapshot.outlines
    (record,) = outlines.records([row])
    if record["group_id"] is None:
        return [row]
    return np.flatnonzero(outlines.in_group(group_key_of(record))).tolist()


def compare(snapshot: Snapshot, row: int, options: PlanOptions, trajectory: Trajectory | None = None) -> Comparison:
    """What would be trained of the trajectory of a row, which is read unless it is given.

    Raises ReplacedError and StoreError.
    """
    members = members_of(snapshot, row)
    number = members.index(row)
    if trajectory is None:
        (trajectory,) = snapshot.read([row], _TOKENS)
    compared = snapshot.read(members, _OUTLINE)
    compared[number] = trajectory
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdicts say it too
        batches = options.batches(compared)
        plan = batches.plan()
    turn_rewards = plan.turn_rewards(number)
    if options.compares_groups:
        turn_rewards = _with_advantages(turn_rewards, snapshot.judging.wait(options), row)
    refused = SEVERAL if number in plan.several_models.rollouts else plan.skipped.get(number)
    built = batches.build(trajectory, turn_rewards) if refused is None else None
    return Comparison(
        trajectory=trajectory,
        verdict=Verdict(rollout_id=trajectory.rollout_id, skipped=refused) if built is None else built.verdict,
        turn_rewards=turn_rewards,
        built=built,
        members=members,
        compared=compared,
    )


def _with_advantages(turn_rewards: tuple[TurnReward, ...], judgement: Judgement, row: int) -> tuple[TurnReward, ...]:
    if judgement.advantages is None:
        return turn_rewards
    first = int(judgement.completions.offsets[row])
    advantages = judgement.advantages[first : first + len(turn_rewards)].tolist()
    return tuple(
        one if one.advantage is None else one._replace(advantage=advantage)
        for one, advantage in zip(turn_rewards, advantages, strict=True)
    )
