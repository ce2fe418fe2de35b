"""Run: one run of a rollout, from its span's start to its end.

Invariant: the context that says so is attached only while code of the rollout runs, and each run ends once. The app's
exceptions pass through unchanged. Where no SDK records, the code runs as it would without us.
"""

import os
from collections.abc import Awaitable, Callable
from contextvars import Token
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.forks import runs_here
from art_otel.tracing.api import scalars
from art_otel.tracing.api.config import Call, RolloutConfig
from art_otel.tracing.api.context import detach, with_rollout
from art_otel.tracing.api.gather_scope import scope_in, with_scope
from art_otel.tracing.api.outcome import record_outcome
from art_otel.tracing.api.recorder import recorder
from art_otel.tracing.api.running.running import RunningTrajectory
from art_otel.tracing.api.span_counts import record_span_counts
from art_otel.tracing.internal_errors import handle_internal_errors
from art_otel.tracing.tracer import tracer

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Run:
    """Made by `begin`. As a context manager it ends the run and attaches nothing."""

    __slots__ = ("_context", "_ended", "_postponed", "running")

    def __init__(self, running: RunningTrajectory, context: Context) -> None:
        self.running = running
        self._context = context
        self._ended = False
        self._postponed = False

    def inside(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call it as code of the rollout. The next call finds the context as this one leaves it."""
        token = otel_context.attach(self._context)
        try:
            return call(*args, **kwargs)
        finally:
            self._context = otel_context.get_current()
            detach(token)

    async def inside_async(self, awaited: Awaitable[_R]) -> _R:
        """As `inside`, until it is there."""
        token = otel_context.attach(self._context)
        try:
            return await awaited
        finally:
            self._context = otel_context.get_current()
            detach(token)

    def attach(self) -> Token[Context]:
        """Make the code from here on code of the rollout, until what this gave is detached."""
        return otel_context.attach(self._context)

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


def begin(config: RolloutConfig, call: Call | None = None) -> Run:
    """Start a run, of a decorated function's call if there is one.

    Raises UsageError where it is gathered and nothing records, or where its group id is no text.
    """
    around = otel_context.get_current()
    scope = scope_in(around)
    rollout_id = os.urandom(16).hex()
    span_attributes = config.attributes_of(call)
    if scope is not None and scope.group_id is not None:
        span_attributes.setdefault(attributes.GROUP_ID, scope.group_id)
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


def _start(name: str, span_attributes: dict[str, scalars.Scalar]) -> Span:
    with handle_internal_errors:
        return tracer().start_span(f"{attributes.ROLLOUT_SPAN_PREFIX}{name}", attributes=span_attributes)
    return INVALID_SPAN


def _inside(running: RunningTrajectory, around: Context) -> Context:
    """The context of its code. Other services are told only of a rollout that is recorded."""
    span = running.span
    context = with_rollout(running, around, tell_others=span.is_recording())
    return trace.set_span_in_context(span, context) if span.get_span_context().is_valid else context
