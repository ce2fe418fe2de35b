"""Outcome: how a rollout or a step ended, on its span.

Invariant: an exception makes it an error that carries the exception's type, which is how readers tell a cancellation
from a failure. A generator that nobody reads on (GeneratorExit) and an exit with success did not fail; a coroutine that
is closed before its end was cancelled.
"""

import inspect
from collections.abc import Iterator
from traceback import walk_tb
from typing import Final, cast

from opentelemetry.trace import Span, StatusCode

_CLOSED: Final = ("asyncio.CancelledError", "CancelledError: nobody waits for it any more")


def record_outcome(span: Span, error: BaseException | None) -> None:
    """Record what a body raised, None for nothing."""
    if error is None or _is_success(error) or not span.is_recording():
        return
    if isinstance(error, GeneratorExit):
        _set_error(span, *_CLOSED)
        return
    meant = _meant(error)
    description = _description(meant)
    _set_error(span, _known_as(meant), type(meant).__name__ if description is None else description)
    if description is not None:  # the SDK asks for the words too
        span.record_exception(meant)


def _set_error(span: Span, error_type: str, description: str) -> None:
    from art_otel.conventions import ERROR_TYPE  # noqa: PLC0415 # loads all conventions; only failures need it

    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(StatusCode.ERROR, description)


def _known_as(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _meant(error: BaseException) -> BaseException:
    """The error; of a group of nothing but cancellations, as a nursery of trio raises, the first of them."""
    from art_otel.conventions import is_cancellation  # noqa: PLC0415 # as above

    raised = list(_raised(error))
    return raised[0] if all(is_cancellation(_known_as(one)) for one in raised) else error


def _raised(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, or the one that is none."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _raised(inner)
    else:
        yield error


def _description(error: BaseException) -> str | None:
    """As the SDK describes an exception; None where its words cannot be had."""
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 # the app's own code
        return None


def _is_success(error: BaseException) -> bool:
    if isinstance(error, GeneratorExit):
        return not _is_of_coroutine(error)
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _is_of_coroutine(closed: GeneratorExit) -> bool:
    """Whether a coroutine was closed while it waited, and not only a generator between two steps."""
    return any(frame.f_code.co_flags & inspect.CO_COROUTINE for frame, _ in walk_tb(closed.__traceback__))
