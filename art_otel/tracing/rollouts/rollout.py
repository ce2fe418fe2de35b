"""Rollout: what an app calls one, by a decorator or a block.

Invariant: each call, or each entering of the block, is a rollout with an id of its own from the operating system.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar, overload

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.rollouts import scalars
from art_otel.tracing.rollouts.context import detach, running_trajectory
from art_otel.tracing.rollouts.decorated import decorate
from art_otel.tracing.rollouts.run import About, Run, begin
from art_otel.tracing.rollouts.running import RunningTrajectory

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Rollout:
    """What `rollout(…)` gives: a decorator, and a context manager for `with` and `async with`."""

    def __init__(self, name: str | None, given: Mapping[str, object], metadata: Mapping[str, object]) -> None:
        self._name = name
        self._given = given
        self._metadata = metadata
        self._open: list[tuple[Run, Token[Context]]] = []

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """The function with a rollout around each call, named as it is."""
        if not callable(function):  # pyright: ignore[reportUnnecessaryComparison] # not every app is typed
            raise UsageError(
                f"@rollout goes on a function, and not on {function!r}; put it below @classmethod and the like"
            )
        return decorate(self._about(getattr(function, "__qualname__", type(function).__qualname__)), function)

    def __enter__(self) -> RunningTrajectory:
        run = begin(self._about("rollout"))
        self._open.append((run, run.attach()))
        return run.running

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        here = running_trajectory()
        # One object may be entered by several tasks at once, so the one that runs here ends.
        found = next((known for known in self._open if known[0].running is here), None) or self._open[-1]
        self._open.remove(found)
        run, token = found
        detach(token)
        run.end(error)

    async def __aenter__(self) -> RunningTrajectory:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def _about(self, default_name: str) -> About:
        name = default_name if self._name is None else self._name
        ours = {attributes.ROLLOUT_NAME: name, **self._given}
        known = {key: scalars.scalar(value, key) for key, value in ours.items() if value is not None}
        return About(
            name=name,
            metadata=self._metadata,
            attributes={**known, **scalars.metadata(self._metadata)},
        )


@overload
def rollout(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...
@overload
def rollout(
    *,
    name: str | None = None,
    group_id: str | None = None,
    metadata: Mapping[str, object] | None = None,
    split: str | None = None,
    attempt: int | None = None,
    training_step: int | None = None,
) -> Rollout: ...
def rollout(
    function: Callable[_P, _R] | None = None,
    /,
    *,
    name: str | None = None,
    group_id: str | None = None,
    metadata: Mapping[str, object] | None = None,
    split: str | None = None,
    attempt: int | None = None,
    training_step: int | None = None,
) -> Callable[_P, _R] | Rollout:
    """Make a function, or a block, a rollout: one run of an agent on one task.

    @rollout, @rollout(name=…), `with rollout(name=…) as trajectory:`, `async with rollout(name=…)`. The name is by
    default the function's. `group_id` is the task whose rollouts are compared, `split` train, val, test or another,
    `attempt` and `training_step` are whole numbers, `metadata` holds JSON scalars. An exception makes its status
    `error` (a cancellation `cancelled`) and goes on.
    """
    given = {
        attributes.GROUP_ID: group_id,
        attributes.SPLIT: split,
        attributes.ROLLOUT_ATTEMPT: attempt,
        attributes.TRAINING_STEP: training_step,
    }
    if metadata is None or not scalars.is_mapping(metadata, "metadata"):
        metadata = {}
    settings = Rollout(name, given, dict(metadata))
    return settings if function is None else settings(function)
