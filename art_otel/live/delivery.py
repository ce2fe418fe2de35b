"""Delivery: finished rollouts on their way to a training loop, one by one or in groups.

    SpoolCursor       a spool's folder (NewTrajectories)
    LocalSession      a receiver in this process (receive)           ─► DeliverySession ─► DeliveredRollouts
    RemoteSession     a receiver elsewhere (connect)                        ▲                 │ async for
    GatheredRollouts  rollouts of this process (gather_trajectories)        └─ acknowledges ──┘ .groups(…)

Invariant: each rollout is delivered until it is acknowledged. A loop acknowledges its item by asking for the next one,
or by leaving the `async with` block without an exception. What a loop got and did not handle, because it ended early,
is delivered again; only rollouts of this process are not, since nothing else holds them.

A group is the trajectories of one `group_key`; a rollout without a group is a group of its own. A group is delivered
once: when it is full, when its timeout is over, or when nothing more comes. While a group waits, a newer revision of a
rollout replaces the older one; a revision that comes after its group was delivered is left out, and a log says so.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

import msgspec

from art_otel.errors import UsageError
from art_otel.trajectories import GroupKey, Trajectory, TrajectoryGroup, note_gathered

logger = logging.getLogger(__name__)

Key: TypeAlias = tuple[str, int, str]
"""A trajectory's rollout id, attempt and trace id, which are its `order`."""

_AnyGroupKey: TypeAlias = GroupKey | str

_TOGETHER: Final = 16
"""How many trajectories for groups are fetched with one question."""
_WAIT: Final = 20.0
"""Seconds that a question waits for an answer before it is asked again."""
_MAX_WAITING: Final = 1024
"""How many trajectories wait for the rest of their groups. Beyond, the group that waits longest goes out incomplete."""
_MAX_REMEMBERED: Final = 10_000
"""How many delivered groups are remembered, to recognize revisions that come too late for them."""


class Acknowledgment(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a consumer has handled a rollout, with which revision. `digest` names the set of its spans then."""

    rollout_id: str
    attempt: int
    trace_id: str
    revision: int
    digest: str

    @classmethod
    def of(cls, key: Key, revision: int, digest: str) -> Self:
        """The acknowledgment for the rollout with this key."""
        rollout_id, attempt, trace_id = key
        return cls(rollout_id=rollout_id, attempt=attempt, trace_id=trace_id, revision=revision, digest=digest)

    @property
    def key(self) -> Key:
        """The rollout's key, which is a trajectory's `order`."""
        return (self.rollout_id, self.attempt, self.trace_id)


class DeliveredTrajectory(NamedTuple):
    """A trajectory, and the acknowledgment to send once it is handled."""

    acknowledgment: Acknowledgment
    trajectory: Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A loop's question to a session: up to `count` more rollouts, within `wait` seconds.

    `handled` are acknowledged by it. `holds` are rollouts that the loop has and still works on, or keeps until their
    group is full; they are not delivered again meanwhile. With `whole_groups` a rollout whose group this session has
    begun goes to no other session of the consumer.
    """

    handled: Sequence[Acknowledgment] = ()
    holds: Sequence[Acknowledgment] = ()
    count: int
    wait: float = 0.0
    whole_groups: bool = False


class NothingMoreError(Exception):
    """Raised by a session whose source has ended: no more rollouts will ever come."""


class DeliverySession(Protocol):
    """A source of finished rollouts, with the acknowledgments of one consumer."""

    async def take(self, question: Question) -> Sequence[DeliveredTrajectory]:
        """Acknowledge what was handled, and return more rollouts; empty if none comes in time.

        Raises NothingMoreError if none will ever come.
        """
        ...

    async def close(self, handled: Sequence[Acknowledgment]) -> None:
        """Acknowledge what was handled, and end the session."""
        ...


class DeliveredRollouts:
    """Finished rollouts, each revision once, as soon as they have ended.

        async for trajectory in rollouts:
            ...

    The loop waits for the next rollout as long as it takes.
    """

    def __init__(self, session: DeliverySession) -> None:
        self._session = session
        self._handling: list[Acknowledgment] = []
        """What the loop works on now: asking for the next one says that this is handled."""
        self._handled: list[Acknowledgment] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Trajectory:
        """Wait for the next finished rollout, as long as it takes."""
        self._finish_handling()
        try:
            while True:
                for acknowledgment, trajectory in await self._ask(1, _WAIT):
                    self._handling = [acknowledgment]
                    return trajectory
        except NothingMoreError:
            raise StopAsyncIteration from None

    async def groups(self, *, size: int, timeout: float | None = None) -> AsyncGenerator[TrajectoryGroup]:
        """Iterate over groups of `size` trajectories with the same `group_id` and training step.

        If a group is not full `timeout` seconds after its first trajectory, it is returned as it is. A rollout without
        a group is a group of its own. A revision of a rollout is left out if its group was already returned.
        """
        partial = PartialGroups(size=size, timeout=timeout)
        is_over = False
        while True:
            self._finish_handling()
            ready = partial.take(whole_only=not is_over)
            if ready is not None:
                self._handling = ready.acknowledgments
                # The loop may work on this group for long, so acknowledge the earlier ones now.
                while self._handled:
                    await self._ask(0, 0.0, partial.acknowledgments, whole_groups=True)
                yield ready.group
                continue
            if is_over:
                return
            wait = min(_WAIT, partial.next_timeout())
            try:
                delivered = await self._ask(_TOGETHER, wait, partial.acknowledgments, whole_groups=True)
            except NothingMoreError:
                is_over = True
                continue
            for one in delivered:
                left_out = partial.add(one)
                # Acknowledgments go by rollout and digest: an earlier one with the same digest would acknowledge this
                # one, too.
                if left_out is not None and (
                    left_out is one.acknowledgment or left_out.digest != one.acknowledgment.digest
                ):
                    self._handled.append(left_out)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Acknowledge what was handled. An item whose handling raised is left to the consumer's next session."""
        if error is None:
            self._finish_handling()
        handled, self._handled, self._handling = self._handled, [], []
        await self._session.close(handled)

    def _finish_handling(self) -> None:
        self._handled += self._handling
        self._handling = []

    async def _ask(
        self, count: int, wait: float, holds: Sequence[Acknowledgment] = (), *, whole_groups: bool = False
    ) -> Sequence[DeliveredTrajectory]:
        handled = list(self._handled)
        holds = [*holds, *self._handling]
        question = Question(handled=handled, holds=holds, count=count, wait=wait, whole_groups=whole_groups)
        delivered = await self._session.take(question)
        # Only after the answer: if the question failed, the next one acknowledges them.
        del self._handled[: len(handled)]
        for one in delivered:
            note_gathered(one.trajectory)
        return delivered


class ReadyGroup(NamedTuple):
    """A group, and the acknowledgments of its trajectories."""

    group: TrajectoryGroup
    acknowledgments: list[Acknowledgment]


class PartialGroups:
    """Collects trajectories into groups of `size`, for at most `timeout` seconds."""

    def __init__(self, *, size: int, timeout: float | None) -> None:
        if size < 1:
            raise UsageError(f"groups(size={size}): give the number of trajectories in a group, 1 or more")
        self._size = size
        self._timeout = timeout
        self._groups: OrderedDict[_AnyGroupKey, dict[Key, DeliveredTrajectory]] = OrderedDict()
        self._began: dict[_AnyGroupKey, float] = {}
        self._given: OrderedDict[_AnyGroupKey, None] = OrderedDict()

    @property
    def acknowledgments(self) -> list[Acknowledgment]:
        """The acknowledgments of all trajectories that wait for their groups."""
        return [one.acknowledgment for group in self._groups.values() for one in group.values()]

    def add(self, delivered: DeliveredTrajectory) -> Acknowledgment | None:
        """Add a trajectory to its group. Returns the acknowledgment of a trajectory that is in no group after this.

        That is the earlier revision which the new one replaces, or the new one itself if its group was delivered
        before. None where nothing is left out.
        """
        trajectory = delivered.trajectory
        key = trajectory.group_key or trajectory.rollout_id
        if key in self._given and trajectory.revision:
            logger.warning("art-otel: %s has more rollouts, but its group was already delivered", trajectory.rollout_id)
            return delivered.acknowledgment
        group = self._groups.setdefault(key, {})
        self._began.setdefault(key, time.monotonic())
        earlier = group.get(trajectory.order)
        group[trajectory.order] = delivered
        return None if earlier is None else earlier.acknowledgment

    def take(self, *, whole_only: bool = True) -> ReadyGroup | None:
        """Take out a group that is full or whose timeout is over; None where there is none.

        With `whole_only` off, any group: nothing more will come for it.
        """
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
        """Seconds until the timeout of the first group; infinite where none has one."""
        if self._timeout is None or not self._began:
            return float("inf")
        return max(0.0, min(self._began.values()) + self._timeout - time.monotonic())

    def _ready(self) -> Iterator[_AnyGroupKey]:
        now = time.monotonic()
        for key, group in self._groups.items():
            is_late = self._timeout is not None and now - self._began[key] >= self._timeout
            is_alone = all(one.trajectory.group_id is None for one in group.values())
            if len(group) >= self._size or is_alone or is_late:
                yield key
        if sum(map(len, self._groups.values())) > _MAX_WAITING:
            key = next(iter(self._groups))
            logger.warning("art-otel: group %r is delivered with %d rollouts", _name(key), len(self._groups[key]))
            yield key


def _name(key: _AnyGroupKey) -> str:
    """The group's id; for a rollout without a group, the rollout's id."""
    return key if isinstance(key, str) else key.group_id
