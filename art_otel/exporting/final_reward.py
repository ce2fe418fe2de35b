"""FinalReward: whether a trajectory has one that a trainer can use.

Invariant: the same rewards are usable everywhere, those that `art_otel.batches` trains with.
"""

from typing import Final, Literal, TypeAlias

from art_otel.batches.plan import LARGEST
from art_otel.trajectories import Trajectory

Unrewarded: TypeAlias = Literal["no reward", "unusable reward"]

NULL_REWARD: Final = "unusable rewards written as null"
"""What JSON and readers of float32 do not have: NaN, infinities, and what is not below 1e37."""


def unrewarded(trajectory: Trajectory) -> Unrewarded | None:
    """Why the trajectory has no final reward to train with; None where it has one."""
    if trajectory.reward is None:
        return "no reward"
    return None if abs(trajectory.reward) < LARGEST else "unusable reward"
