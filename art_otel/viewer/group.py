"""Group: the rollouts of one group, the best first, and how their advantages came about.

Invariant: advantages are those of `art_otel.batches` for the whole group; the sentences only say the formula again.
"""

from collections.abc import Sequence
from statistics import fmean, pstdev, stdev
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np

from art_otel.data.option_texts import NONE
from art_otel.store import Wanted
from art_otel.trajectories import GroupKey
from art_otel.viewer.addresses import NotFoundError, encode_key
from art_otel.viewer.alignment import align, messages_of, parting_line
from art_otel.viewer.comparison import compare, show_formula
from art_otel.viewer.judging import DEFAULTS, PlanOptions
from art_otel.viewer.listing import list_rows
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
    best = {"group": encode_key(key), "sort": "reward", "order": "desc", "plan": urlencode(options.texts)}
    rows = list_rows(snapshot, best).tolist()
    places = {row: place for place, row in enumerate(of_group.tolist())}
    order = [places[row] for row in rows]
    rewards = snapshot.outlines.rewards[rows]
    trajectories = snapshot.read(rows[:_MOST_MEMBERS], _MESSAGES)
    lines = align([messages_of(trajectory) for trajectory in trajectories])
    advantage, why = _advantage(snapshot, rows, order, options)
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
    comparison, judgement = compare(snapshot, rows[0], options), snapshot.judging.wait(options)
    of_members = comparison.rewards
    rewards = [of_members[number] for number in order]
    # One that is not trained has no advantage, though its reward may count.
    advantages = [
        comparison.turns_of_members[number][0].advantage if judgement.trained[row] else None
        for row, number in zip(rows, order, strict=True)
    ]
    usable = [reward for reward in rewards if reward is not None]
    if not usable:
        return None, "no member that the options select has a usable reward and a completion"
    formulas = [
        f"reward {reward:g}, {show_formula(options.advantage, reward, usable, advantage)}"
        for reward, advantage in zip(rewards, advantages, strict=True)
        if reward is not None and advantage is not None
    ]
    untrained = [
        f"Member {place} {'is left out' if reward is None else 'counts in the mean, but is not trained'}: {reason}."
        for place, (row, reward) in enumerate(zip(rows, rewards, strict=True), 1)
        if (reason := judgement.verdicts[row]) is not None
    ]
    derived = {
        "name": options.advantage,
        "rewards": rewards,
        "baseline": None if options.advantage == "rloo" else fmean(usable),
        "advantages": advantages,
        "formulas": formulas,
        "counted": sum(reward is not None for reward in rewards) - len(formulas),
        "says": [*_says(options.advantage, len(rewards), usable), *untrained],
    }
    return derived, None


def _says(name: str, size: int, usable: Sequence[float]) -> list[str]:
    shown = ", ".join(f"{reward:g}" for reward in usable)
    says = [f"{len(usable)} of {size} members have a reward that counts: {shown}."]
    if name in ("grpo", "grpo_sample") and len(usable) > 1 and min(usable) < max(usable):
        kind, std = ("population", pstdev) if name == "grpo" else ("sample", stdev)
        says.append(f"Their {kind} deviation is {std(usable):.6g}; 1e-6 is added to it.")
    return says
