"""Delivery: finished rollouts on their way to a loop, one by one or in groups, wherever they come from.

    SpoolCursor       what is new in a spool's folder (NewTrajectories)
    LocalSession      what a receiver in this process has (receive)           ─► DeliverySession ─► DeliveredRollouts
    RemoteSession     what a receiver elsewhere has (connect)                        ▲                 │ async for
    GatheredRollouts  what runs in this process (gather_trajectories)                └─ acknowledges ──┘ .groups(…)

Invariant: asking for the next acknowledges what was given before; so does leaving the block without an exception. A
session gives each rollout until it is acknowledged: what it gave, and its loop neither holds nor has handled, is given
again, as after a loop that ended early.

A group is the trajectories of one `group_key`; one without a group is a group of its own. Each is given once: when it
has its size, when it has waited long enough, or when nothing more comes. Of two revisions of a rollout that waits the
later is given; one whose group was given is left out, and a log says so.
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
"""A trajectory's rollout id, attempt and trace id, as its `order`."""

_AnyGroupKey: TypeAlias = GroupKey | str

_TOGETHER: Final = 16
"""Trajectories of groups that are fetched with one question."""
_WAIT: Final = 20.0
"""Seconds that a question waits before it is asked again."""
_MAX_WAITING: Final = 1024
"""Trajectories that wait for others. Beyond, the group that waits longest is given as it is."""
_MAX_REMEMBERED: Final = 10_000
"""Groups that were given, to know what comes too late for them."""


class Acknowledgment(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a consumer has a rollout: which, with which revision, and the digest of the spans that it had."""

    rollout_id: str
    attempt: int
    trace_id: str
    revision: int
    digest: str

    @classmethod
    def of(cls, key: Key, revision: int, digest: str) -> Self:
        """Make one for the rollout of this key."""
        rollout_id, attempt, trace_id = key
        return cls(rollout_id=rollout_id, attempt=attempt, trace_id=trace_id, revision=revision, digest=digest)

    @property
    def key(self) -> Key:
        """The rollout's key, which is a trajectory's `order`."""
        return (self.rollout_id, self.attempt, self.trace_id)


class DeliveredTrajectory(NamedTuple):
    """A trajectory, and what acknowledges it."""

    acknowledgment: Acknowledgment
    trajectory: Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a loop asks: it has handled some, holds others, and wants up to `count` more within `wait` seconds.

    With `whole_groups` no other session gets rollouts of a group of which this one has some.
    """

    handled: Sequence[Acknowledgment] = ()
    holds: Sequence[Acknowledgment] = ()
    count: int
    wait: float = 0.0
    whole_groups: bool = False


class NothingMoreError(Exception):
    """Nothing more will ever come."""


class DeliverySession(Protocol):
    """Where rollouts come from."""

    async def take(self, question: Question) -> Sequence[DeliveredTrajectory]:
        """Acknowledge what was handled, and take more; none where none comes in time. Raises NothingMoreError."""
        ...

    async def close(self, handled: Sequence[Acknowledgment]) -> None:
        """Acknowledge what was handled, and leave."""
        ...


class DeliveredRollouts:
    """Finished rollouts, each once, as soon as they have ended."""

    def __init__(self, session: DeliverySession) -> None:
        self._session = session
        self._handling: list[Acknowledgment] = []
        """What the loop has now; it has handled that when it asks again."""
        self._handled: list[Acknowledgment] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Trajectory:
        """The next one that ends. It waits as long as there is none."""
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
                if left_out is not None and (
                    left_out is one.acknowledgment or left_out.digest != one.acknowledgment.digest
                ):
                    self._handled.append(left_out)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Acknowledge what was handled, but what raised, and leave the rest to the consumer's next session."""
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
        del self._handled[: len(handled)]
        for one in delivered:
            note_gathered(one.trajectory)
        return delivered


class ReadyGroup(NamedTuple):
    """A group, and what acknowledges its trajectories."""

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
        """The acknowledgments of all that wait."""
        return [one.acknowledgment for group in self._groups.values() for one in group.values()]

    def add(self, delivered: DeliveredTrajectory) -> Acknowledgment | None:
        """Add a trajectory. Gives what acknowledges one that is in no group then: it, or its earlier revision."""
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
    """The id of the group, of a rollout without one the rollout's."""
    return key if isinstance(key, str) else key.group_id
