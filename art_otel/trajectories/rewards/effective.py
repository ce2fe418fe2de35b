"""Effective rewards: which rewards of one name and target count, and their aggregate.

Invariant: the last one counts. A reward of a comparison replaces only the earlier one of the same comparison: when the
last reward is of a comparison, the last of each comparison since the last other reward counts. The aggregate is their
mean.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from art_otel.trajectories.model import Reward

REWARD_NAME: Final = "reward"
"""The name of a reward that was given without one."""


def effective_rewards(rewards: Iterable[Reward]) -> tuple[Reward, ...]:
    """The rewards that count, given all rewards of one name and target in time order."""
    latest: dict[str | None, Reward] = {}
    for reward in rewards:
        if reward.value is None:
            continue
        if reward.comparison is None:
            latest.clear()
        else:
            latest.pop(None, None)
        latest[reward.comparison] = reward
    return tuple(latest.values())


def aggregate(rewards: Iterable[Reward]) -> float | None:
    """What rewards of one name and target aggregate to; of comparisons of two: (wins - losses) / comparisons."""
    values = [reward.value for reward in effective_rewards(rewards) if reward.value is not None]
    return sum(values) / len(values) if values else None


def primary_rewards(rewards: Iterable[Reward]) -> Sequence[Reward]:
    """The rewards named `reward`; without any, those of the only other name; else none.

    Several names without `reward` say nothing about which is the final one.
    """
    valued = [reward for reward in rewards if reward.value is not None]
    named = [reward for reward in valued if reward.name == REWARD_NAME]
    return named if named or len({reward.name for reward in valued}) > 1 else valued


def final_reward(rewards: Iterable[Reward]) -> float | None:
    """The aggregate of the whole rollout's primary rewards."""
    return aggregate(primary_rewards(reward for reward in rewards if reward.target is None and reward.step is None))
