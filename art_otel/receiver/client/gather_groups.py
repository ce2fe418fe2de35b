"""PartialGroups: groups of which not all rollouts have ended.

Invariant: each trajectory is in one group, and its newest revision is the one that is given.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from art_otel.receiver.protocol.parcel import Delivery
from art_otel.receiver.protocol.receipt import Key, Receipt
from art_otel.trajectories import Trajectory, TrajectoryGroup

logger = logging.getLogger(__name__)

_GroupKey: TypeAlias = tuple[int | None, str]
"""The training step, because a task comes again in later ones, and the group's id."""

_MOST: Final = 1024
"""Trajectories that wait for others. Beyond, the group that waits longest is given as it is."""
_REMEMBERED: Final = 10_000


class ReadyGroup(NamedTuple):
    """A group, and what acknowledges its rollouts."""

    group: TrajectoryGroup
    receipts: tuple[Receipt, ...]


class PartialGroups:
    """Collects deliveries into groups of `size`, for at most `timeout` seconds."""

    def __init__(self, *, size: int, timeout: float | None) -> None:
        self._size = size
        self._timeout = timeout
        self._groups: OrderedDict[_GroupKey, dict[Key, Delivery]] = OrderedDict()
        self._began: dict[_GroupKey, float] = {}
        self._given: OrderedDict[_GroupKey, None] = OrderedDict()

    @property
    def receipts(self) -> list[Receipt]:
        """The receipts of all rollouts that wait."""
        return [delivery.receipt for group in self._groups.values() for delivery in group.values()]

    def add(self, delivery: Delivery) -> list[Receipt]:
        """Add a trajectory, and give the receipts of what nobody waits for any more: it is older, or comes too late."""
        key = _key_of(delivery.trajectory)
        if key in self._given and delivery.receipt.revision:
            logger.warning("art-otel: %s has more, but its group was given", delivery.trajectory.rollout_id)
            return [delivery.receipt]
        group = self._groups.setdefault(key, {})
        self._began.setdefault(key, time.monotonic())
        earlier = group.get(delivery.receipt.key)
        group[delivery.receipt.key] = delivery
        return [] if earlier is None or earlier.receipt.digest == delivery.receipt.digest else [earlier.receipt]

    def take(self) -> ReadyGroup | None:
        """A group that is full or has waited long enough; None where there is none."""
        key = next(self._ready(), None)
        if key is None:
            return None
        del self._began[key]
        self._given[key] = None
        if len(self._given) > _REMEMBERED:
            self._given.popitem(last=False)
        deliveries = list(self._groups.pop(key).values())
        group = TrajectoryGroup(group_id=key[1], trajectories=[delivery.trajectory for delivery in deliveries])
        return ReadyGroup(group, tuple(delivery.receipt for delivery in deliveries))

    def next_timeout(self) -> float:
        """Seconds until the first group has waited long enough."""
        if self._timeout is None or not self._began:
            return float("inf")
        return max(0.0, min(self._began.values()) + self._timeout - time.monotonic())

    def _ready(self) -> Iterator[_GroupKey]:
        now = time.monotonic()
        for key, group in self._groups.items():
            is_late = self._timeout is not None and now - self._began[key] >= self._timeout
            is_alone = all(delivery.trajectory.group_id is None for delivery in group.values())
            if len(group) >= self._size or is_alone or is_late:
                yield key
        if sum(map(len, self._groups.values())) > _MOST:
            key = next(iter(self._groups))
            logger.warning("art-otel: group %r is given with %d rollouts", key[1], len(self._groups[key]))
            yield key


def _key_of(trajectory: Trajectory) -> _GroupKey:
    return (trajectory.training_step, trajectory.rollout_id if trajectory.group_id is None else trajectory.group_id)
