"""Step: a numbered part of a rollout, which can get a reward of its own.

Invariant: calls that are made while a step is open belong to the step. Steps of a rollout are numbered 0, 1, 2, …
unless the app gives an index.
"""

from collections.abc import Mapping, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, Span

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import detach, running_trajectory, tracer, with_untrained
from art_otel.tracing.api.run import record_outcome
from art_otel.tracing.api.running import Rewarded, RunningTrajectory
from art_otel.tracing.api.scalars import JsonFields
from art_otel.tracing.internal_errors import handle_internal_errors, warn_once

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context

_STEP: Final = otel_context.create_key("art-otel-step")


class Step(Rewarded):
    """One step. Set its `reward`, and data for its calls: `env_state[name]` and `extra[name]`, which are JSON values.

    `index` is None if the step belongs to no rollout. A value that is not JSON raises UsageError.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("reward", "env_state", "extra")

    def __init__(self, running: RunningTrajectory | None, index: int | None, span: Span) -> None:
        super().__init__(span)
        self._running = running
        self._index = index
        self._env_state = JsonFields("env_state")
        self._extra = JsonFields("extra")

    @property
    def env_state(self) -> MutableMapping[str, Any]:
        """The state of the environment, written when the step ends."""
        return self._env_state

    @env_state.setter
    def env_state(self, state: Mapping[str, Any]) -> None:
        self._env_state = _json_object("env_state", state)

    @property
    def extra(self) -> MutableMapping[str, Any]:
        """Any other data about the step. It is written when the step ends."""
        return self._extra

    @extra.setter
    def extra(self, extra: Mapping[str, Any]) -> None:
        self._extra = _json_object("extra", extra)

    @property
    def running(self) -> RunningTrajectory | None:
        """The rollout that the step belongs to; None outside of rollouts."""
        return self._running

    @property
    def title(self) -> str:
        """The name of the step in warnings."""
        return f"step {self.index} of {'no rollout' if self.running is None else self.running.title}"

    @property
    def index(self) -> int | None:
        """The step's number in the rollout."""
        return self._index

    def settle(self) -> None:
        """End the step and its span. Only the span's context is kept, for rewards that come later."""
        for name, kept in ((attributes.ENV_STATE, self._env_state), (attributes.EXTRA, self._extra)):
            if kept:
                self.span.set_attribute(name, scalars.json_text(dict(kept)))
        super().settle()
        self.span.end()
        # The SDK's span holds all its attributes, and the app may keep the step: a later reward needs the ids only.
        self._span = NonRecordingSpan(self.span.get_span_context())


def _json_object(field: str, value: object) -> JsonFields:
    if not isinstance(value, Mapping):
        raise UsageError(f"{field} is of type {type(value).__qualname__}: give a mapping of names to JSON values")
    checked = JsonFields(field)
    checked.update(cast(Mapping[str, Any], value))
    return checked


class OpenStep:
    """The result of `step(…)`: a context manager for `with` and `async with`, to be entered once."""

    def __init__(self, index: int | None, name: str | None, untrained: str | None) -> None:
        self._asked = (index, name, untrained)
        self._opened: tuple[Step, Token[Context]] | None = None

    def __enter__(self) -> Step:
        opened = _begin(*self._asked)
        context = otel_context.set_value(_STEP, opened)
        _, _, untrained = self._asked
        if untrained is not None:
            context = with_untrained(untrained, context)
        if opened.span.get_span_context().is_valid:
            context = trace.set_span_in_context(opened.span, context)
        self._opened = (opened, otel_context.attach(context))
        return opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._opened is None:
            return
        (opened, token), self._opened = self._opened, None
        detach(token)
        with handle_internal_errors:
            record_outcome(opened.span, error)
        with handle_internal_errors:
            opened.settle()

    async def __aenter__(self) -> Step:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


def step(index: int | None = None, name: str | None = None, *, untrained: str | None = None) -> OpenStep:
    """Open the next step of the running rollout, or the step with this index.

    `with step() as this: …; this.reward = 0.5`. `name` is for people; it becomes a part of the span's name. `untrained`
    says what the step's calls are for, if the policy does not learn from them. Outside every rollout, nothing is
    recorded. Raises UsageError if `untrained` is no text.
    """
    return OpenStep(index, name, None if untrained is None else scalars.label(untrained, "untrained"))


def current_step(running: RunningTrajectory) -> Step | None:
    """Return the innermost open step around the calling code, if it belongs to this rollout."""
    innermost = cast(Step | None, otel_context.get_value(_STEP))
    return innermost if innermost is not None and innermost.running is running else None


def _begin(index: int | None, name: str | None, untrained: str | None) -> Step:
    running = running_trajectory()
    if running is None:
        warn_once("step() outside of a rollout records nothing: open a rollout around it")
        return Step(None, index, INVALID_SPAN)
    requested = None if index is None else scalars.whole(index)
    if index is not None and requested is None:
        warn_once("a step's index must be an int of at most 64 bits; the next number is used instead")
    with handle_internal_errors:
        number = running.number_step(requested)
        called = f"{attributes.STEP_SPAN_PREFIX}{number}" + (f" {name}" if name else "")
        mark = {} if untrained is None else {attributes.UNTRAINED: untrained}
        span = tracer().start_span(called, attributes={attributes.STEP_INDEX: number, **mark})
        started = running.steps[number] = Step(running, number, span)
        return started
    return Step(running, requested, INVALID_SPAN)
