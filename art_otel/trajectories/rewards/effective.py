"""Standing: which of the rewards of one name for one thing count, and what they come to.

Invariant: the last one counts. One of a comparison corrects only what the same comparison said before, so where the
last is of a comparison, the last of each comparison counts since something else was given. Their mean is the aggregate.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from art_otel.trajectories.model import Reward

REWARD_NAME: Final = "reward"
"""The name of a reward that was given without one."""


def effective_rewards(rewards: Iterable[Reward]) -> tuple[Reward, ...]:
    """Those that count, of rewards of one name for one thing in the order they were given."""
    found: dict[str | None, Reward] = {}
    for reward in rewards:
        if reward.value is None:
            continue
        if reward.comparison is None:
            found.clear()
        else:
            found.pop(None, None)
        found[reward.comparison] = reward
    return tuple(found.values())


def aggregate(rewards: Iterable[Reward]) -> float | None:
    """What rewards of one name for one thing come to: wins minus losses a comparison where two were compared."""
    values = [reward.value for reward in effective_rewards(rewards) if reward.value is not None]
    return sum(values) / len(values) if values else None


def primary_rewards(rewards: Iterable[Reward]) -> Sequence[Reward]:
    """Those under the name `reward`; where that was never used but one other was, those under that one; else none.

    Several names without `reward` say nothing about which is the final one.
    """
    valued = [reward for reward in rewards if reward.value is not None]
    named = [reward for reward in valued if reward.name == REWARD_NAME]
    return named if named or len({reward.name for reward in valued}) > 1 else valued


def final_reward(rewards: Iterable[Reward]) -> float | None:
    """What the whole rollout is worth, by the rewards of its final name."""
    return aggregate(primary_rewards(reward for reward in rewards if reward.target is None and reward.step is None))
