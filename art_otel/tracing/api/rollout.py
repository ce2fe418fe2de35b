"""Rollout: the decorator and the block by which an app marks its rollouts.

Invariant: each call of the function, or each entering of the block, is one rollout with an id of its own. The arguments
of the decorator are checked when the module is imported, not at the first call. A function keeps its kind (plain,
async, generator, async generator), its signature, values and exceptions. A generator's rollout begins with its first
step and ends with its last one; between two steps the reader's code runs, which is not part of the rollout.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from dataclasses import replace
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar, cast, overload

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import detach, running_trajectory
from art_otel.tracing.api.run import FunctionCall, RolloutConfig, Run, begin
from art_otel.tracing.api.running import RunningTrajectory, field_attributes
from art_otel.tracing.internal_errors import warn_once

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context

_P = ParamSpec("_P")
_R = TypeVar("_R")

GroupId: TypeAlias = str | Callable[..., str]
"""A group id, or a function of the rollout's own arguments that returns one."""

_BLOCK: Final = "rollout"
"""The name of a block without a name."""

_OUTSIDE: Final = (
    "what it does while it is read is not in the rollout; put @rollout directly above the generator function"
)


class Rollout:
    """The result of `rollout(…)`: a decorator, and a context manager for `with` and `async with`."""

    def __init__(self, config: RolloutConfig, *, is_named: bool) -> None:
        self._config = config
        self._is_named = is_named
        self._open: list[tuple[Run, Token[Context]]] = []

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """Wrap the function so that each call is a rollout; its name is by default the function's name."""
        _refuse_class(function)
        config = self._config
        if not self._is_named:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            config = replace(
                config, name=name, span_attributes={**config.span_attributes, attributes.ROLLOUT_NAME: name}
            )
        return _decorate(config, function)

    def __enter__(self) -> RunningTrajectory:
        if self._config.group_id is not None:
            raise UsageError("group_id is a function, but a block has no arguments to call it with: give a string")
        run = begin(self._config)
        self._open.append((run, run.attach()))
        return run.running

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        here = running_trajectory()
        # Several tasks may have entered one object at once: end the rollout that runs in this task.
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
    untrained: str | None = None,
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
    untrained: str | None = None,
    capture_args: bool = False,
    capture_result: bool = False,
) -> Callable[_P, _R] | Rollout:
    """Make each call of a function, or a block, a rollout: one run of an agent on one task.

    Write @rollout, @rollout(name=…), `with rollout(name=…) as trajectory:` or `async with rollout(name=…)`. The
    decorated function keeps its signature, return value and exceptions.

    - `name` is the function's name by default.
    - `group_id` names the task. Rollouts with one `group_id` are compared with each other. It is a text, or a function
      that gets the rollout's arguments and returns a text.
    - `split` is train, val, test or another; `attempt` and `training_step` are whole numbers.
    - `untrained` says what the rollout is for, such as `judge`, if the policy does not learn from it. It marks all
      calls of the rollout, and of rollouts inside it.
    - `metadata` holds JSON values.
    - `capture_args` and `capture_result` record the arguments and the return value as `metadata["args"]` and
      `metadata["result"]`. A value that is not JSON is recorded as its repr.

    After an exception, the rollout's status is `error` (after a cancellation `cancelled`). The exception is raised
    unchanged. Raises UsageError for a value of a wrong type; the message names the parameter.
    """
    config = _make_config(
        _BLOCK if name is None else name,
        group_id=group_id,
        split=split,
        attempt=attempt,
        training_step=training_step,
        untrained=untrained,
        metadata=metadata,
        capture_args=capture_args,
        capture_result=capture_result,
    )
    settings = Rollout(config, is_named=name is not None)
    return settings if function is None else settings(function)


def _make_config(
    name: str,
    *,
    group_id: GroupId | None,
    split: str | None,
    attempt: int | None,
    training_step: int | None,
    untrained: str | None,
    metadata: Mapping[str, object] | None,
    **capture: bool,
) -> RolloutConfig:
    """Build the config from the arguments of `rollout()`. Raises UsageError that names a parameter of a wrong type."""
    span_attributes = field_attributes(
        name=name,
        group_id=None if callable(group_id) else group_id,
        split=split,
        attempt=attempt,
        training_step=training_step,
        untrained=untrained,
    )
    if metadata is None or not scalars.is_mapping(metadata, "metadata"):
        metadata = {}
    return RolloutConfig(
        name=str(span_attributes[attributes.ROLLOUT_NAME]),
        span_attributes=span_attributes,
        group_id=group_id if callable(group_id) else None,
        metadata=dict(metadata),
        **capture,
    )


def _refuse_class(function: object) -> None:
    """Raise UsageError for a class, which would no longer be a class, and for what cannot be called (a classmethod)."""
    if inspect.isclass(function):
        raise UsageError(
            f"@rollout goes on a function, and not on the class {function.__qualname__}; put it on the method that runs"
            " one episode"
        )
    if not callable(function):
        raise UsageError(
            f"@rollout goes on a function, and not on {function!r}; put it below @classmethod and the like"
        )


def _decorate(config: RolloutConfig, function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function with a rollout around each call."""
    if inspect.iscoroutinefunction(function):
        return cast(Callable[_P, _R], _coroutine(config, function))
    if inspect.isasyncgenfunction(function):
        return cast(Callable[_P, _R], _async_generator(config, function))
    if inspect.isgeneratorfunction(function):
        return cast(Callable[_P, _R], _generator(config, function))
    return _plain(config, function)


def _plain(config: RolloutConfig, function: Callable[_P, _R]) -> Callable[_P, _R]:
    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with begin(config, FunctionCall(function, args, kwargs)) as running:
            result = running.inside(function, *args, **kwargs)
            if not inspect.iscoroutine(result):
                if running.running.span.is_recording() and (inspect.isgenerator(result) or inspect.isasyncgen(result)):
                    warn_once("rollout %s gives a generator: %s", running.running.name, _OUTSIDE)
                running.returned(config, result)
                return result
            # Another decorator has wrapped an async function in a plain one: the returned coroutine is the rollout.
            later = _awaited(config, running.postpone(), cast(Coroutine[Any, Any, Any], result))
        return cast(_R, later)

    return run


async def _awaited(config: RolloutConfig, run: Run, coroutine: Coroutine[Any, Any, _R]) -> _R:
    with run:
        result = await run.inside_async(coroutine)
        run.returned(config, result)
        return result


def _coroutine(
    config: RolloutConfig, function: Callable[_P, Coroutine[Any, Any, _R]]
) -> Callable[_P, Coroutine[Any, Any, _R]]:
    @wraps(function)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with begin(config, FunctionCall(function, args, kwargs)) as running:
            result = await running.inside_async(function(*args, **kwargs))
            running.returned(config, result)
            return result

    return run


def _generator(
    config: RolloutConfig, function: Callable[_P, Generator[Any, Any, _R]]
) -> Callable[_P, Generator[Any, Any, _R]]:
    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> Generator[Any, Any, _R]:
        with begin(config, FunctionCall(function, args, kwargs)) as running:
            body = function(*args, **kwargs)
            advance: Callable[[], Any] = body.__next__
            while True:
                try:
                    item: object = running.inside(advance)
                except StopIteration as stop:
                    return stop.value
                try:
                    advance = partial(body.send, (yield item))
                except GeneratorExit:
                    running.inside(body.close)
                    raise
                except BaseException as thrown:  # noqa: BLE001 # the reader's `throw()` is meant for the body
                    advance = partial(body.throw, thrown)

    return run


def _async_generator(
    config: RolloutConfig, function: Callable[_P, AsyncGenerator[Any, Any]]
) -> Callable[_P, AsyncGenerator[Any, Any]]:
    @wraps(function)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> AsyncGenerator[Any, Any]:
        with begin(config, FunctionCall(function, args, kwargs)) as running:
            body = function(*args, **kwargs)
            advance: Callable[[], Coroutine[Any, Any, Any]] = partial(body.asend, None)
            while True:
                try:
                    item = await running.inside_async(advance())
                except StopAsyncIteration:
                    return
                try:
                    advance = partial(body.asend, (yield item))
                except GeneratorExit:
                    await running.inside_async(body.aclose())
                    raise
                except BaseException as thrown:  # noqa: BLE001 # as above
                    advance = partial(body.athrow, thrown)

    return run
