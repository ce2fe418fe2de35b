"""Groups: trajectories that come one by one are given in groups, wherever they come from.

Invariant: a group is the trajectories of one `group_key`; one without a group is a group of its own. Each
is given once: when it has its size, when it has waited long enough, or when nothing more comes. Of two revisions of a
rollout that waits the later is given; one whose group was given is left out, and a log says so.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from art_otel.errors import UsageError
from art_otel.trajectories import GroupKey, Trajectory, TrajectoryGroup

logger = logging.getLogger(__name__)

_A = TypeVar("_A")

_GroupKey: TypeAlias = GroupKey | str

_MAX_WAITING: Final = 1024
"""Trajectories that wait for others. Beyond, the group that waits longest is given as it is."""
_MAX_REMEMBERED: Final = 10_000
"""Groups that were given, to know what comes too late for them."""


class _Waiting(NamedTuple, Generic[_A]):
    trajectory: Trajectory
    acknowledgment: _A


class ReadyGroup(NamedTuple, Generic[_A]):
    """A group, and what acknowledges its trajectories."""

    group: TrajectoryGroup
    acknowledgments: list[_A]


class PartialGroups(Generic[_A]):
    """Collects trajectories into groups of `size`, for at most `timeout` seconds.

    Each has what acknowledges it to who sent it, None where nobody waits for that.
    """

    def __init__(self, *, size: int, timeout: float | None) -> None:
        if size < 1:
            raise UsageError(f"groups(size={size}): give how many trajectories a group has, 1 or more")
        self._size = size
        self._timeout = timeout
        self._groups: OrderedDict[_GroupKey, dict[tuple[str, int, str], _Waiting[_A]]] = OrderedDict()
        self._began: dict[_GroupKey, float] = {}
        self._given: OrderedDict[_GroupKey, None] = OrderedDict()

    @property
    def trajectories(self) -> list[Trajectory]:
        """All trajectories that wait."""
        return [one.trajectory for group in self._groups.values() for one in group.values()]

    @property
    def acknowledgments(self) -> list[_A]:
        """The acknowledgments of all that wait."""
        return [one.acknowledgment for group in self._groups.values() for one in group.values()]

    def add(self, trajectory: Trajectory, acknowledgment: _A) -> _A | None:
        """Add a trajectory. Gives what acknowledges one that is in no group then: it, or its earlier revision."""
        key = trajectory.group_key or trajectory.rollout_id
        if key in self._given and trajectory.revision:
            logger.warning("art-otel: %s has more, but its group was given", trajectory.rollout_id)
            return acknowledgment
        group = self._groups.setdefault(key, {})
        self._began.setdefault(key, time.monotonic())
        earlier = group.get(trajectory.order)
        group[trajectory.order] = _Waiting(trajectory, acknowledgment)
        return None if earlier is None else earlier.acknowledgment

    def take(self, *, whole_only: bool = True) -> ReadyGroup[_A] | None:
        """Take a group that is full or has waited long enough, with `whole_only` off any; None where there is none."""
        key = next(self._ready() if whole_only else iter(self._groups), None)
        if key is None:
            return None
        del self._began[key]
        self._given[key] = None
        if len(self._given) > _MAX_REMEMBERED:
            self._given.popitem(last=False)
        waiting = self._groups.pop(key).values()
        group = TrajectoryGroup(group_id=_name(key), trajectories=[one.trajectory for one in waiting])
        return ReadyGroup(group, [one.acknowledgment for one in waiting])

    def next_timeout(self) -> float:
        """Seconds until the first group has waited long enough."""
        if self._timeout is None or not self._began:
            return float("inf")
        return max(0.0, min(self._began.values()) + self._timeout - time.monotonic())

    def _ready(self) -> Iterator[_GroupKey]:
        now = time.monotonic()
        for key, group in self._groups.items():
            is_late = self._timeout is not None and now - self._began[key] >= self._timeout
            is_alone = all(one.trajectory.group_id is None for one in group.values())
            if len(group) >= self._size or is_alone or is_late:
                yield key
        if sum(map(len, self._groups.values())) > _MAX_WAITING:
            key = next(iter(self._groups))
            logger.warning("art-otel: group %r is given with %d rollouts", _name(key), len(self._groups[key]))
            yield key


def _name(key: _GroupKey) -> str:
    """The id of the group, of a rollout without one the rollout's."""
    return key if isinstance(key, str) else key.group_id


async def grouped(
    trajectories: AsyncIterator[Trajectory], partial: PartialGroups[None]
) -> AsyncGenerator[TrajectoryGroup]:
    """Give the groups of trajectories as they come. What still waits when this is closed stays in `partial`."""
    coming: asyncio.Task[Trajectory | None] | None = None
    try:
        while True:
            while (ready := partial.take()) is not None:
                yield ready.group
            coming = coming or asyncio.create_task(_next(trajectories))
            timeout = partial.next_timeout()
            if not (await asyncio.wait((coming,), timeout=None if timeout == float("inf") else timeout))[0]:
                continue
            trajectory, coming = coming.result(), None
            if trajectory is None:
                break
            partial.add(trajectory, None)
        while (ready := partial.take(whole_only=False)) is not None:
            yield ready.group
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError):
                if (trajectory := await coming) is not None:  # it had come already
                    partial.add(trajectory, None)


async def _next(trajectories: AsyncIterator[Trajectory]) -> Trajectory | None:
    return await anext(trajectories, None)
