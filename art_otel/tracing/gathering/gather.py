"""Gather: runs one decorated function and returns its trajectory, with those of the rollouts that began inside it.

Invariant: an exception of the rollout becomes the status, error and exception of its trajectory, which has the calls
until then. Raised is only what no trajectory can tell: nothing was recorded, an exception outside of the rollout, or a
cancellation of the caller. Waiting never blocks the event loop. The trajectory equals the one of a converted dump.
Where nothing is set up, tracing is set up in memory meanwhile, and taken away afterwards.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast, overload

from opentelemetry import context as otel_context

from art_otel.errors import UsageError
from art_otel.live import RolloutBuffer
from art_otel.tracing.api.context import GatherScope, TakenRollout, all_running, detach, with_scope
from art_otel.tracing.api.running import RunningTrajectory
from art_otel.tracing.setup.configure import tracing
from art_otel.trajectories import Trajectory, note_gathered
from art_otel.trajectories.wholeness import MISSING_ROOT

logger = logging.getLogger(__name__)

_R = TypeVar("_R")

Work: TypeAlias = Awaitable[object] | Callable[[], object]
"""A pending call: `fn(args)` of an async function, or a function without arguments, as `partial(fn, args)`."""

_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05


@contextmanager
def recording() -> Generator[Executor]:
    """Set up what gathering needs for the block: tracing (in memory if nothing is set up), and a thread.

    The thread, which is yielded, builds the trajectories, one at a time. asyncio's own thread pool is left to the app.
    """
    builder = ThreadPoolExecutor(1, "art-otel-build")
    try:
        with tracing.in_memory():
            yield builder
    finally:
        builder.shutdown(wait=False)


@overload
async def gather_trajectory(
    work: Awaitable[_R] | Callable[[], Awaitable[_R]], *, grace_seconds: float | None = None, raise_errors: bool = False
) -> Trajectory[_R]: ...
@overload
async def gather_trajectory(
    work: Callable[[], _R], *, grace_seconds: float | None = None, raise_errors: bool = False
) -> Trajectory[_R]: ...
async def gather_trajectory(
    work: Work, *, grace_seconds: float | None = None, raise_errors: bool = False
) -> Trajectory[Any]:
    """Run a function decorated with @rollout and return its trajectory. `trajectory.result` is the function's result.

    Write `await gather_trajectory(agent(task))`, or `gather_trajectory(partial(agent, task))` for a plain function,
    which then runs in a thread. Rollouts that began inside it are `trajectory.children`. No set-up is needed: without
    one, the rollout is recorded in memory. If spans still run at the end of the rollout, this waits for them, at most
    `grace_seconds`. If it was tried again after it had raised, this returns the last try.

    If the rollout raises, `trajectory.status`, `.error` and `.exception` say so, and the exception is logged. With
    `raise_errors`, it is raised instead. Raises UsageError if tracing is turned off, if no rollout began, or if several
    began one beside the other: `gather_trajectories` returns those.
    """
    with recording() as builder:
        trajectory = await gather_one(work, GatherScope(), grace_seconds, builder)
    if trajectory.exception is not None:
        if raise_errors:
            raise trajectory.exception
        log_failure(trajectory)
    return trajectory


def log_failure(trajectory: Trajectory[Any]) -> None:
    """Log the exception of a rollout with its traceback: its trajectory has it, but the user may not look there."""
    message = "art-otel: rollout %s raised; its trajectory says so"
    logger.warning(message, trajectory.name, exc_info=trajectory.exception)


async def gather_one(work: Work, scope: GatherScope, grace_seconds: float | None, builder: Executor) -> Trajectory[Any]:
    """Gather one rollout, also if it raises. If the app tried it again after a failure, returns the last try."""
    cancelled = _cancellations()
    try:
        # A task of its own: a TaskGroup that fails in the rollout may leave its task counted as cancelled for good.
        result, error = await asyncio.create_task(_outcome(work, scope))
        if error is not None and (_is_no_outcome(error, scope) or _cancellations() > cancelled):
            raise error
        if not scope.rollouts or scope.recorder is None:
            raise UsageError(
                "no rollout began: decorate the function that you gather with @art_otel.rollout, below any decorator "
                "that turns an async function into a plain one"
            )
        _refuse_several(scope.rollouts, error)
        taken = scope.rollouts[-1]
        await _wait([taken], scope.recorder, grace_seconds)
        build = partial(recorded_trajectory, taken, scope.recorder)
        trajectory = await asyncio.get_running_loop().run_in_executor(builder, build)
    finally:
        scope.release()
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()  # cancelled before it began, which Python would warn of
    if error is not None and not taken.running.failed:
        raise error
    return replace(trajectory, result=result, exception=error)


def _refuse_several(rollouts: Sequence[TakenRollout], error: BaseException | None) -> None:
    """Raise UsageError for several rollouts in one call, unless all but the last failed: those are retries."""
    if all(taken.running.failed for taken in rollouts[:-1]):
        return
    names = ", ".join(dict.fromkeys(taken.running.name or "" for taken in rollouts))
    raise UsageError(
        f"{len(rollouts)} rollouts ({names}) began in one call, which returns one trajectory: pass each rollout "
        "separately, such as gather_trajectories([agent(task) for task in tasks]), or decorate the function around "
        "them with"
        " @art_otel.rollout, which makes them its trajectory.children"
    ) from error


async def _outcome(work: Work, scope: GatherScope) -> tuple[object, BaseException | None]:
    """Return the result or the exception of the rollout.

    It is not raised here, because a task that raises SystemExit stops the whole event loop.
    """
    try:
        return await _run(work, scope), None
    except BaseException as raised:  # noqa: BLE001 # raised again where it is not the trajectory's
        return None, raised


def _is_no_outcome(error: BaseException, scope: GatherScope) -> bool:
    """Whether an exception must be raised, since no trajectory can tell it: no rollout began, or the program ends."""
    ends = not isinstance(error, (Exception, asyncio.CancelledError))
    return ends or not scope.rollouts or error is scope.refusal


def _cancellations() -> int:
    """How often the gathering task itself was cancelled; a CancelledError inside of the rollout does not count."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _run(work: Work, scope: GatherScope) -> object:
    token = otel_context.attach(with_scope(scope))
    try:
        if asyncio.isfuture(work):
            raise UsageError("a task is already running when it is gathered: pass the coroutine, fn(args), not a task")
        if inspect.isawaitable(work):
            return await work
        if not callable(work):
            raise UsageError(
                f"{work!r:.100} cannot be gathered, because it is not a pending call: pass fn(args) of an async "
                "function without await, or functools.partial(fn, args)"
            )
        function = cast(Callable[[], Any], work)
        result = function() if inspect.iscoroutinefunction(function) else await _in_thread(function)
        return await result if inspect.isawaitable(result) else result
    finally:
        detach(token)


async def _in_thread(function: Callable[[], Any]) -> Any:  # noqa: ANN401 # what the app's function returns
    """Run a function in a thread of its own: asyncio's pool has few threads, which the app may need."""
    thread = ThreadPoolExecutor(1, "art-otel-rollout")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, copy_context().run, partial(_stopped, function))
    finally:
        thread.shutdown(wait=False)


def _stopped(function: Callable[[], Any]) -> Any:  # noqa: ANN401 # as above
    """Call a function; a StopIteration becomes a RuntimeError, as in a coroutine.

    A future cannot hold a StopIteration, so the code that awaits it would wait for ever.
    """
    try:
        return function()
    except StopIteration as stop:
        raise RuntimeError("the rollout raised StopIteration") from stop


async def _wait(taken: Sequence[TakenRollout], recorder: RolloutBuffer, grace_seconds: float | None) -> None:
    """Wait until every span of the rollouts, and of those nested in them, has ended."""
    deadline = time.monotonic() + (recorder.grace if grace_seconds is None else grace_seconds)
    pause = _FIRST_PAUSE
    while not all(recorder.has_ended(running.rollout_id) for running in all_running(taken)):
        if time.monotonic() >= deadline:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def recorded_trajectory(taken: TakenRollout, recorder: RolloutBuffer) -> Trajectory:
    """Build the trajectory of a rollout, with its children."""
    ids = [running.rollout_id for running in all_running([taken])]
    return _with_children(taken, recorder.trajectories(ids))


def _with_children(taken: TakenRollout, trajectories: Mapping[str, Trajectory]) -> Trajectory:
    trajectory = trajectories.get(taken.running.rollout_id) or _unrecorded(taken.running)
    note_gathered(trajectory)
    children = tuple(_with_children(nested, trajectories) for nested in list(taken.nested.rollouts))
    return replace(trajectory, children=children) if children else trajectory


def _unrecorded(running: RunningTrajectory) -> Trajectory:
    """Build an unfinished trajectory for a rollout whose spans the recorder no longer holds."""
    return Trajectory(
        rollout_id=running.rollout_id,
        trace_id=f"{running.span.get_span_context().trace_id:032x}",
        name=running.name,
        status="unfinished",
        incomplete_reasons={MISSING_ROOT: 1},
    )
