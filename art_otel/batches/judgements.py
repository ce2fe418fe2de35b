"""Judgements: what was said of a trajectory beside others, as `prefer` records it.

Invariant: judged is the whole rollout, or the completion that its main conversation ends with: then what is compared
ends with what was judged. A judgement of any other call is none of the conversation's.
"""

import math

from art_otel.batches.conversation import Conversation
from art_otel.batches.pairing import Judgement
from art_otel.batches.selection import RewardOf
from art_otel.trajectories import Reward, Trajectory, effective_rewards, final_reward, primary_rewards


def is_judged(trajectory: Trajectory) -> bool:
    """Whether any of it was judged beside another."""
    return any(reward.comparison is not None for reward in trajectory.rewards)


def judgements(trajectory: Trajectory, talk: Conversation, reward: RewardOf) -> tuple[Judgement, ...]:
    """The judgements that make the reward of its main conversation; none where something else makes it."""
    given = [one for one in trajectory.rewards if _judges(one, trajectory, talk)]
    if isinstance(reward, str):
        given = [one for one in given if one.name == reward]
    elif reward is None and trajectory.reward in (None, final_reward(trajectory.rewards)):
        given = primary_rewards(given)
    else:
        given = []
    found = [(one.comparison, one.value, one.time_ns) for one in effective_rewards(given)]  # of all, or of none
    return tuple(
        Judgement(comparison, value, time_ns)
        for comparison, value, time_ns in found
        if comparison is not None and value is not None and math.isfinite(value)
    )


def _judges(reward: Reward, trajectory: Trajectory, talk: Conversation) -> bool:
    if reward.target is None:
        return reward.step is None
    last = trajectory.turns[talk.turns[-1]]
    return (
        reward.comparison is not None
        and reward.token_start is None
        and reward.target == trajectory.calls[last.call].span_id
        and reward.choice in (None, last.choice)
    )
