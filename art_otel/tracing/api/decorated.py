"""Decorated: functions whose every call is a rollout.

Invariant: a function stays of its kind (plain, async, generator, async generator), with its signature, values and
exceptions. A generator's rollout begins with its first step and ends with its last; between steps its context is not
attached, so what reads it is not part of the rollout.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, cast

from art_otel.tracing.api.config import Call, RolloutConfig
from art_otel.tracing.api.run import Run, begin
from art_otel.tracing.internal_errors import warn_once

_P = ParamSpec("_P")
_R = TypeVar("_R")

_OUTSIDE = "what that does when it is read is not in the rollout; put @rollout right above the generator function"


def decorate(config: RolloutConfig, function: Callable[_P, _R]) -> Callable[_P, _R]:
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
        with begin(config, Call(function, args, kwargs)) as running:
            result = running.inside(function, *args, **kwargs)
            if not inspect.iscoroutine(result):
                if running.running.span.is_recording() and (inspect.isgenerator(result) or inspect.isasyncgen(result)):
                    warn_once("rollout %s gives a generator: %s", running.running.name, _OUTSIDE)
                running.returned(config, result)
                return result
            # Another decorator's plain function around an async one: the rollout is what it gives to be awaited.
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
        with begin(config, Call(function, args, kwargs)) as running:
            result = await running.inside_async(function(*args, **kwargs))
            running.returned(config, result)
            return result

    return run


def _generator(
    config: RolloutConfig, function: Callable[_P, Generator[Any, Any, _R]]
) -> Callable[_P, Generator[Any, Any, _R]]:
    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> Generator[Any, Any, _R]:
        with begin(config, Call(function, args, kwargs)) as running:
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
                except BaseException as thrown:  # noqa: BLE001 # whatever the reader throws is the body's
                    advance = partial(body.throw, thrown)

    return run


def _async_generator(
    config: RolloutConfig, function: Callable[_P, AsyncGenerator[Any, Any]]
) -> Callable[_P, AsyncGenerator[Any, Any]]:
    @wraps(function)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> AsyncGenerator[Any, Any]:
        with begin(config, Call(function, args, kwargs)) as running:
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
