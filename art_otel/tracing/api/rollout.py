"""Rollout: what an app calls one, by a decorator or a block.

Invariant: each call, or each entering of the block, is a rollout with an id of its own from the operating system.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar, overload

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.api.config import GroupId, RolloutConfig, make_config, refuse_class
from art_otel.tracing.api.context import detach, running_trajectory
from art_otel.tracing.api.decorated import decorate
from art_otel.tracing.api.run import Run, begin
from art_otel.tracing.api.running.running import RunningTrajectory

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context

_P = ParamSpec("_P")
_R = TypeVar("_R")

_BLOCK = "rollout"
"""The name of a block that was given none."""


class Rollout:
    """What `rollout(…)` gives: a decorator, and a context manager for `with` and `async with`."""

    def __init__(self, config: RolloutConfig, *, is_named: bool) -> None:
        self._config = config
        self._is_named = is_named
        self._open: list[tuple[Run, Token[Context]]] = []

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """Wrap the function so that each call is a rollout, by default of the function's name."""
        refuse_class(function)
        config = self._config
        if not self._is_named:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            config = replace(
                config, name=name, span_attributes={**config.span_attributes, attributes.ROLLOUT_NAME: name}
            )
        return decorate(config, function)

    def __enter__(self) -> RunningTrajectory:
        if self._config.group_id is not None:
            raise UsageError("group_id is a function, and a block has no arguments to call it with: give a text")
        run = begin(self._config)
        self._open.append((run, run.attach()))
        return run.running

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        here = running_trajectory()
        # One object may be entered by several tasks at once, so the one that runs here ends.
        opened = next((entered for entered in self._open if entered[0].running is here), None) or self._open[-1]
        self._open.remove(opened)
        run, token = opened
        detach(token)
        run.end(error)

    async def __aenter__(self) -> RunningTrajectory:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


@overload
def rollout(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...
@overload
def rollout(
    *,
    name: str | None = None,
    group_id: GroupId | None = None,
    metadata: Mapping[str, object] | None = None,
    split: str | None = None,
    attempt: int | None = None,
    training_step: int | None = None,
    capture_args: bool = False,
    capture_result: bool = False,
) -> Rollout: ...
def rollout(  # noqa: PLR0913 # each says another thing about the rollout, by its name
    function: Callable[_P, _R] | None = None,
    /,
    *,
    name: str | None = None,
    group_id: GroupId | None = None,
    metadata: Mapping[str, object] | None = None,
    split: str | None = None,
    attempt: int | None = None,
    training_step: int | None = None,
    capture_args: bool = False,
    capture_result: bool = False,
) -> Callable[_P, _R] | Rollout:
    """Make each call of a function, or a block, a rollout: one run of an agent on one task.

    Write @rollout, @rollout(name=…), `with rollout(name=…) as trajectory:` or `async with rollout(name=…)`. The
    decorated function keeps its signature, values and exceptions.

    - `name` is the function's name by default.
    - `group_id` names the task whose rollouts are compared with each other: a text, or a function that is called with
      the rollout's own arguments and returns one.
    - `split` is train, val, test or another; `attempt` and `training_step` are whole numbers.
    - `metadata` holds JSON values.
    - `capture_args` and `capture_result` record what the function was called with and what it returned, as
      `metadata["args"]` and `metadata["result"]`: JSON values, and the repr of what is none.

    An exception makes the rollout's status `error` (a cancellation `cancelled`) and is raised as it is. Raises
    UsageError that names the parameter for a value of a wrong type.
    """
    config = make_config(
        _BLOCK if name is None else name,
        group_id=group_id,
        split=split,
        attempt=attempt,
        training_step=training_step,
        metadata=metadata,
        capture_args=capture_args,
        capture_result=capture_result,
    )
    settings = Rollout(config, is_named=name is not None)
    return settings if function is None else settings(function)
