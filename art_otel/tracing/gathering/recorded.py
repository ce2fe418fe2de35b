"""Recorded: the trajectory of a gathered rollout, with those of the rollouts that began inside it.

Invariant: all are built at once from what the recorder keeps, so each of them is what a dump gives.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from art_otel.tracing.api.context import TakenRollout, all_running
from art_otel.tracing.api.recorder import Recorder
from art_otel.trajectories import Trajectory
from art_otel.trajectories.accounting import MISSING_ROOT

if TYPE_CHECKING:
    from art_otel.tracing.api.running import RunningTrajectory


def recorded_trajectory(taken: TakenRollout, recorder: Recorder) -> Trajectory:
    """Build the trajectory of a rollout, with its children."""
    ids = [running.rollout_id for running in all_running([taken])]
    return _with_children(taken, recorder.trajectories(ids))


def _with_children(taken: TakenRollout, trajectories: Mapping[str, Trajectory]) -> Trajectory:
    trajectory = trajectories.get(taken.running.rollout_id) or _unrecorded(taken.running)
    children = tuple(_with_children(nested, trajectories) for nested in list(taken.nested.rollouts))
    return replace(trajectory, children=children) if children else trajectory


def _unrecorded(running: "RunningTrajectory") -> Trajectory:
    """Build an unfinished trajectory for a rollout whose spans the recorder no longer holds."""
    return Trajectory(
        rollout_id=running.rollout_id,
        trace_id=f"{running.span.get_span_context().trace_id:032x}",
        name=running.name,
        status="unfinished",
        incomplete_reasons={MISSING_ROOT: 1},
    )
