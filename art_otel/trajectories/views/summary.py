"""Summary: a trajectory or a group in a line, and as a notebook shows it.

Invariant: the size of a line does not depend on how much was recorded.
"""

from collections.abc import Iterator

from art_otel.notebook import page_html
from art_otel.trajectories.group import TrajectoryGroup
from art_otel.trajectories.model import Trajectory


def describe_trajectory(trajectory: Trajectory) -> str:
    """The trajectory in a line: name, status, reward, size, what is missing, and its id."""
    return " ".join(_parts(trajectory))


def describe_group(group: TrajectoryGroup) -> str:
    """Describe the group in a line: its id, its size, and the range of its rewards."""
    rewards = [one.reward for one in group if one.reward is not None]
    reward_range = f", rewards {min(rewards):g} to {max(rewards):g}" if rewards else ", no rewards"
    return f"{group.group_id!r:.80}: {len(group)} trajectories{reward_range}"


def trajectory_html(trajectory: Trajectory) -> str:
    """The line, and the viewer's page of the trajectory."""
    return page_html(describe_trajectory(trajectory), [trajectory])


def group_html(group: TrajectoryGroup) -> str:
    """The line, and the viewer's page of its trajectories."""
    return page_html(describe_group(group), group.trajectories)


def _parts(trajectory: Trajectory) -> Iterator[str]:
    yield f"{trajectory.name!r:.80}"
    yield trajectory.status
    if trajectory.reward is not None:
        yield f"reward={trajectory.reward:g}"
    yield f"calls={len(trajectory.calls)}"
    if trajectory.tool_calls:
        yield f"tool_calls={len(trajectory.tool_calls)}"
    if trajectory.children:
        yield f"children={len(trajectory.children)}"
    if trajectory.group_id is not None:
        yield f"group={trajectory.group_id!r:.40}"
    if not trajectory.complete:
        yield f"incomplete ({', '.join(trajectory.incomplete_reasons)})"
    yield f"id={trajectory.rollout_id:.40}"
