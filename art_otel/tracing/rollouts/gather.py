"""Gather: run a decorated function and have its trajectory.

Invariant: what a rollout raises becomes its trajectory's status and error, with the calls it made until then; only what
no trajectory tells is raised: that nothing was recorded, what failed outside of the rollout, and that the caller itself
is cancelled. The event loop is never blocked by waiting.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

from opentelemetry import context as otel_context

from art_otel.errors import UsageError
from art_otel.tracing.rollouts.context import detach
from art_otel.tracing.rollouts.gathering import Gathering, with_gathering
from art_otel.tracing.rollouts.recorder import Recorder
from art_otel.tracing.rollouts.running import RunningTrajectory
from art_otel.trajectories import Trajectory
from art_otel.trajectories.accounting.completeness import MISSING_ROOT

Work: TypeAlias = Awaitable[object] | Callable[[], object]
"""What is called `fn(args)` of a decorated async function, or a call without arguments as `partial(fn, args)`."""

_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05


class Gathered(NamedTuple):
    """A trajectory, and what its function raised."""

    trajectory: Trajectory
    error: BaseException | None


async def gather_trajectory(
    work: Work, *, grace_seconds: float | None = None, raise_errors: bool = False
) -> Trajectory:
    """Run a function decorated with @rollout and return its trajectory; its own value is `trajectory.result`.

    `await gather_trajectory(agent(task))`, or `gather_trajectory(partial(agent, task))` for a plain function, which
    then runs in a thread. Spans that are still running at its end are waited for, `grace_seconds` at most. An exception
    of the rollout is `trajectory.status` and `.error`; `raise_errors` raises it instead. Raises UsageError where
    nothing records or no rollout began.
    """
    gathered = await gather_one(work, Gathering(), grace_seconds)
    if raise_errors and gathered.error is not None:
        raise gathered.error
    return gathered.trajectory


async def gather_one(work: Work, gathering: Gathering, grace_seconds: float | None) -> Gathered:
    """As `gather_trajectory`, with what was raised. Of several rollouts (a retried one) it is the last."""
    cancelled = _cancellations()
    try:
        # A task of its own: a TaskGroup that fails in the rollout may leave its task counted as cancelled for good.
        result, error = await asyncio.create_task(_outcome(work, gathering))
        if error is not None and (_is_no_outcome(error, gathering) or _cancellations() > cancelled):
            raise error
        if not gathering.rollouts or gathering.recorder is None:
            raise UsageError("no rollout began: decorate the function that is gathered with @art_otel.rollout")
        running = gathering.rollouts[-1]
        trajectory = await _trajectory(running, gathering.recorder, grace_seconds)
    finally:
        gathering.release()
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()  # cancelled before it began, which Python would warn of
    if error is not None and not running.failed:
        raise error
    return Gathered(replace(trajectory, result=result), error)


async def _outcome(work: Work, gathering: Gathering) -> tuple[object, BaseException | None]:
    """What the rollout returned, or raised: a task that raises SystemExit would end the loop and not its caller."""
    try:
        return await _run(work, gathering), None
    except BaseException as raised:  # noqa: BLE001 # raised again where it is not the trajectory's
        return None, raised


def _is_no_outcome(error: BaseException, gathering: Gathering) -> bool:
    """Whether no trajectory can tell it: no rollout began, or it ends the program, as SystemExit does."""
    ends = not isinstance(error, (Exception, asyncio.CancelledError))
    return ends or not gathering.rollouts or error is gathering.refusal


def _cancellations() -> int:
    """How often the task that gathers was cancelled, as against something in the rollout."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _run(work: Work, gathering: Gathering) -> object:
    token = otel_context.attach(with_gathering(gathering))
    try:
        if asyncio.isfuture(work):
            raise UsageError(
                "a task runs already when it is gathered: give the coroutine, fn(args), and not a task of it"
            )
        if inspect.isawaitable(work):
            return await work
        if not callable(work):
            raise UsageError(
                f"{work!r:.100} cannot be gathered: give fn(args) of an async function, or partial(fn, args)"
            )
        function = cast(Callable[[], Any], work)
        result = function() if inspect.iscoroutinefunction(function) else await _in_thread(function)
        return await result if inspect.isawaitable(result) else result
    finally:
        detach(token)


async def _in_thread(function: Callable[[], Any]) -> Any:  # noqa: ANN401 # what the app's function returns
    """In a thread of its own: asyncio's pool has few, and those are the app's."""
    thread = ThreadPoolExecutor(1, "art-otel-rollout")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, copy_context().run, partial(_stopped, function))
    finally:
        thread.shutdown(wait=False)


def _stopped(function: Callable[[], Any]) -> Any:  # noqa: ANN401 # as above
    """A StopIteration as what a coroutine makes of it: a future cannot hold one, and who awaits it would wait on."""
    try:
        return function()
    except StopIteration as stop:
        raise RuntimeError("the rollout raised StopIteration") from stop


async def _trajectory(running: RunningTrajectory, recorder: Recorder, grace_seconds: float | None) -> Trajectory:
    deadline = time.monotonic() + (recorder.grace if grace_seconds is None else grace_seconds)
    pause = _FIRST_PAUSE
    while not recorder.wait(running.rollout_id, 0) and time.monotonic() < deadline:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    found = await asyncio.to_thread(recorder.trajectory, running.rollout_id)
    return _unrecorded(running) if found is None else found


def _unrecorded(running: RunningTrajectory) -> Trajectory:
    """What is known of a rollout whose spans are not held any more."""
    return Trajectory(
        rollout_id=running.rollout_id,
        trace_id=f"{running.span.get_span_context().trace_id:032x}",
        name=running.name,
        status="unfinished",
        incomplete_reasons={MISSING_ROOT: 1},
    )
