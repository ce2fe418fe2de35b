"""Rewards: which reward of a whole rollout counts, which numbers can be trained with, and rewards of tokens.

Invariant: a reward that is missing or not finite is None, never 0. A usable reward is below 1e37, so that advantages,
which may be twice as large, are float32. A token has the weighted sum of the rewards of the spans of tokens that it
lies in; of several of one name for one span the last counts. These are in no turn's reward and in no advantage, and
they count the server's tokens, so tokens that were made here have none.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final, Literal, SupportsFloat, TypeAlias, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from art_otel.data.options import validate
from art_otel.errors import UsageError
from art_otel.trajectories import Reward, Trajectory, aggregate

RewardOf: TypeAlias = str | Callable[[Trajectory], float | None] | None
"""Which reward of a whole rollout counts: None is the final one, a name, or a function (called without messages and
tokens)."""

LARGEST: Final = 1e37
"""Usable rewards are smaller than this."""

Unrewarded: TypeAlias = Literal["no reward", "unusable reward"]
UNUSABLE: Final = "unusable reward"

Weights: TypeAlias = Mapping[str, float]
"""By the name of a reward."""

TokenRewards: TypeAlias = Mapping[int, NDArray[np.float32] | None]
"""By the position of a turn, shape (tokens sampled,); None where they are no usable numbers. Others were given none.

Where the server gave no ids there is no token to give them to, and the shape is (0,).
"""

_CompletionKey: TypeAlias = tuple[str | None, int]  # the span id of its call, and its place among the choices
RewardedPart: TypeAlias = tuple[int, int, str]  # first token, last token + 1, name


class _WeightOption(msgspec.Struct, frozen=True):
    weights: Annotated[dict[Annotated[str, msgspec.Meta(min_length=1)], float], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.weights.values())):
            raise ValueError(f"{self.weights!r:.200}: give a finite weight for each name of a reward")


def check_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """A finite weight for each name of a reward, one name or more. Raises UsageError."""
    return validate(_WeightOption, {"weights": weights}).weights


def check_reward(reward: object) -> None:
    """Raise UsageError for what is no RewardOf."""
    if reward is not None and not isinstance(reward, str) and not callable(reward):
        raise UsageError(f"reward={reward!r:.200}: give a name, a function of a trajectory, or None for the final one")


def reward_of(trajectory: Trajectory, reward: RewardOf) -> float | None:
    """The trajectory's reward of this name or function; None when unknown or not finite.

    Raises UsageError for a function that gives something else.
    """
    if reward is None:
        value = trajectory.reward
    elif isinstance(reward, str):
        value = aggregate(
            one for one in trajectory.rewards if one.name == reward and one.target is None and one.step is None
        )
    else:
        value = as_reward(f"reward: for rollout {trajectory.rollout_id!r}, it", reward(trajectory))
    return value if value is not None and math.isfinite(value) else None


def as_reward(whose: str, value: object) -> float | None:
    """What a user's function gave as a reward; an int beyond all floats is infinite. Raises UsageError."""
    if value is None or type(value) is float:
        return value
    try:
        if hasattr(value, "__float__"):
            return float(cast(SupportsFloat, value))
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        pass
    raise UsageError(f"{whose} returned {value!r:.200} as a reward; it must be a number, or None if there is no reward")


def unrewarded(trajectory: Trajectory) -> Unrewarded | None:
    """Why the trajectory has no final reward to train with; None where it has one."""
    if trajectory.reward is None:
        return "no reward"
    return None if abs(trajectory.reward) < LARGEST else UNUSABLE


def weights_of(rewards: str | Weights | None) -> Weights | None:
    """The weights that a user means. Raises UsageError for none and for one that is not finite."""
    if rewards is None:
        return None
    return check_weights({rewards: 1.0} if isinstance(rewards, str) else rewards)


def token_rewards(trajectory: Trajectory, weights: Weights) -> TokenRewards:
    """Sum the weighted token rewards of each completion that has some."""
    parts: dict[_CompletionKey, dict[RewardedPart, float]] = {}
    for completion, part, value in _weighted_parts(trajectory, weights):
        parts.setdefault(completion, {})[part] = value
    by_turn: dict[int, NDArray[np.float32] | None] = {}
    for position, turn in enumerate(trajectory.turns) if parts else ():
        of_completion = parts.get((trajectory.calls[turn.call].span_id, turn.choice))
        if of_completion is not None:
            by_turn[position] = sum_parts(of_completion, 0 if turn.token_ids is None else len(turn.token_ids))
    return by_turn


def _weighted_parts(trajectory: Trajectory, weights: Weights) -> Iterator[tuple[_CompletionKey, RewardedPart, float]]:
    """Give each reward of a span of tokens, weighted: its completion, its span and name, its value."""
    for reward in trajectory.rewards:
        part = _part(reward)
        if part is not None and reward.value is not None and reward.name in weights:
            yield (reward.target, reward.choice or 0), part, reward.value * weights[reward.name]


def _part(reward: Reward) -> RewardedPart | None:
    start, end = reward.token_start, reward.token_end
    return None if start is None or end is None or not 0 <= start < end else (start, end, reward.name)


def sum_parts(values: Mapping[RewardedPart, float], size: int) -> NDArray[np.float32] | None:
    """Sum rewards of ranges of a completion's tokens; None where they are no usable numbers. Shape: (tokens,)."""
    total = np.zeros(size)
    with np.errstate(invalid="ignore", over="ignore"):  # what comes of infinities is found below
        for (start, end, _), value in values.items():
            total[start:end] += value
    return total.astype(np.float32) if (np.abs(total) < LARGEST).all() else None
