"""Decorated: functions whose every call is a rollout.

Invariant: a function stays of its kind (plain, async, generator, async generator), with its signature, values and
exceptions. A generator's rollout begins with its first step and ends with its last; between steps its context is not
attached, so what reads it is not part of the rollout.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, cast

from art_otel.tracing.run import About, Run, begin

_P = ParamSpec("_P")
_R = TypeVar("_R")


def decorate(about: About, function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function with a rollout around each call."""
    start = partial(begin, about)
    if inspect.iscoroutinefunction(function):
        return cast(Callable[_P, _R], _coroutine(start, function))
    if inspect.isasyncgenfunction(function):
        return cast(Callable[_P, _R], _async_generator(start, function))
    if inspect.isgeneratorfunction(function):
        return cast(Callable[_P, _R], _generator(start, function))
    return _plain(start, function)


def _plain(start: Callable[[], Run], function: Callable[_P, _R]) -> Callable[_P, _R]:
    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with start() as running:
            result = running.inside(function, *args, **kwargs)
            later = _later(running, function, result)
            if later is None:
                return result
            running.postpone()
        return cast(_R, later())

    return run


def _later(running: Run, function: Callable[..., object], result: object) -> Callable[[], object] | None:
    """What gives a plain function's result as code of the rollout, where that is still to run.

    So it is where another decorator's plain function stands around one that is async or a generator.
    """
    if inspect.iscoroutine(result):
        return _coroutine(lambda: running, wraps(function)(lambda: result))
    if inspect.isasyncgen(result):
        return _async_generator(lambda: running, wraps(function)(lambda: result))
    if inspect.isgenerator(result):
        return _generator(lambda: running, wraps(function)(lambda: result))
    return None


def _coroutine(
    start: Callable[[], Run], function: Callable[_P, Coroutine[Any, Any, _R]]
) -> Callable[_P, Coroutine[Any, Any, _R]]:
    @wraps(function)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with start() as running:
            return await running.inside_async(function(*args, **kwargs))

    return run


def _generator(
    start: Callable[[], Run], function: Callable[_P, Generator[Any, Any, _R]]
) -> Callable[_P, Generator[Any, Any, _R]]:
    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> Generator[Any, Any, _R]:
        with start() as running:
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
    start: Callable[[], Run], function: Callable[_P, AsyncGenerator[Any, Any]]
) -> Callable[_P, AsyncGenerator[Any, Any]]:
    @wraps(function)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> AsyncGenerator[Any, Any]:
        with start() as running:
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
