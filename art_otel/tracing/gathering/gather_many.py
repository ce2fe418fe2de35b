"""GatherMany: runs many decorated functions at once and returns their trajectories, together or each as it ends.

Invariant: each rollout is a task of its own; at most `max_concurrent` run at a time. An exception of a rollout is in
its trajectory; more failures than `max_exceptions` end the whole gathering. When the gathering ends early, running
rollouts are cancelled and pending ones are closed, so that nothing is left behind.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.live.delivery import Acknowledgment, DeliveredRollouts, DeliveredTrajectory, NothingMoreError, Question
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import GatherScope
from art_otel.tracing.api.running import field_attributes
from art_otel.tracing.gathering.gather import Work, gather_one, log_failure, recording
from art_otel.trajectories import Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Groups: TypeAlias = Iterable[Iterable[Work]] | Mapping[str, Iterable[Work]]

_R = TypeVar("_R")


class GatherOptions(TypedDict, total=False):
    """The options of `gather_trajectories`, which describes them."""

    max_concurrent: int | None
    max_exceptions: float | None
    grace_seconds: float | None
    progress: bool
    training_step: int | None
    gathering: str | None


class Gathering(Coroutine[Any, Any, list[Trajectory[_R]]]):
    """Rollouts that run when you await this object or iterate over it.

        trajectories = await gathering
        async for trajectory in gathering:
            ...
        async for group in gathering.groups(size=8):
            ...

    If you await it, trajectories come in the order of the arguments. A loop gets them as they end. If you leave a loop
    early, the other rollouts are cancelled.
    """

    def __init__(self, run: Callable[[], "AsyncGenerator[_Gathered]"]) -> None:
        self._run = run
        self._awaited: Coroutine[Any, Any, list[Trajectory[_R]]] | None = None

    async def __aiter__(self) -> AsyncGenerator[Trajectory[_R]]:
        async with aclosing(self._run()) as run, DeliveredRollouts(GatheredRollouts(run)) as delivered:
            async for trajectory in delivered:
                yield cast("Trajectory[_R]", trajectory)

    async def groups(self, *, size: int, timeout: float | None = None) -> AsyncGenerator[TrajectoryGroup]:
        """Iterate over groups of `size` trajectories with the same `group_id` and training step, as they end.

        If a group is not full `timeout` seconds after its first trajectory, or when all rollouts have ended, it is
        returned as it is. A rollout without a group is a group of its own.
        """
        async with (
            aclosing(self._run()) as run,
            DeliveredRollouts(GatheredRollouts(run)) as delivered,
            aclosing(delivered.groups(size=size, timeout=timeout)) as groups,
        ):
            async for group in groups:
                yield group

    # asyncio.run() and asyncio.create_task() take a coroutine and nothing else, so this is one.

    def __await__(self) -> Generator[Any, Any, list[Trajectory[_R]]]:
        return self._all().__await__()

    def send(self, value: Any, /) -> Any:  # noqa: ANN401 # as Coroutine
        """Resume the coroutine (called by asyncio)."""
        self._awaited = self._awaited or self._all()
        return self._awaited.send(value)

    def throw(self, error: Any, value: Any = None, _: Any = None, /) -> Any:  # noqa: ANN401 # as Coroutine
        """Resume the coroutine with an exception (called by asyncio)."""
        self._awaited = self._awaited or self._all()
        return self._awaited.throw(error if value is None else value)

    def close(self) -> None:
        """Close the coroutine where it is."""
        if self._awaited is not None:
            self._awaited.close()

    async def _all(self) -> list[Trajectory[_R]]:
        async with aclosing(self._run()) as gathered:
            ended = [one async for one in gathered]
        return [one.trajectory for one in sorted(ended, key=lambda one: one.position)]


class _Gathered(NamedTuple):
    position: int
    trajectory: Trajectory[Any]


class GatheredRollouts:
    """A `DeliverySession` with the rollouts of a gathering, as they end. Rollouts that a loop leaves are lost."""

    def __init__(self, run: "AsyncGenerator[_Gathered]") -> None:
        self._run = run
        self._coming: asyncio.Task[_Gathered | None] | None = None
        """The task for the next rollout; it goes on while no question waits for it."""

    async def take(self, question: Question) -> list[DeliveredTrajectory]:
        """Return the next rollout if it ends in time. Raises NothingMoreError after the last one."""
        if not question.count:
            return []
        self._coming = self._coming or asyncio.create_task(self._next())
        if not (await asyncio.wait((self._coming,), timeout=question.wait))[0]:
            return []
        gathered, self._coming = self._coming.result(), None
        if gathered is None:
            raise NothingMoreError
        trajectory = gathered.trajectory
        return [DeliveredTrajectory(Acknowledgment.of(trajectory.order, trajectory.revision, ""), trajectory)]

    async def close(self, handled: Sequence[Acknowledgment]) -> None:  # noqa: ARG002 # as DeliverySession
        """Stop waiting for the next rollout."""
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.gather(self._coming, return_exceptions=True)

    async def _next(self) -> "_Gathered | None":
        return await anext(self._run, None)


@overload
def gather_trajectories(  # pyright: ignore[reportOverlappingOverload] # only here the type of the results is known
    works: Iterable[Awaitable[_R]], **options: Unpack[GatherOptions]
) -> Gathering[_R]: ...
@overload
def gather_trajectories(works: Iterable[Work], **options: Unpack[GatherOptions]) -> Gathering[object]: ...
def gather_trajectories(works: Iterable[Work], **options: Unpack[GatherOptions]) -> Gathering[Any]:
    """Run many rollouts at once, each as with `gather_trajectory`, and return their trajectories.

        trajectories = await art_otel.gather_trajectories(agent(task) for task in tasks)
        async for trajectory in art_otel.gather_trajectories([agent(task) for task in tasks]):
            ...
        attempts = [agent(task) for task in tasks for _ in range(8)]
        async for group in art_otel.gather_trajectories(attempts).groups(size=8):
            ...

    If you await it, trajectories come in the order of the arguments. A loop gets them as they end. If a rollout fails,
    its trajectory has a `status` and an `exception`; the first exception is logged. If all rollouts raise an exception
    before any LLM call, and `max_exceptions` is not given, the first exception is raised when all have ended.

    - `max_concurrent`: how many run at a time; the default is all.
    - `max_exceptions`: how many may fail, as a number or, below 1, as a share of all; the default is all. If one more
      fails, the first exception is raised and the other rollouts are cancelled.
    - `training_step`: the training step of the rollouts that name none, and of those inside them.
    - `gathering`: the id of an earlier gathering, `trajectory.gathering`, whose groups these rollouts continue. By
      default, the same `group_id` in another call is another group.
    - `grace_seconds`: as for `gather_trajectory`.
    - `progress`: False shows no progress bar. By default, there is one if standard error is a terminal.
    """
    if isawaitable(works):
        if iscoroutine(works):
            works.close()
        raise UsageError("gather_trajectories() takes several rollouts, as a list; gather_trajectory() takes one")
    listed = [(work, None) for work in works]
    return Gathering(lambda: _gather(listed, **options))


async def gather_trajectory_groups(groups: Groups, **options: Unpack[GatherOptions]) -> list[TrajectoryGroup]:
    """Run groups of rollouts, each group for one task, and return a TrajectoryGroup for each.

    Give `{group_id: [agent(task), …]}`, or lists without ids; ids are then made. A rollout that names no group gets the
    id of its group. Everything else is as for `gather_trajectories`, over all groups. In a training loop, give
    `training_step=step`.
    """
    listed = _named(groups)
    works = [(work, group_id) for group_id, members in listed for work in members]
    trajectories = iter(await Gathering[Any](lambda: _gather(works, **options)))
    return [_group(group_id, [next(trajectories) for _ in members]) for group_id, members in listed]


def _named(groups: Groups) -> list[tuple[str, list[Work]]]:
    if isinstance(groups, Mapping):
        named = list(cast(Mapping[str, Iterable[Work]], groups).items())
    else:
        named = [(os.urandom(16).hex(), works) for works in groups]
    if alone := [works for _, works in named if isawaitable(works) or callable(works)]:
        for work in alone:
            if iscoroutine(work):
                work.close()
        raise UsageError(
            "gather_trajectory_groups() takes a list of rollouts for each group, {group_id: [agent(task), …]};"
            " gather_trajectories() takes rollouts without groups"
        )
    return [(group_id, list(works)) for group_id, works in named]


def _group(group_id: str, trajectories: Sequence[Trajectory]) -> TrajectoryGroup:
    """The group; its id is the one that all its rollouts name, else `group_id`."""
    named = {trajectory.group_id for trajectory in trajectories}
    agreed = named.pop() if len(named) == 1 else None
    return TrajectoryGroup(group_id=agreed or group_id, trajectories=trajectories)


async def _gather(
    works: Sequence[tuple[Work, str | None]],
    *,
    max_concurrent: int | None = None,
    max_exceptions: float | None = None,
    grace_seconds: float | None = None,
    progress: bool = True,
    training_step: int | None = None,
    gathering: str | None = None,
) -> AsyncGenerator[_Gathered]:
    """Run all works, each given with the id of its group, and iterate over them as they end."""
    tasks: list[asyncio.Task[_Gathered]] = []
    try:
        shared = {
            attributes.GATHERING_ID: os.urandom(8).hex() if gathering is None else scalars.text(gathering, "gathering"),
            **field_attributes(training_step=training_step),
        }
        failures = _Failures(max_exceptions, len(works))
        gate = _gate(max_concurrent)

        async def run_one(position: int, work: Work, group_id: str | None) -> _Gathered:
            async with gate:
                trajectory = await gather_one(work, GatherScope(group_id, shared), grace_seconds, builder)
                return _Gathered(position, trajectory)

        with recording() as builder, _show_progress(len(works), enabled=progress) as bar:
            tasks += [asyncio.create_task(run_one(position, *work)) for position, work in enumerate(works)]
            try:
                for ending in asyncio.as_completed(tasks):
                    gathered = await ending
                    bar.advance(gathered.trajectory)
                    failures.note(gathered.trajectory)
                    yield gathered
                failures.raise_if_nothing_ran()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for work, _ in works:
            if iscoroutine(work):
                work.close()  # Python would warn that a coroutine was never awaited


class _Failures:
    """How many of `total` rollouts may fail; counted as ART's `gather_trajectory_groups` counts (0.5.18)."""

    def __init__(self, max_exceptions: float | None, total: int) -> None:
        self._most = total if max_exceptions is None else max_exceptions
        if not self._most >= 0:
            raise UsageError(f"max_exceptions={max_exceptions}: give a number of rollouts, or a fraction below 1")
        self._is_bound = max_exceptions is not None
        self._total = total
        self._errors: list[BaseException] = []
        self._raised_at_once = 0

    def note(self, trajectory: Trajectory[Any]) -> None:
        """Count a trajectory if it failed. Raises the first exception of all if too many failed."""
        if trajectory.exception is None:
            return
        self._errors.append(trajectory.exception)
        self._raised_at_once += trajectory.status == "error" and not _has_calls(trajectory)
        failed = len(self._errors)
        if not self.permits(failed):
            self._errors[0].add_note(
                f"art-otel: {failed} of {self._total} rollouts failed, and max_exceptions={self._most:g} allows no"
                " more. Without max_exceptions failed rollouts are trajectories whose status and exception say so."
            )
            raise self._errors[0]
        if failed == 1:
            log_failure(trajectory)

    def raise_if_nothing_ran(self) -> None:
        """Raise the first exception if every rollout raised one before any LLM call, as for a misspelled name."""
        if self._is_bound or not self._total or self._raised_at_once < self._total:
            return
        self._errors[0].add_note(
            f"art-otel: all {self._total} rollouts raised an exception before any LLM call; this is the first. With"
            f" max_exceptions={self._total} they are trajectories, whose status and exception say so."
        )
        raise self._errors[0]

    def permits(self, failed: int) -> bool:
        """Whether so many failures are allowed, by number or, below 1, as a share of all."""
        return failed <= self._most or (0 < self._most < 1 and failed / self._total <= self._most)


def _has_calls(trajectory: Trajectory) -> bool:
    """Whether the rollout, or one inside it, made an LLM call."""
    return bool(trajectory.calls) or any(map(_has_calls, trajectory.children))


def _gate(max_concurrent: int | None) -> "asyncio.Semaphore | nullcontext[None]":
    if max_concurrent is None:
        return nullcontext()
    if max_concurrent < 1:
        raise UsageError(f"max_concurrent={max_concurrent}: at least 1 must run at a time")
    return asyncio.Semaphore(max_concurrent)


class _RolloutProgress:
    """Counts finished trajectories on a bar; without a bar it shows nothing."""

    def __init__(self, bar: "Progress | None" = None, task: "TaskID | None" = None) -> None:
        self._bar = bar
        self._task = task
        self._failed = 0
        self._rewards: list[float] = []

    def advance(self, trajectory: Trajectory) -> None:
        """Count one more finished trajectory."""
        self._failed += trajectory.status != "ok"
        if trajectory.reward is not None:
            self._rewards.append(trajectory.reward)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, summary=self._summary())

    def _summary(self) -> str:
        failed = [f"{self._failed} failed"] if self._failed else []
        mean = [f"reward {sum(self._rewards) / len(self._rewards):.3g}"] if self._rewards else []
        return " · ".join([*failed, *mean])


@contextmanager
def _show_progress(total: int, *, enabled: bool) -> Generator[_RolloutProgress]:
    """Show a bar on standard error while the block runs, if that is a terminal."""
    if not enabled or not sys.stderr.isatty():
        yield _RolloutProgress()
        return
    from rich.console import Console  # noqa: PLC0415 # loaded only for a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("rollouts"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[summary]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield _RolloutProgress(bar, bar.add_task("rollouts", total=total, summary=""))
