"""OpenTelemetry in, training data out.

Names are loaded when first used, so that importing art_otel costs an app nothing it does not need. Where the variable
ART_OTEL_ENABLED is set, importing it traces the process.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from art_otel.store import read_trajectories, write_trajectories
    from art_otel.tracing.context import in_context
    from art_otel.tracing.gather import gather_trajectory
    from art_otel.tracing.gather_many import gather_trajectories, gather_trajectory_groups
    from art_otel.tracing.rewards import reward
    from art_otel.tracing.rollout import rollout
    from art_otel.tracing.running import get_current_trajectory
    from art_otel.tracing.setup import configure
    from art_otel.tracing.step import step
    from art_otel.trajectories import RolloutTrace, Trajectory, TrajectoryGroup, histories, rollout_traces

__all__ = [
    "RolloutTrace",
    "Trajectory",
    "TrajectoryGroup",
    "configure",
    "gather_trajectories",
    "gather_trajectory",
    "gather_trajectory_groups",
    "get_current_trajectory",
    "histories",
    "in_context",
    "read_trajectories",
    "reward",
    "rollout",
    "rollout_traces",
    "step",
    "write_trajectories",
]

_HOMES: Final = {
    "RolloutTrace": "art_otel.trajectories",
    "Trajectory": "art_otel.trajectories",
    "TrajectoryGroup": "art_otel.trajectories",
    "configure": "art_otel.tracing.setup",
    "gather_trajectories": "art_otel.tracing.gather_many",
    "gather_trajectory": "art_otel.tracing.gather",
    "gather_trajectory_groups": "art_otel.tracing.gather_many",
    "get_current_trajectory": "art_otel.tracing.running",
    "histories": "art_otel.trajectories",
    "in_context": "art_otel.tracing.context",
    "read_trajectories": "art_otel.store",
    "reward": "art_otel.tracing.rewards",
    "rollout": "art_otel.tracing.rollout",
    "rollout_traces": "art_otel.trajectories",
    "step": "art_otel.tracing.step",
    "write_trajectories": "art_otel.store",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'art_otel' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if os.environ.get("ART_OTEL_ENABLED", "0") != "0":
    import_module("art_otel.tracing.autoload").start()
