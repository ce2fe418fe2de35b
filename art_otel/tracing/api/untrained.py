"""Untrained: marks parts of an app whose calls are not trained, such as a judge or a user simulator.

Invariant: marked calls are recorded as all others, with a label that says what they are for. The mark is an attribute
of a span around the calls, so it works across processes and is in every dump. A decorated function keeps its signature,
values and exceptions.
"""

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import detach, tracer, with_untrained
from art_otel.tracing.api.run import record_outcome
from art_otel.tracing.internal_errors import handle_internal_errors

if TYPE_CHECKING:
    from contextvars import Token

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Entered(NamedTuple):
    """One entering of a block: its span, and the context for its code."""

    span: Span
    context: Context
    token: "Token[Context]"


class Untrained:
    """The result of `untrained(…)`: a decorator, and a context manager for `with` and `async with`."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._entered: list[_Entered] = []

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """Wrap a plain or async function so that the calls it makes are marked. Raises UsageError for others."""
        if not callable(function) or inspect.isclass(function) or _is_generator(function):  # pyright: ignore[reportUnnecessaryComparison] # not every app is typed
            raise UsageError(f"@untrained goes on a function that returns its result, and not on {function!r}")
        if inspect.iscoroutinefunction(function):
            return cast(Callable[_P, _R], _coroutine(self._label, function))
        return _plain(self._label, function)

    def __enter__(self) -> None:
        span = _start(self._label)
        context = with_untrained(self._label)  # also if nothing is recorded here: a gateway may record the calls
        if span.get_span_context().is_valid:
            context = trace.set_span_in_context(span, context)
        self._entered.append(_Entered(span, context, otel_context.attach(context)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        here = otel_context.get_current()
        # Several tasks may have entered one object at once: end the block of this task.
        entered = next((one for one in reversed(self._entered) if one.context is here), self._entered[-1])
        self._entered.remove(entered)
        detach(entered.token)
        with handle_internal_errors:
            record_outcome(entered.span, error)
        with handle_internal_errors:
            entered.span.end()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


def untrained(label: str) -> Untrained:
    """Mark the LLM calls of a block or a function: the policy does not learn from them.

    Write `with untrained("judge"): …`, `async with untrained("judge"): …`, or @untrained("judge") on a plain or async
    function. The calls are recorded, and each has the label as its `marked_untrained`. So have the calls of functions,
    tools, rollouts and traced services that are called inside. Raises UsageError if the label is no text or is empty.
    """
    return Untrained(scalars.label(label, "the label of untrained()"))


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _plain(label: str, function: Callable[_P, _R]) -> Callable[_P, _R]:
    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with Untrained(label):
            result = function(*args, **kwargs)
        if not inspect.iscoroutine(result):
            return result
        # Another decorator has wrapped an async function in a plain one: the calls are made when this is awaited.
        return cast(_R, _awaited(label, cast(Coroutine[Any, Any, Any], result)))

    return run


def _coroutine(label: str, function: Callable[_P, Coroutine[Any, Any, _R]]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    @wraps(function)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await _awaited(label, function(*args, **kwargs))

    return run


async def _awaited(label: str, coroutine: Coroutine[Any, Any, _R]) -> _R:
    with Untrained(label):
        return await coroutine


def _start(label: str) -> Span:
    with handle_internal_errors:
        name = f"{attributes.UNTRAINED_SPAN_PREFIX}{label}"
        return tracer().start_span(name, attributes={attributes.UNTRAINED: label})
    return INVALID_SPAN
