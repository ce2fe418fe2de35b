"""Rewards: the reward of a whole rollout, the numbers that can be trained with, and rewards of spans of tokens.

    style 1.0 for tokens 0-2, format 0.5 for tokens 1-3, weights 1:      token rewards 1.0 1.5 0.5

Invariant: a missing reward is None, never 0. A usable reward is below 1e37, so that advantages, which may be twice as
large, fit into float32. A token has the weighted sum of all rewards of spans that contain it; of two rewards of one
name for one span the last counts. Token rewards are in no turn's reward and no advantage. Their positions are those of
the server's tokens, so tokens that a tokenizer made have no such rewards.
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
"""The reward of a whole rollout that counts: None (the final one), a name, or a function of a trajectory, which has no
messages and tokens there."""

LARGEST: Final = 1e37
"""The bound of usable rewards: their advantages must fit into float32."""

Unrewarded: TypeAlias = Literal["no reward", "unusable reward"]
UNUSABLE: Final = "unusable reward"

Weights: TypeAlias = Mapping[str, float]
"""Weights by the names of rewards."""

TokenRewards: TypeAlias = Mapping[int, NDArray[np.float32] | None]
"""The token rewards of turns, by position; shape (tokens sampled,), (0,) without a server's ids. None: unusable sums.

Turns without token rewards are missing.
"""

_CompletionKey: TypeAlias = tuple[str | None, int]  # the span id of its call, and its place among the choices
RewardedPart: TypeAlias = tuple[int, int, str]  # first token, last token + 1, name


class _WeightOption(msgspec.Struct, frozen=True):
    weights: Annotated[dict[Annotated[str, msgspec.Meta(min_length=1)], float], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.weights.values())):
            raise ValueError(f"{self.weights!r:.200}: give a finite weight for each name of a reward")


def check_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Check that there is at least one name and that all weights are finite. Raises UsageError."""
    return validate(_WeightOption, {"weights": weights}).weights


def check_reward(reward: object) -> None:
    """Raise UsageError unless the value is a name, a function or None."""
    if reward is not None and not isinstance(reward, str) and not callable(reward):
        raise UsageError(f"reward={reward!r:.200}: give a name, a function of a trajectory, or None for the final one")


def reward_of(trajectory: Trajectory, reward: RewardOf) -> float | None:
    """The trajectory's reward of this name or function; None if it is unknown or not finite.

    Raises UsageError if a function returns neither a number nor None.
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
    """The result of a user's function as a reward: a float or None; a too large int is infinite. Raises UsageError."""
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
    """Why the trajectory has no final reward to train with; None if it has one."""
    if trajectory.reward is None:
        return "no reward"
    return None if abs(trajectory.reward) < LARGEST else UNUSABLE


def weights_of(rewards: str | Weights | None) -> Weights | None:
    """The weights of the option `token_rewards`: 1.0 for a single name. Raises UsageError for invalid weights."""
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
    """Give each reward of a span of tokens: its completion, its span and name, its weighted value."""
    for reward in trajectory.rewards:
        part = _part(reward)
        if part is not None and reward.value is not None and reward.name in weights:
            yield (reward.target, reward.choice or 0), part, reward.value * weights[reward.name]


def _part(reward: Reward) -> RewardedPart | None:
    start, end = reward.token_start, reward.token_end
    return None if start is None or end is None or not 0 <= start < end else (start, end, reward.name)


def sum_parts(values: Mapping[RewardedPart, float], size: int) -> NDArray[np.float32] | None:
    """Sum rewards of ranges of a completion's tokens; None if a sum is unusable. Shape: (tokens,)."""
    total = np.zeros(size)
    with np.errstate(invalid="ignore", over="ignore"):  # sums of infinities are checked below
        for (start, end, _), value in values.items():
            total[start:end] += value
    return total.astype(np.float32) if (np.abs(total) < LARGEST).all() else None
