"""Tool: the decorator for functions whose calls are recorded as tool executions.

Invariant: each call is one standard `execute_tool` span with the arguments and the result, around all that the function
does. The function keeps its signature, values and exceptions. Where nothing records, it runs as without the decorator.
"""

import inspect
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast, overload

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, Span

from art_otel.errors import UsageError
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import detach, tracer
from art_otel.tracing.api.run import FunctionCall, record_outcome
from art_otel.tracing.internal_errors import handle_internal_errors

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def tool(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...
@overload
def tool(*, name: str | None = None) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
def tool(
    function: Callable[_P, _R] | None = None, /, *, name: str | None = None
) -> Callable[_P, _R] | Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Record each call of a function as a tool execution. The executions are in `trajectory.tool_calls`.

    Put @tool or @tool(name=…) on a plain or async function. The name should be the one that the model knows; the
    default is the function's name. The span has the arguments by name and the result, as JSON values (the repr of other
    values), the times, and the exception. If exactly one tool call of the model has the same name and arguments, the
    execution has a link to its turn. Raises UsageError for a class or a generator function.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        if not callable(function) or inspect.isclass(function) or _is_generator(function):  # pyright: ignore[reportUnnecessaryComparison] # not every app is typed
            raise UsageError(f"@tool goes on a function that returns its result, and not on {function!r}")
        called = name or getattr(function, "__name__", type(function).__name__)
        if inspect.iscoroutinefunction(function):
            return cast(Callable[_P, _R], _coroutine(called, function))
        return _plain(called, function)

    return decorate if function is None else decorate(function)


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _plain(name: str, function: Callable[_P, _R]) -> Callable[_P, _R]:
    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _execution(name, FunctionCall(function, args, kwargs)) as span:
            result = function(*args, **kwargs)
            _record_result(span, result)
            return result

    return run


def _coroutine(name: str, function: Callable[_P, Coroutine[Any, Any, _R]]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    @wraps(function)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _execution(name, FunctionCall(function, args, kwargs)) as span:
            result = await function(*args, **kwargs)
            _record_result(span, result)
            return result

    return run


@contextmanager
def _execution(name: str, call: FunctionCall) -> Generator[Span]:
    """Make the span of one execution the current one inside the block. Exceptions of the block go through."""
    span = _start(name, call)
    if not span.get_span_context().is_valid:
        yield span
        return
    token = otel_context.attach(trace.set_span_in_context(span))
    error: BaseException | None = None
    try:
        yield span
    except BaseException as raised:
        error = raised
        raise
    finally:
        detach(token)
        with handle_internal_errors:
            record_outcome(span, error)
        with handle_internal_errors:
            span.end()


def _start(name: str, call: FunctionCall) -> Span:
    with handle_internal_errors:
        from art_otel.conventions import execution_name  # noqa: PLC0415 # loads all conventions

        span = tracer().start_span(execution_name(name))
        if span.is_recording():
            _record_call(span, name, call)
        return span
    return INVALID_SPAN


def _record_call(span: Span, name: str, call: FunctionCall) -> None:
    from art_otel.conventions import execution_attributes  # noqa: PLC0415 # as above

    try:
        arguments = scalars.json_text(call.arguments())
    except (TypeError, ValueError):  # the arguments do not fit, or it is a builtin without a signature
        arguments = None
    span.set_attributes(execution_attributes(name, arguments))


def _record_result(span: Span, result: object) -> None:
    if span.is_recording() and result is not None:
        with handle_internal_errors:
            from art_otel.conventions import result_attributes  # noqa: PLC0415 # as above

            is_plain = type(result) in (str, bool, float) or (type(result) is int and scalars.whole(result) is not None)
            recorded = cast(scalars.ScalarValue, result) if is_plain else scalars.json_text(result)
            span.set_attributes(result_attributes(recorded))
