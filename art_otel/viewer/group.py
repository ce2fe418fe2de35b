"""Group: the rollouts of one group, the best first, and how their advantages came about.

Invariant: advantages are those of `art_otel.batches` for the whole group; the sentences only say the formula again.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev, stdev
from typing import Any, Final

import numpy as np

from art_otel.data.option_texts import NONE
from art_otel.store import Wanted
from art_otel.trajectories import GroupKey
from art_otel.viewer.addresses import NotFoundError
from art_otel.viewer.alignment import align, messages_of, parting_line
from art_otel.viewer.comparison import compare
from art_otel.viewer.judging import DEFAULTS, PlanOptions
from art_otel.viewer.rollout import show_rows
from art_otel.viewer.snapshot import Snapshot

_MOST_MEMBERS: Final = 64
"""Members whose texts are shown; the rewards are those of all."""

_ELSEWHERE: Final = "Tokens shows the advantage of each completion"
_MESSAGES: Final = Wanted(tokens=False)


def show_group(snapshot: Snapshot, key: GroupKey, options: PlanOptions) -> dict[str, Any]:
    """The group of this key. Raises NotFoundError."""
    of_group = np.flatnonzero(snapshot.outlines.in_group(key))
    if not len(of_group):
        raise NotFoundError(f"no group {key.group_id!r:.200} in this data")
    rewards = snapshot.outlines.rewards[of_group]
    order = np.argsort(-rewards, kind="stable")  # those without a reward come last
    rows, rewards = of_group[order].tolist(), rewards[order]
    trajectories = snapshot.read(rows[:_MOST_MEMBERS], _MESSAGES)
    lines = align([messages_of(trajectory) for trajectory in trajectories])
    advantage, why = _advantage(snapshot, of_group.tolist(), order.tolist(), options)
    return {
        "groupId": key.group_id,
        "step": key.training_step,
        "members": show_rows(snapshot, rows, None if options == DEFAULTS else options),
        "lines": lines,
        "parts": parting_line(lines, rewards[:_MOST_MEMBERS].tolist()),
        "advantage": advantage,
        "why": why,
    }


def _advantage(
    snapshot: Snapshot, rows: Sequence[int], order: Sequence[int], options: PlanOptions
) -> tuple[dict[str, Any] | None, str | None]:
    """How the advantages of the rows in this order are derived, or why there are none."""
    if options.advantage == NONE:
        return None, "no advantages were requested"
    if options.unit != "rollout":
        return None, f"{options.credit} compares parts of rollouts; {_ELSEWHERE}"
    if options.compares_groups:
        return None, f"{options.advantage} compares groups with each other; {_ELSEWHERE}"
    comparison = compare(snapshot, rows[0], options)
    plan = comparison.plan
    units = [plan.turn_rewards(number) for number in order]
    skipped = {place: plan.skipped[number] for place, number in enumerate(order) if number in plan.skipped}
    rewards = [turns[0].reward if turns else None for turns in units]
    advantages = [turns[0].advantage if turns else None for turns in units]
    usable = [reward for reward in rewards if reward is not None]
    if not usable:
        return None, "no member that the options select has a usable reward and a completion"
    mean = fmean(usable)
    derived = {
        "name": options.advantage,
        "rewards": rewards,
        "baseline": None if options.advantage == "rloo" else mean,
        "std": _std(options.advantage, usable),
        "advantages": advantages,
        "says": _says(options.advantage, rewards, usable, advantages, skipped),
    }
    return derived, None


def _std(name: str, usable: Sequence[float]) -> float | None:
    if name == "grpo":
        return pstdev(usable)
    return stdev(usable) if name == "grpo_sample" and len(usable) > 1 else None


def _says(
    name: str,
    rewards: Sequence[float | None],
    usable: Sequence[float],
    advantages: Sequence[float | None],
    skipped: Mapping[int, str],
) -> list[str]:
    shown = ", ".join(f"{reward:g}" for reward in usable)
    says = [f"{len(usable)} of {len(rewards)} members have a reward that counts: {shown}."]
    says += [f"Member {number + 1} is left out: {reason}." for number, reason in skipped.items()]
    if len(usable) == 1 or math.isclose(min(usable), max(usable)):
        return [*says, "All known rewards are equal, so every advantage is 0."]
    mean = fmean(usable)
    says.append(
        f"Baseline: the mean of these rewards is {mean:.6g}."
        if name != "rloo"
        else "Baseline of each: the mean of the others."
    )
    std = _std(name, usable)
    if std is not None:
        kind = "population" if name == "grpo" else "sample"
        says.append(f"Their {kind} deviation is {std:.6g}; 1e-6 is added to it.")
    for number, (reward, advantage) in enumerate(zip(rewards, advantages, strict=True), 1):
        if reward is not None and advantage is not None:
            baseline = mean if name != "rloo" else (math.fsum(usable) - reward) / (len(usable) - 1)
            divided = "" if std is None else f" / {std:.6g}"
            says.append(f"Member {number}: ({reward:g} - {baseline:.6g}){divided} = {advantage:+.6g}.")
    return says
