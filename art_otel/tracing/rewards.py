"""Rewards: what an app says a rollout, a step or a call is worth.

Invariant: a reward stands where its target is: as an event on the target's span while that runs, else on a span
`reward {name}` of its own trace, which carries the rollout's id and links to the target where its span is known. So it
may be given later and by another process.
"""

from dataclasses import dataclass
from typing import TypeAlias

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, TraceFlags

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import EVALUATION, evaluation_attributes
from art_otel.conventions.rewards import REWARD
from art_otel.errors import UsageError
from art_otel.tracing import scalars
from art_otel.tracing.context import current_rollout_id, running_trajectory
from art_otel.tracing.guest import AS_GUEST
from art_otel.tracing.rewarded import Rewarded
from art_otel.tracing.running import RunningTrajectory
from art_otel.tracing.step import Step, current_step
from art_otel.tracing.tracer import tracer
from art_otel.trajectories import Trajectory

Target: TypeAlias = str | Span | SpanContext | RunningTrajectory | Step | InferenceCall | Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where a reward goes. `whole` is what it judges as a whole, if that runs in this process."""

    span: Span | None = None
    context: SpanContext | None = None
    whole: Rewarded | None = None
    rollout_id: str | None = None
    response_id: str | None = None
    step: int | None = None


def reward(
    value: float | None,
    name: str = REWARD,
    *,
    target: Target | None = None,
    rollout_id: str | None = None,
    step: int | None = None,
    label: str | None = None,
    explanation: str | None = None,
) -> None:
    """Say what something is worth; also later, and from another process.

    Without a target it is the running step, else the running rollout. `target` is a response's id (that call), a span
    or its context, a call or a whole trajectory as they were recorded, or a running trajectory or step. `rollout_id`
    names a rollout that may run elsewhere, `step` a step of the rollout by its index. `value` may be None where there
    is a `label`; what is no finite number is refused with a warning. Raises UsageError where nothing says what is
    judged.
    """
    number = None if value is None else scalars.reward(value, name)
    if number is None and (value is not None or label is None):
        return
    place = _place(target, rollout_id, step)
    with AS_GUEST:
        given = evaluation_attributes(name, number, label=label, explanation=explanation, response_id=place.response_id)
        if place.span is not None and place.span.is_recording():
            place.span.add_event(EVALUATION, given)
            if place.whole is not None and name == REWARD and number is not None:
                place.whole.note_given(number)
        else:
            _give_aside(name, place, given)


def _give_aside(name: str, place: _Place, given: dict[str, str | float]) -> None:
    about: dict[str, str | int] = {}
    if place.rollout_id is not None:
        about[attributes.ROLLOUT_ID] = place.rollout_id
    if place.step is not None and place.context is None:
        about[attributes.STEP_INDEX] = place.step
    links = [] if place.context is None or not place.context.is_valid else [Link(place.context)]
    called = f"{attributes.REWARD_SPAN_PREFIX}{name}"
    span = tracer().start_span(called, context=Context(), attributes=about, links=links)
    span.add_event(EVALUATION, given)
    span.end()


def _place(target: Target | None, rollout_id: str | None, step: int | None) -> _Place:
    if isinstance(target, Trajectory):
        return _Place(rollout_id=target.rollout_id, step=step)
    if isinstance(target, RunningTrajectory):
        return _in_running(target, step)
    if isinstance(target, Step):
        return _of_step(target)
    if isinstance(target, InferenceCall):
        return _Place(context=_span_context(target), rollout_id=rollout_id)
    if isinstance(target, SpanContext):
        return _Place(context=target, rollout_id=rollout_id)
    if isinstance(target, Span):
        return _Place(span=target, context=target.get_span_context(), rollout_id=rollout_id)
    if target is not None and not isinstance(target, str):  # pyright: ignore[reportUnnecessaryIsInstance] # not every app is typed
        raise UsageError(f"target={target!r:.100}: give a response's id, a span, a step, a call or a trajectory")
    return _around(target, rollout_id, step)


def _around(response_id: str | None, rollout_id: str | None, step: int | None) -> _Place:
    """In the rollout that is named, else in the one that the code belongs to."""
    running = running_trajectory()
    if running is None or rollout_id not in (None, running.rollout_id):
        named = rollout_id or current_rollout_id()
        if named is None and response_id is None:
            raise UsageError("reward(): no rollout is running here: say what is judged by target=… or rollout_id=…")
        return _Place(rollout_id=named, response_id=response_id, step=step)
    if response_id is not None:
        return _Place(
            span=running.span,
            context=None,
            rollout_id=running.rollout_id,
            response_id=response_id,
        )
    inside = current_step(running) if step is None and rollout_id is None else None
    return _in_running(running, step) if inside is None else _of_step(inside)


def _in_running(running: RunningTrajectory, step: int | None) -> _Place:
    if step is None:
        return _Place(
            span=running.span, context=running.span.get_span_context(), whole=running, rollout_id=running.rollout_id
        )
    known = running.steps.get(step)
    return _Place(rollout_id=running.rollout_id, step=step) if known is None else _of_step(known)


def _of_step(step: Step) -> _Place:
    rollout_id = None if step.running is None else step.running.rollout_id
    return _Place(
        span=step.span, context=step.span.get_span_context(), whole=step, rollout_id=rollout_id, step=step.index
    )


def _span_context(call: InferenceCall) -> SpanContext:
    return SpanContext(
        trace_id=int(call.trace_id, 16), span_id=int(call.span_id, 16), is_remote=True, trace_flags=TraceFlags(0)
    )
