"""GatherMany: run many decorated functions at once and have their trajectories.

Invariant: trajectories come in the order of what was given, each from a task of its own; at most `max_concurrent` run
at a time. When it ends early, what runs is cancelled and what has not begun is closed, and nothing is left behind.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from inspect import iscoroutine
from typing import TypeAlias, cast

from art_otel.errors import UsageError
from art_otel.tracing.rollouts.gather import Gathered, Work, gather_one
from art_otel.tracing.rollouts.gathering import Gathering
from art_otel.tracing.rollouts.progress import RolloutProgress, show_progress
from art_otel.trajectories import Trajectory, TrajectoryGroup

Groups: TypeAlias = Iterable[Iterable[Work]] | Mapping[str, Iterable[Work]]


async def gather_trajectories(
    works: Iterable[Work],
    *,
    max_concurrent: int | None = None,
    max_exceptions: float | None = None,
    grace_seconds: float | None = None,
    progress: bool = True,
) -> list[Trajectory]:
    """Gather each as `gather_trajectory` does, at once.

    `await gather_trajectories(agent(task) for task in tasks)`. `max_exceptions` is how many may fail, as a number or,
    below 1, as a part of all; with one more the first of their exceptions is raised and the rest is cancelled. Without
    it all may fail: their trajectories say so. `progress` shows a bar where standard error is a terminal.
    """
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
    max_exceptions: float | None = None,
    grace_seconds: float | None = None,
    progress: bool = True,
) -> list[TrajectoryGroup]:
    """Gather groups of rollouts of one task each, `{group_id: [agent(task), …]}`, or without ids, which are then made.

    A rollout that names no group is given the id of its group. Everything else is as for `gather_trajectories`, over
    all groups.
    """
    listed = _named(groups)
    found = await _gather(
        [(work, group_id) for group_id, works in listed for work in works],
        max_concurrent=max_concurrent,
        max_exceptions=max_exceptions,
        grace_seconds=grace_seconds,
        progress=progress,
    )
    rest = iter(found)
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
    max_exceptions: float | None,
    grace_seconds: float | None,
    progress: bool,
) -> list[Trajectory]:
    async with _closing(works):
        allowed = _allowed(max_exceptions, len(works))
        gate = _gate(max_concurrent)

        async def gather(work: Work, group_id: str | None) -> Gathered:
            async with gate:
                return await gather_one(work, Gathering(group_id), grace_seconds)

        with show_progress(len(works), enabled=progress) as bar:
            tasks = [asyncio.create_task(gather(*work)) for work in works]
            try:
                await _all_done(tasks, allowed, bar)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return [task.result().trajectory for task in tasks]


async def _all_done(tasks: Sequence[asyncio.Task[Gathered]], allowed: float, bar: RolloutProgress) -> None:
    failed: list[BaseException] = []
    for done in asyncio.as_completed(tasks):
        gathered = await done
        bar.advance(gathered.trajectory)
        if gathered.error is not None:
            failed.append(gathered.error)
        if len(failed) > allowed:
            raise failed[0]


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


def _allowed(max_exceptions: float | None, total: int) -> float:
    if max_exceptions is None:
        return total
    if not max_exceptions >= 0:
        raise UsageError(f"max_exceptions={max_exceptions}: a number from 0 on, or a part of all below 1")
    return max_exceptions * total if max_exceptions < 1 else max_exceptions
