"""Group names: one text for each group, for trainers whose files name a group by a text.

Invariant: members of one group have the same name, whatever else is in the file; two groups have different names.
"""

from art_otel.trajectories import GroupKey, Trajectory


def group_name(key: GroupKey) -> str:
    """The group id, with the training step and the gathering if they are known: `task-7 of step 2`."""
    step = "" if key.training_step is None else f" of step {key.training_step}"
    gathering = "" if key.gathering is None else f" of gathering {key.gathering}"
    return f"{key.group_id}{step}{gathering}"


def rollout_name(trajectory: Trajectory) -> str:
    """A name for a rollout without a group, which no other rollout has: `rollout r attempt 1 of trace 4bf9…`."""
    attempt = f" attempt {trajectory.attempt}" if trajectory.attempt else ""
    return f"rollout {trajectory.rollout_id}{attempt} of trace {trajectory.trace_id}"
