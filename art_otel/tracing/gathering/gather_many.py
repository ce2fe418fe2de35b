"""GatherMany: run many decorated functions at once and have their trajectories.

Invariant: trajectories come in the order of what was given, each from a task of its own; at most `max_concurrent` run
at a time. When it ends early, what runs is cancelled and what has not begun is closed, and nothing is left behind.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from inspect import isawaitable, iscoroutine
from typing import Any, TypeAlias, TypeVar, cast, overload

from art_otel.errors import UsageError
from art_otel.tracing.api.context import GatherScope
from art_otel.tracing.gathering.gather import Gathered, Work, gather_one, gathering, log_failure
from art_otel.tracing.gathering.progress import RolloutProgress, show_progress
from art_otel.trajectories import Trajectory, TrajectoryGroup

Groups: TypeAlias = Iterable[Iterable[Work]] | Mapping[str, Iterable[Work]]

_R = TypeVar("_R")


@overload
async def gather_trajectories(
    works: Iterable[Awaitable[_R]],
    *,
    max_concurrent: int | None = None,
    max_exceptions: float = 0,
    grace_seconds: float | None = None,
    progress: bool = True,
) -> list[Trajectory[_R]]: ...
@overload
async def gather_trajectories(
    works: Iterable[Work],
    *,
    max_concurrent: int | None = None,
    max_exceptions: float = 0,
    grace_seconds: float | None = None,
    progress: bool = True,
) -> list[Trajectory]: ...
async def gather_trajectories(
    works: Iterable[Work],
    *,
    max_concurrent: int | None = None,
    max_exceptions: float = 0,
    grace_seconds: float | None = None,
    progress: bool = True,
) -> list[Trajectory[Any]]:
    """Gather each as `gather_trajectory` does, at once.

    `await gather_trajectories(agent(task) for task in tasks)`. `max_exceptions` is how many may fail, as a number or,
    below 1, as a part of all; with one more the first of their exceptions is raised and the rest is cancelled. Those
    that may fail are trajectories like the others, whose `status` and `exception` say so; the first exception is
    logged. `progress` shows a bar where standard error is a terminal.
    """
    if isawaitable(works):
        if iscoroutine(works):
            works.close()
        raise UsageError("gather_trajectories() takes several rollouts, as a list; gather_trajectory() takes one")
    return await _gather(
        [(work, None) for work in works],
        max_concurrent=max_concurrent,
        max_exceptions=max_exceptions,
        grace_seconds=grace_seconds,
        progress=progress,
    )


async def gather_trajectory_groups(
    groups: Groups,
    *,
    max_concurrent: int | None = None,
    max_exceptions: float = 0,
    grace_seconds: float | None = None,
    progress: bool = True,
) -> list[TrajectoryGroup]:
    """Gather groups of rollouts of one task each, `{group_id: [agent(task), …]}`, or without ids, which are then made.

    A rollout that names no group is given the id of its group. Everything else is as for `gather_trajectories`, over
    all groups.
    """
    listed = _named(groups)
    trajectories = await _gather(
        [(work, group_id) for group_id, works in listed for work in works],
        max_concurrent=max_concurrent,
        max_exceptions=max_exceptions,
        grace_seconds=grace_seconds,
        progress=progress,
    )
    rest = iter(trajectories)
    return [_group(group_id, [next(rest) for _ in works]) for group_id, works in listed]


def _named(groups: Groups) -> list[tuple[str, list[Work]]]:
    if isinstance(groups, Mapping):
        by_id = cast(Mapping[str, Iterable[Work]], groups)
        return [(group_id, list(works)) for group_id, works in by_id.items()]
    return [(os.urandom(16).hex(), list(works)) for works in groups]


def _group(group_id: str, trajectories: Sequence[Trajectory]) -> TrajectoryGroup:
    """The group, by the id that its rollouts name if they agree on one."""
    named = {trajectory.group_id for trajectory in trajectories}
    agreed = named.pop() if len(named) == 1 else None
    return TrajectoryGroup(group_id=agreed or group_id, trajectories=trajectories)


async def _gather(
    works: Sequence[tuple[Work, str | None]],
    *,
    max_concurrent: int | None,
    max_exceptions: float,
    grace_seconds: float | None,
    progress: bool,
) -> list[Trajectory[Any]]:
    async with _closing(works):
        allowed = _Allowed(max_exceptions, len(works))
        gate = _gate(max_concurrent)

        async def gather(work: Work, group_id: str | None) -> Gathered:
            async with gate:
                return await gather_one(work, GatherScope(group_id), grace_seconds)

        with gathering(), show_progress(len(works), enabled=progress) as bar:
            tasks = [asyncio.create_task(gather(*work)) for work in works]
            try:
                await _all_done(tasks, allowed, bar)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return [task.result().trajectory for task in tasks]


async def _all_done(tasks: Sequence[asyncio.Task[Gathered]], allowed: "_Allowed", bar: RolloutProgress) -> None:
    failed: list[BaseException] = []
    for done in asyncio.as_completed(tasks):
        trajectory, error = await done
        bar.advance(trajectory)
        if error is None:
            continue
        failed.append(error)
        if not allowed.permits(len(failed)):
            failed[0].add_note(allowed.explain(len(failed)))
            raise failed[0]
        if len(failed) == 1:
            log_failure(trajectory, error)


class _Allowed:
    """How many of `total` rollouts may fail; counted as ART's `gather_trajectory_groups` counts (0.5.18)."""

    def __init__(self, max_exceptions: float, total: int) -> None:
        if not max_exceptions >= 0:
            raise UsageError(f"max_exceptions={max_exceptions}: a number from 0 on, or a part of all below 1")
        self._most = max_exceptions
        self._total = total

    def permits(self, failed: int) -> bool:
        """Whether so many may fail."""
        return failed <= self._most or (0 < self._most < 1 and failed / self._total <= self._most)

    def explain(self, failed: int) -> str:
        """What to do for who did not mean it."""
        return (
            f"art-otel: {failed} of {self._total} rollouts failed, and max_exceptions={self._most:g} allows no more."
            " With a greater max_exceptions (a number, or below 1 a part of all) failed rollouts are returned as"
            " trajectories whose status and exception say so."
        )


@asynccontextmanager
async def _closing(works: Sequence[tuple[Work, str | None]]) -> AsyncGenerator[None]:
    """Close the coroutines that were never begun, which Python would warn of."""
    try:
        yield
    finally:
        for work, _ in works:
            if iscoroutine(work):
                work.close()


def _gate(max_concurrent: int | None) -> "asyncio.Semaphore | nullcontext[None]":
    if max_concurrent is None:
        return nullcontext()
    if max_concurrent < 1:
        raise UsageError(f"max_concurrent={max_concurrent}: at least 1 has to run at a time")
    return asyncio.Semaphore(max_concurrent)
