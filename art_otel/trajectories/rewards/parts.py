"""RewardParts: rewards of a choice or of some tokens of a call.

Invariant: a reward names its choice by the position in the call, and a part that the call has.
"""

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import BadReward
from art_otel.trajectories.model import Reward


def fit_part(reward: Reward, call: InferenceCall | None) -> Reward | BadReward:
    """The reward, with the choice that it names by its index as a position; bad where the call has no such part."""
    if not is_of_part(reward):
        return reward
    if call is None:
        return BadReward(name=reward.name, detail="judges a choice or tokens of what is no call")
    if call.choices is None:
        return reward
    index = reward.choice or 0
    position = next((place for place, choice in enumerate(call.choices) if choice.index == index), None)
    if position is None:
        return BadReward(name=reward.name, detail=f"judges choice {index} of a call that has no such choice")
    sampled = call.choices[position].token_ids
    if reward.token_end is not None and sampled is not None and reward.token_end > len(sampled):
        detail = f"judges tokens up to {reward.token_end} of a completion of {len(sampled)} tokens"
        return BadReward(name=reward.name, detail=detail)
    return reward if position == index else msgspec.structs.replace(reward, choice=position)


def is_of_part(reward: Reward) -> bool:
    """Whether the reward judges only a part of a call."""
    return reward.choice is not None or reward.token_end is not None
