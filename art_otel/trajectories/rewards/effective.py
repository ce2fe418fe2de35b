"""Effective rewards: which rewards of one name and target count, and which of them is the final one.

Invariant: of several rewards of one thing the last that has a value counts. Only what is called a reward becomes the
final reward, by its name or by how it was given (see `model.RewardSource`).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from art_otel.trajectories.model import Reward

REWARD_NAME: Final = "reward"
"""The name of a reward that was given without one."""


def aggregate(rewards: Iterable[Reward]) -> float | None:
    """What rewards of one name and target, in time order, come to; None where none has a value."""
    latest = None
    for reward in rewards:
        latest = latest if reward.value is None else reward.value
    return latest


def primary_rewards(rewards: Iterable[Reward]) -> Sequence[Reward]:
    """The rewards named `reward`; without any, those that were given as a reward, where they have one name only.

    An evaluation that has another name is not meant as the reward: of a `hallucination` score more is worse.
    """
    valued = [reward for reward in rewards if reward.value is not None]
    named = [reward for reward in valued if reward.name == REWARD_NAME]
    given = [reward for reward in valued if reward.source != "evaluation"]
    return named or (given if len({reward.name for reward in given}) == 1 else [])


def final_reward(rewards: Iterable[Reward]) -> float | None:
    """The aggregate of the whole rollout's primary rewards."""
    return aggregate(primary_rewards(reward for reward in rewards if reward.target is None and reward.step is None))
