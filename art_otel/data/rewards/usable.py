"""Rewards: which reward of a whole rollout counts, and which numbers can be trained with.

Invariant: a reward that is missing or not finite is None, never 0. A usable reward is below 1e37, so that advantages,
which may be twice as large, are float32.
"""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal, SupportsFloat, TypeAlias, cast

import msgspec

from art_otel.attributes import REWARD_NAME
from art_otel.data.options import validate
from art_otel.errors import UsageError
from art_otel.trajectories import Trajectory, aggregate

RewardOf: TypeAlias = str | Callable[[Trajectory], float | None] | None
"""Which reward of a whole rollout counts: None is the final one, a name, or a function (called without messages and
tokens)."""

LARGEST: Final = 1e37
"""Usable rewards are smaller than this."""

Unrewarded: TypeAlias = Literal["no reward", "unusable reward"]
UNUSABLE: Final = "unusable reward"


class _Weights(msgspec.Struct, frozen=True):
    weights: Annotated[dict[Annotated[str, msgspec.Meta(min_length=1)], float], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.weights.values())):
            raise ValueError(f"{self.weights!r:.200}: give a finite weight for each name of a reward")


def check_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """A finite weight for each name of a reward, one name or more. Raises UsageError."""
    return validate(_Weights, {"weights": weights}).weights


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
        value = as_reward(f"reward: of rollout {trajectory.rollout_id!r} it", reward(trajectory))
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
    raise UsageError(f"{whose} gave {value!r:.200} as a reward; it has to be a number, or None where there is none")


def unrewarded(trajectory: Trajectory) -> Unrewarded | None:
    """Why the trajectory has no final reward to train with; None where it has one."""
    if trajectory.reward is None:
        return "no reward"
    return None if abs(trajectory.reward) < LARGEST else UNUSABLE


def names_without_final(trajectory: Trajectory) -> tuple[str, ...]:
    """The names of the rollout's rewards where none is the final one, because none is called a reward."""
    if trajectory.reward is not None:
        return ()
    whole = (one for one in trajectory.rewards if one.target is None and one.step is None and one.value is not None)
    names = {one.name for one in whole}
    return () if REWARD_NAME in names else tuple(sorted(names))
