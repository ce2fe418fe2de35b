"""OpenTelemetry in, training data out.

Names are loaded when first used, so that importing art_otel costs an app nothing it does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from art_otel.store import read_trajectories, write_trajectories
    from art_otel.trajectories import RolloutTrace, Trajectory, TrajectoryGroup, histories, rollout_traces

__all__ = [
    "RolloutTrace",
    "Trajectory",
    "TrajectoryGroup",
    "histories",
    "read_trajectories",
    "rollout_traces",
    "write_trajectories",
]

_HOMES: Final = {
    "RolloutTrace": "art_otel.trajectories",
    "Trajectory": "art_otel.trajectories",
    "TrajectoryGroup": "art_otel.trajectories",
    "histories": "art_otel.trajectories",
    "read_trajectories": "art_otel.store",
    "rollout_traces": "art_otel.trajectories",
    "write_trajectories": "art_otel.store",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'art_otel' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
