"""Selection: which trajectories are read and learnt from.

Invariant: every trajectory is selected, or there is one reason why not, always the first of these: duplicate,
incomplete, ended on a failed call, status, split. A reward that is missing or not finite is None.
"""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from art_otel.batches import checks
from art_otel.batches.chunks import DUPLICATE, Chunk
from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import Status, Trajectory, aggregate

Splits: TypeAlias = str | Iterable[str | None] | None
"""One split or several; None is every split, [None] the trajectories without one."""

Statuses: TypeAlias = str | Iterable[str] | None
"""One status or several; None is every status."""

RewardOf: TypeAlias = str | Callable[[Trajectory], float | None] | None
"""Which reward counts: None is the final one, a name that rewards of the whole rollout have, or a function (which
must do without messages and tokens)."""

GroupKey: TypeAlias = tuple[int | None, str]
"""The training step and the id of a group: rollouts of one task in two training steps are two groups."""

MESSAGES: Final = Wanted(prompts=False)
"""Turns with their messages: all that conversations need."""

STATUSES: Final[tuple[str, ...]] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Selection:
    """What the caller wants. Use `selection` to make one of what callers write."""

    complete_only: bool
    splits: frozenset[str | None] | None
    statuses: frozenset[str]

    def reason_against(self, trajectory: Trajectory) -> str | None:
        """Why the trajectory is left out; None when it is selected."""
        if self.complete_only and not trajectory.complete:
            return "incomplete"
        if self.complete_only and _ended_on_failure(trajectory):
            return "ended on a failed call"
        if trajectory.status not in self.statuses:
            return "status"
        if self.splits is not None and trajectory.split not in self.splits:
            return "split"
        return None


def _ended_on_failure(trajectory: Trajectory) -> bool:
    """Whether no call completed after the last that failed, as in an outage, which tells nothing of a policy."""
    failed = [call for call in trajectory.calls if call.failed]
    if not failed:
        return False
    last = max(call.start_ns if call.end_ns is None else call.end_ns for call in failed)
    return not any(call.end_ns is not None and call.end_ns > last for call in trajectory.calls if not call.failed)


def selection(*, complete_only: bool, splits: Splits, statuses: Statuses) -> Selection:
    """Make a Selection. Raises UsageError for a status that does not exist, and for what is no name of a split."""
    checks.one_of("complete_only", complete_only, (True, False))
    wanted = checks.names("statuses", STATUSES if statuses is None else statuses, '("ok", "error")')
    if unknown := wanted - set(STATUSES):
        raise UsageError(
            f"statuses: {sorted(unknown, key=repr)} do not exist; choose from {', '.join(STATUSES)}, or None for any"
        )
    chosen = None if splits is None else checks.names("splits", splits, '"train", or None for any')
    return Selection(complete_only, chosen, frozenset(status for status in wanted if status is not None))


def check_reward(reward: object) -> None:
    """Raise UsageError for what is no RewardOf."""
    if reward is not None and not isinstance(reward, str) and not callable(reward):
        raise UsageError(f"reward={reward!r:.200}: give a name, a function of a trajectory, or None for the final one")


def read_numbered(
    chunks: Iterable[Chunk], wanted: Wanted, numbers: Container[int] | None = None
) -> Iterator[tuple[int, Trajectory]]:
    """The trajectories of these numbers (None: all that are no duplicates), with them. Nothing else is read."""
    for chunk in chunks:
        unique = (number for number in chunk.numbers if not chunk.is_duplicate(number))
        found = [number for number in unique if numbers is None or number in numbers]
        if found:
            yield from zip(found, chunk.read(wanted, found), strict=True)


def count_duplicates(chunks: Iterable[Chunk]) -> Counter[str]:
    """How many trajectories `read_numbered` leaves out, as a report has it."""
    return +Counter({DUPLICATE: sum(sum(chunk.duplicates) for chunk in chunks)})


def reward_of(trajectory: Trajectory, reward: RewardOf) -> float | None:
    """The trajectory's reward, what those given under that name come to; None when unknown or not finite.

    Raises UsageError for a function that gives something else.
    """
    if reward is None:
        value = trajectory.reward
    elif isinstance(reward, str):
        value = aggregate(
            one for one in trajectory.rewards if one.name == reward and one.target is None and one.step is None
        )
    else:
        value = checks.reward(f"reward: of rollout {trajectory.rollout_id!r} it", reward(trajectory))
    return value if value is not None and math.isfinite(value) else None


def group_of(trajectory: Trajectory) -> GroupKey | None:
    """The group whose members the trajectory is compared with; None where it has none."""
    return None if trajectory.group_id is None else (trajectory.training_step, trajectory.group_id)
