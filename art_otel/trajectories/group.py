"""TrajectoryGroup: the trajectories of one task.

Invariant: it is a sequence of its trajectories in the order in which they were given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from art_otel.trajectories.model import Trajectory


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TrajectoryGroup:
    """Trajectories of one task, compared with each other by group-relative advantages.

    `metrics` are about the group as a whole; `art_otel.RunLog` writes them. `len(group)` and `for trajectory in group`
    are those of its trajectories.
    """

    group_id: str
    trajectories: Sequence[Trajectory]
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def __len__(self) -> int:
        return len(self.trajectories)

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)

    def __repr__(self) -> str:
        from art_otel.trajectories.views.summary import describe_group  # noqa: PLC0415 # views are of groups

        return f"<TrajectoryGroup {describe_group(self)}>"

    def _repr_html_(self) -> str:
        from art_otel.trajectories.views.summary import group_html  # noqa: PLC0415 # as above

        return group_html(self)
