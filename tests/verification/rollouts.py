"""Rollouts of one call, as verification reads them."""

from msgspec import structs

from art_otel.calls import Message
from art_otel.trajectories import Trajectory
from tests.trajectories.calls import call, choice, trajectory_of


def rollout_of(message: Message, ids: list[int]) -> Trajectory:
    """A rollout whose only call gave this message with these ids."""
    sampled = structs.replace(choice(None, ids), message=message, finish_reason="stop")
    return trajectory_of([call(1, "?", [1, 2], sampled)])
