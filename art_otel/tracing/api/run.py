"""Run: one run of a rollout, from the start of its own span to the end, and how it ended.

Invariant: the rollout's context is current only while code of the rollout runs, and each run ends once. The app's
exceptions pass through unchanged. How a run ends on its span:

    returns                                          ok
    raises                                           error, with the exception's type (by which readers tell cancelled)
    a generator is closed, SystemExit with code 0    ok
    a coroutine is closed before its end             cancelled
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
"""The error type and the description for a coroutine that was closed while it waited."""


class FunctionCall(NamedTuple):
    """One call of a decorated function."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def arguments(self) -> dict[str, object]:
        """The given arguments by name, without `self` and `cls`. Raises TypeError or ValueError as `inspect` does."""
        bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        named = {name: value for name, value in bound.arguments.items() if name not in ("self", "cls")}
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                named |= named.pop(parameter.name, {})
        return named


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig:
    """The arguments of `rollout(…)`, checked. `group_id` is the function that computes the group id from a call.

    `span_attributes` go on the rollout's own span.
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
    """A run, made by `begin`. `with run:` ends it; the context is only set by `inside` and `attach`."""

    __slots__ = ("_ended", "_postponed", "running")

    def __init__(self, running: RunningTrajectory, context: Context) -> None:
        super().__init__(context)
        self.running = running
        self._ended = False
        self._postponed = False

    def postpone(self) -> Self:
        """Let the run go on when its block ends without an error: its coroutine has yet to be awaited."""
        self._postponed = True
        return self

    def returned(self, config: RolloutConfig, result: object) -> None:
        """Record the result of the function, if `capture_result` asks for that."""
        if config.capture_result and runs_here(self.running.span):
            with handle_internal_errors:
                self.running.span.set_attribute(attributes.ROLLOUT_RESULT, scalars.json_text(result))

    def end(self, error: BaseException | None = None) -> None:
        """End the run once, with the exception of its body. A second call does nothing."""
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
    """Start a run, for a call of a decorated function or (None) for a block.

    Raises UsageError if the run is gathered and nothing records, or if the group id is no text.
    """
    around = otel_context.get_current()
    scope = scope_in(around)
    rollout_id = os.urandom(16).hex()
    span_attributes = config.attributes_of(call)
    if scope is not None:
        span_attributes = {**scope.span_attributes, **span_attributes}
    # The span of `untrained(…)` around it may be in no rollout, or in another process: then no reader would find it.
    if (label := untrained_label(around)) is not None:
        span_attributes.setdefault(attributes.UNTRAINED, label)
    span = _start(config.name, around, {attributes.ROLLOUT_ID: rollout_id, **span_attributes})
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


def _start(name: str, around: Context, span_attributes: dict[str, scalars.ScalarValue]) -> Span:
    with handle_internal_errors:
        return tracer().start_span(f"{attributes.ROLLOUT_SPAN_PREFIX}{name}", around, attributes=span_attributes)
    return INVALID_SPAN


def _inside(running: RunningTrajectory, around: Context) -> Context:
    """The context for the rollout's code. Other services get its id only if it is recorded."""
    span = running.span
    context = with_rollout(running, around, tell_others=span.is_recording())
    if running.untrained is not None:
        context = with_untrained(running.untrained, context)
    return trace.set_span_in_context(span, context) if span.get_span_context().is_valid else context


def record_span_counts(span: Span, counts: "RolloutCounts | None") -> None:
    """Put on a rollout's own span how many other spans it has, so that readers of a dump see whether all are there."""
    if counts is not None:
        span.set_attribute(attributes.SPANS_STARTED, counts.started)
        span.set_attribute(attributes.SPANS_ENDED, counts.ended)


def record_outcome(span: Span, error: BaseException | None) -> None:
    """Record on a span the exception that its body raised; nothing for None and for what counts as success."""
    if error is None or _is_success(error) or not span.is_recording():
        return
    if isinstance(error, GeneratorExit):
        set_error(span, *CLOSED)
        return
    meant = _meant(error)
    description = _description(meant)
    set_error(span, _known_as(meant), type(meant).__name__ if description is None else description)
    if description is not None:  # else `str(error)` raises, and the SDK would call it as well
        span.record_exception(meant)


def set_error(span: Span, error_type: str, description: str) -> None:
    """Mark the span as failed, with the error's message.

    The message is kept because it may tell a fault of the policy, such as a prompt that is too long, from an outage.
    """
    from art_otel.conventions import ERROR_TYPE  # noqa: PLC0415 # loads all conventions; only failures need it

    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(StatusCode.ERROR, description)


def _known_as(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _meant(error: BaseException) -> BaseException:
    """The error itself; but for a group of nothing but cancellations (trio's nurseries raise such), the first one."""
    from art_otel.conventions import is_cancellation  # noqa: PLC0415 # as above

    raised = list(_raised(error))
    return raised[0] if all(is_cancellation(_known_as(one)) for one in raised) else error


def _raised(error: BaseException) -> Iterator[BaseException]:
    """The exceptions inside of a group, at any depth; the exception itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _raised(inner)
    else:
        yield error


def _description(error: BaseException) -> str | None:
    """Describe an exception as the SDK does; None where its own `__str__` raises."""
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 # the app's own code
        return None


def _is_success(error: BaseException) -> bool:
    if isinstance(error, GeneratorExit):
        return not _is_of_coroutine(error)
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _is_of_coroutine(closed: GeneratorExit) -> bool:
    """Whether a waiting coroutine was closed (a cancellation), and not just a generator (its reader stopped)."""
    return any(frame.f_code.co_flags & inspect.CO_COROUTINE for frame, _ in walk_tb(closed.__traceback__))
