"""Effective rewards: which of a trajectory's rewards count, as its final reward and for each of its calls.

Invariant: of several rewards of one name and target the last that has a value counts. Only what is called a reward
becomes the final reward, by its name or by how it was given (see `model.RewardSource`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from art_otel.calls import InferenceCall
from art_otel.trajectories.model import Reward, Trajectory

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


def with_rewards(trajectory: Trajectory, *new_rewards: Reward) -> Trajectory:
    """Add rewards to a trajectory, as if they had been recorded."""
    unique = dict.fromkeys((*trajectory.rewards, *new_rewards))
    rewards = tuple(sorted(unique, key=lambda reward: reward.time_ns))
    return replace(trajectory, rewards=rewards, reward=None)


_Components: TypeAlias = dict[str, float]


class RewardComponents:
    """The rewards of each call, as a flat mapping from names to raw numbers.

    A component is what was given to the call, to its step as such, or to the whole rollout, never what was given to
    another call, an agent or a tool. Its key says which:

        correct                        of the call
        choice 1/correct               of one of its choices
        choice 0 tokens 3-7/correct    of some of a choice's tokens, the end exclusive
        step/progress                  of its step
        rollout/correct                of the rollout

    A reward of a label only is no number and no component.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        calls = {call.span_id for call in trajectory.calls}
        rollout: list[Reward] = []
        by_call: dict[str, list[Reward]] = {}
        by_step: dict[int, list[Reward]] = {}
        for reward in trajectory.rewards:
            if reward.target in calls:
                by_call.setdefault(str(reward.target), []).append(reward)
            elif reward.step is not None and reward.target_kind is None:
                by_step.setdefault(reward.step, []).append(reward)
            elif reward.target is None:
                rollout.append(reward)
        self._rollout = _components(rollout, "rollout/")
        self._by_call = {call: _components(rewards, "") for call, rewards in by_call.items()}
        self._by_step = {step: _components(rewards, "step/") for step, rewards in by_step.items() if _is_one(rewards)}

    def of(self, call: InferenceCall) -> _Components:
        """Collect the reward components of a call, its step and the rollout."""
        components = dict(self._by_call.get(call.span_id, {}))
        if call.step is not None:
            components.update(self._by_step.get(call.step, {}))
        return components | self._rollout


def _is_one(rewards: list[Reward]) -> bool:
    """Whether rewards of a step's index are of one step: agents may each number their own."""
    return len({reward.target for reward in rewards} - {None}) < 2


def _components(rewards: list[Reward], prefix: str) -> _Components:
    by_key: dict[str, list[Reward]] = {}
    for reward in rewards:
        by_key.setdefault(f"{prefix}{_part(reward)}{reward.name}", []).append(reward)
    values = ((key, aggregate(rewards_of_key)) for key, rewards_of_key in by_key.items())
    return {key: value for key, value in values if value is not None}


def _part(reward: Reward) -> str:
    if reward.token_start is not None:
        return f"choice {reward.choice or 0} tokens {reward.token_start}-{reward.token_end}/"
    return "" if reward.choice is None else f"choice {reward.choice}/"
