"""Outcome: how a rollout or a step ended, on its span.

Invariant: an exception makes it an error that carries the exception's type, which is how readers tell a cancellation
from a failure. A generator that nobody reads on (GeneratorExit) and an exit with success did not fail.
"""

from opentelemetry.trace import Span, StatusCode

from art_otel.tracing.guest import AS_GUEST


def record_outcome(span: Span, error: BaseException | None) -> None:
    """Record what a body raised, None for nothing."""
    if error is None or _is_success(error) or not span.is_recording():
        return
    from art_otel.conventions import ERROR_TYPE  # noqa: PLC0415 # loads all conventions; only failures need it

    kind = type(error)
    known_as = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.set_attribute(ERROR_TYPE, known_as)
    span.set_status(StatusCode.ERROR, _description(error))
    span.record_exception(error)


def _description(error: BaseException) -> str:
    """As the SDK describes an exception; without its words where they cannot be had."""
    name = type(error).__name__
    with AS_GUEST:
        return f"{name}: {error}".removesuffix(": ")
    return name


def _is_success(error: BaseException) -> bool:
    return isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in (None, 0))
