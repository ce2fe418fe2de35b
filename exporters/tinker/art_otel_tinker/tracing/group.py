"""Group: the episodes that one builder runs together.

Invariant: what the group made of a trajectory goes to the episode that the policy's tokens in it were given to, the
very objects, wherever it stands in the list. Whatever was not graded ends as failed.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from art_otel_tinker.tracing.about import About
from art_otel_tinker.tracing.episode import Episode, EpisodeError
from art_otel_tinker.tracing.internal_errors import handle_tinker_errors


@dataclass(kw_only=True, slots=True)
class Group:
    """One run of `builder`. `is_graded`: the next environments that the builder makes are another group's."""

    builder: object
    about: About
    episodes: list[Episode] = field(default_factory=list[Episode])
    is_graded: bool = False

    @staticmethod
    def of(builder: object, about: About) -> "Group":
        """A new group, with an id of its own from the operating system where none was given."""
        group_id = os.urandom(8).hex() if about.group_id is None else about.group_id
        return Group(builder=builder, about=replace(about, group_id=group_id))

    def grade(
        self,
        trajectories: Sequence[Any],
        fallbacks: Sequence[Episode | None],
        rewarded: Sequence[tuple[float, Mapping[str, float]]],
    ) -> None:
        """Give each episode its logprobs, reward and metrics, and end it.

        `fallbacks` are the episodes of the environments at the same positions, for trajectories whose tokens name none.
        """
        self.is_graded = True
        owners = {id(action): episode for episode in self.episodes for action in episode.actions}
        for trajectory, fallback, (reward, metrics) in zip(trajectories, fallbacks, rewarded, strict=True):
            with handle_tinker_errors:
                acted = (owners.get(id(transition.ac.tokens)) for transition in trajectory.transitions)
                episode = next((owner for owner in acted if owner is not None), fallback)
                if episode is not None:
                    episode.grade(trajectory.transitions, trajectory.stop_reason, reward, metrics)

    def fail(self, error: BaseException) -> None:
        """End what is left."""
        self.is_graded = True
        for episode in self.episodes:
            with handle_tinker_errors:
                episode.fail(error)

    def end(self) -> None:
        """The builder is done with it."""
        self.fail(EpisodeError("the group was over before this episode was rewarded"))
