"""Run: one run of a rollout, from its span's start to its end, and how it ended.

Invariant: the context that says so is attached only while code of the rollout runs, and each run ends once. The app's
exceptions pass through unchanged; one makes the span an error that carries the exception's type, which is how readers
tell a cancellation from a failure. A generator that nobody reads on (GeneratorExit) and an exit with success did not
fail; a coroutine that is closed before its end was cancelled. Where no SDK records, the code runs as without us.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as with_default
from traceback import walk_tb
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, StatusCode

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.forks import runs_here
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import (
    KeptContext,
    recorder,
    scope_in,
    tracer,
    untrained_label,
    with_rollout,
    with_scope,
    with_untrained,
)
from art_otel.tracing.api.running import RunningTrajectory, field_attributes
from art_otel.tracing.internal_errors import handle_internal_errors

if TYPE_CHECKING:
    from art_otel.live import RolloutCounts

CLOSED: Final = ("asyncio.CancelledError", "CancelledError: its caller no longer waits for it")
"""The error's type and description of a coroutine that was closed while it waited."""


class FunctionCall(NamedTuple):
    """One call of a decorated function."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def arguments(self) -> dict[str, object]:
        """The arguments by name, without those that were not given. Raises TypeError or ValueError as `inspect`."""
        bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        named = {name: value for name, value in bound.arguments.items() if name not in ("self", "cls")}
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                named |= named.pop(parameter.name, {})
        return named


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig:
    """What an app says of its rollouts before they run. `group_id` computes the group id from a call.

    `span_attributes` go on the rollout's span.
    """

    name: str
    span_attributes: Mapping[str, scalars.ScalarValue] = with_default(default_factory=dict[str, scalars.ScalarValue])
    group_id: Callable[..., str] | None = None
    metadata: Mapping[str, object] = with_default(default_factory=dict[str, object])
    capture_args: bool = False
    capture_result: bool = False

    def attributes_of(self, call: FunctionCall | None) -> dict[str, scalars.ScalarValue]:
        """Return the attributes of one rollout's span, without its id.

        Raises UsageError if the app's group id function returns no text; what that function raises is passed on.
        """
        span_attributes = {**self.span_attributes, **scalars.metadata(self.metadata)}
        if call is not None and self.group_id is not None:
            span_attributes |= field_attributes(group_id=self.group_id(*call.args, **call.kwargs))
        if call is not None and self.capture_args:
            with handle_internal_errors:
                span_attributes[attributes.ROLLOUT_ARGUMENTS] = scalars.json_text(call.arguments())
        return span_attributes


class Run(KeptContext):
    """Made by `begin`. As a context manager it ends the run and attaches nothing."""

    __slots__ = ("_ended", "_postponed", "running")

    def __init__(self, running: RunningTrajectory, context: Context) -> None:
        super().__init__(context)
        self.running = running
        self._ended = False
        self._postponed = False

    def postpone(self) -> Self:
        """Leave it running when its block ends well."""
        self._postponed = True
        return self

    def returned(self, config: RolloutConfig, result: object) -> None:
        """Record what its function returned, where that is asked for."""
        if config.capture_result and runs_here(self.running.span):
            with handle_internal_errors:
                self.running.span.set_attribute(attributes.ROLLOUT_RESULT, scalars.json_text(result))

    def end(self, error: BaseException | None = None) -> None:
        """End it, with what its body raised."""
        if self._ended:
            return
        self._ended = True
        self.running.close(error)
        span = self.running.span
        if not runs_here(span):
            return
        with handle_internal_errors:
            self.running.settle()
        with handle_internal_errors:
            self.running.warn_of_lost_calls()
        with handle_internal_errors:
            record_outcome(span, error)
        with handle_internal_errors:
            recording = recorder()
            record_span_counts(span, None if recording is None else recording.counts(self.running.rollout_id))
        with handle_internal_errors:
            span.end()

    def __enter__(self) -> Self:
        self._postponed = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None or not self._postponed:
            self.end(error)


def begin(config: RolloutConfig, call: FunctionCall | None = None) -> Run:
    """Start a run, of a decorated function's call if there is one.

    Raises UsageError where it is gathered and nothing records, or where its group id is no text.
    """
    around = otel_context.get_current()
    scope = scope_in(around)
    rollout_id = os.urandom(16).hex()
    span_attributes = config.attributes_of(call)
    if scope is not None:
        span_attributes = {**scope.span_attributes, **span_attributes}
    if (label := untrained_label(around)) is not None:  # the span that says it may be in no rollout, or elsewhere
        span_attributes.setdefault(attributes.UNTRAINED, label)
    span = _start(config.name, {attributes.ROLLOUT_ID: rollout_id, **span_attributes})
    running = RunningTrajectory(
        rollout_id=rollout_id, span=span, span_attributes=span_attributes, metadata=config.metadata
    )
    if scope is not None:
        try:
            around = with_scope(scope.take(running), around)
        except UsageError:
            span.end()
            raise
    return Run(running, _inside(running, around))


def _start(name: str, span_attributes: dict[str, scalars.ScalarValue]) -> Span:
    with handle_internal_errors:
        return tracer().start_span(f"{attributes.ROLLOUT_SPAN_PREFIX}{name}", attributes=span_attributes)
    return INVALID_SPAN


def _inside(running: RunningTrajectory, around: Context) -> Context:
    """The context of its code. Other services are told only of a rollout that is recorded."""
    span = running.span
    context = with_rollout(running, around, tell_others=span.is_recording())
    if running.untrained is not None:
        context = with_untrained(running.untrained, context)
    return trace.set_span_in_context(span, context) if span.get_span_context().is_valid else context


def record_span_counts(span: Span, counts: "RolloutCounts | None") -> None:
    """Put on a rollout's span how many others it has, so that who reads a dump knows whether all are there."""
    if counts is not None:
        span.set_attribute(attributes.SPANS_STARTED, counts.started)
        span.set_attribute(attributes.SPANS_ENDED, counts.ended)


def record_outcome(span: Span, error: BaseException | None) -> None:
    """Record what a body raised, None for nothing."""
    if error is None or _is_success(error) or not span.is_recording():
        return
    if isinstance(error, GeneratorExit):
        _set_error(span, *CLOSED)
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
    """Describe an exception as the SDK does; None where its text cannot be had."""
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
