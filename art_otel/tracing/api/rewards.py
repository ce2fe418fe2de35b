"""Rewards: records rewards for a rollout, a step or a call.

    the target's span runs in this process    an event on that span
    the span has ended, or runs elsewhere     a span `reward {name}` in a new trace, with the rollout's id, and a link
                                              to the target's span if that is known

Invariant: so a reward may be given at any later time, and by another process. A forked child has only a copy of a span
that its parent runs, and that copy counts as running elsewhere.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import index
from typing import Final, TypeAlias

from msgspec import structs
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, TraceFlags

from art_otel import attributes
from art_otel.attributes import REWARD_NAME
from art_otel.calls import CallRecord
from art_otel.conventions import EVALUATION, evaluation_attributes
from art_otel.conventions.rewards import is_part, part_attributes
from art_otel.errors import UsageError
from art_otel.forks import runs_here
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import current_rollout_id, running_trajectory, span_of_named_rollout, tracer
from art_otel.tracing.api.running import Rewarded, RunningTrajectory
from art_otel.tracing.api.step import Step, current_step
from art_otel.tracing.autoload import ENABLED, is_off
from art_otel.tracing.internal_errors import handle_internal_errors, warn_once
from art_otel.trajectories import (
    Call,
    GatheredCall,
    GatheredRollout,
    Reward,
    Trajectory,
    find_gathered,
    note_later_reward,
)

_LOST: Final = (
    "rewards for rollouts that do not run in this process are not recorded, because tracing is not set up in it; call"
    f" art_otel.configure() first, or set {ENABLED}=1, or 0 if this is intended"
)


Rewardable: TypeAlias = str | Span | SpanContext | RunningTrajectory | Step | CallRecord | Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardTarget:
    """The target of a reward.

    - `span`, `context`: the target's span, or its ids. `whole`: the running rollout or step that is judged.
    - `rollout_id`, `attempt`, `trace_id`: of the rollout; `trace_id` tells apart runs with one rollout id.
    - `response_id`: of the judged call. `step`: the index of the judged step.
    - `is_ours`: this process ran the target, so no warning is needed where nothing records.
    """

    span: Span | None = None
    context: SpanContext | None = None
    whole: Rewarded | None = None
    rollout_id: str | None = None
    attempt: int | None = None
    trace_id: str | None = None
    response_id: str | None = None
    step: int | None = None
    is_ours: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the target's span still runs in this process, so that it can take an event."""
        return self.span is not None and runs_here(self.span)


def reward(  # noqa: PLR0913 # each says another thing about the reward, by its name
    value: float | None,
    name: str = REWARD_NAME,
    *,
    target: Rewardable | None = None,
    rollout_id: str | None = None,
    step: int | None = None,
    choice: int | None = None,
    tokens: tuple[int, int] | None = None,
    label: str | None = None,
    explanation: str | None = None,
) -> None:
    """Give a reward to a rollout, a step or a call; also later, and from another process.

    - Without a target, it judges the running step, or otherwise the running rollout. A request or task counts as a
      rollout if the name of its span makes it one (`rollout_spans`).
    - `target` is the id of a response (for its call), a span or its context, a recorded call or trajectory, or a
      running trajectory or step.
    - `rollout_id` names a rollout, which may run elsewhere. `step` is the index of a step of the rollout.
    - A recorded trajectory, or a call of one, stays as it is. But `art_otel.batches`, exports and files of trajectories
      that you have in hand see it with the reward. So they do if you gathered it and name its id.
    - If the target is a call, `choice` is the index of one choice, and `tokens` is a range (start, end) of its
      completion's token ids. The end is exclusive.
    - `value` may be None if there is a `label`.

    These are refused with a warning: a value that is not a finite number, a range that is empty or negative, and a
    reward outside every rollout that names no rollout. Raises UsageError for a target of a wrong type.
    """
    number = None if value is None else scalars.reward(value, name)
    if number is None and (value is not None or label is None):
        return
    part = _part(name, target, choice, tokens)
    if part is None:
        return
    if target is None and rollout_id is None and current_rollout_id() is None:
        target = span_of_named_rollout()
    if target is None and rollout_id is None and current_rollout_id() is None:
        warn_once(
            "reward() outside of a rollout records nothing: name what it judges with target=… or rollout_id=…. "
            "Threads and pools start without their rollout: wrap the function with art_otel.in_context(function)"
        )
        return
    index_of_step = None if step is None else scalars.whole(step)
    if step is not None and index_of_step is None:
        warn_once("reward %r names no step and is not recorded: a step's index is a whole number", name)
        return
    reward_target = resolve_target(target, rollout_id, index_of_step)
    with handle_internal_errors:
        event_attributes = evaluation_attributes(
            name, number, label=label, explanation=explanation, response_id=reward_target.response_id
        )
        now = time.time_ns()
        is_recorded = give(name, number, reward_target, {**event_attributes, **part}, now)
        judged = _gathered(target, reward_target)
        if judged is not None:
            given = Reward(
                name=name, value=number, label=label, explanation=explanation, source="reward_span", time_ns=now,
                step=judged.step if isinstance(judged, Call | GatheredCall) else index_of_step,
            )  # fmt: skip
            if isinstance(judged, Call | GatheredCall):
                start, end = tokens or (None, None)
                given = structs.replace(given, target=judged.span_id, choice=choice, token_start=start, token_end=end)
            note_later_reward(judged, given)
        if not (is_recorded or reward_target.is_ours or is_off()):
            warn_once(_LOST)


def _gathered(
    target: Rewardable | None, reward_target: RewardTarget
) -> Trajectory | Call | GatheredRollout | GatheredCall | None:
    """The gathered trajectory or call that is judged, given itself or by its id; None where this process has none."""
    if isinstance(target, Trajectory | Call):
        return target
    if reward_target.span is not None or reward_target.context is not None or reward_target.trace_id is not None:
        return None
    gathered = find_gathered(reward_target.rollout_id, reward_target.response_id)
    if len(gathered) > 1:
        warn_once(
            "several gathered trajectories have the id %r, so its reward reaches none of them: give target=trajectory,"
            " or target=trajectory.calls[…]",
            reward_target.response_id or reward_target.rollout_id,
        )
        return None
    return next(iter(gathered), None)


def give(
    name: str, value: float | None, reward_target: RewardTarget, event_attributes: Mapping[str, str | float], now: int
) -> bool:
    """Record a reward at its target. `now` is in nanoseconds since the epoch; `event_attributes` go on the event.

    Returns False if nothing records in this process.
    """
    if reward_target.span is not None and reward_target.is_running:
        reward_target.span.add_event(EVALUATION, event_attributes, now)
        if reward_target.whole is not None and value is not None:
            reward_target.whole.note_name(name)
        if reward_target.whole is not None and name == REWARD_NAME and value is not None:
            reward_target.whole.note_given(value)
        return True
    about: dict[str, str | int] = {}
    if reward_target.rollout_id is not None:
        about[attributes.ROLLOUT_ID] = reward_target.rollout_id
    if reward_target.attempt is not None:
        about[attributes.ROLLOUT_ATTEMPT] = reward_target.attempt
    if reward_target.trace_id is not None:
        about[attributes.ROLLOUT_TRACE_ID] = reward_target.trace_id
    if reward_target.step is not None and reward_target.context is None:
        about[attributes.STEP_INDEX] = reward_target.step
    links = [] if reward_target.context is None or not reward_target.context.is_valid else [Link(reward_target.context)]
    called = f"{attributes.REWARD_SPAN_PREFIX}{name}"
    # A trace of its own: the reward must not become a part of the rollout that happens to run here.
    span = tracer().start_span(called, context=Context(), attributes=about, links=links)
    span.add_event(EVALUATION, event_attributes, now)
    span.end()
    return span.get_span_context().is_valid


def _part(
    name: str, target: Rewardable | None, choice: int | None, tokens: tuple[int, int] | None
) -> Mapping[str, int] | None:
    """The attributes for the judged part of a call; None, with a warning, for an impossible part."""
    if choice is None and tokens is None:
        return {}
    if not isinstance(target, (str, Span, SpanContext, CallRecord)):
        raise UsageError("reward(): choice and tokens are parts of a call: name the call with target=…")
    try:
        start, end = (None, None) if tokens is None else map(index, tokens)
        chosen = None if choice is None else index(choice)
    except (TypeError, ValueError):
        start, end, chosen = 0, 0, None
    if not is_part(chosen, start, end):
        warn_once("reward %r names no part of a call and is not recorded: choice %r, tokens %r", name, choice, tokens)
        return None
    return part_attributes(chosen, start, end)


def resolve_target(target: Rewardable | None, rollout_id: str | None = None, step: int | None = None) -> RewardTarget:
    """Resolve the arguments of `reward` to its target. Raises UsageError for a target of a wrong type."""
    if isinstance(target, Trajectory):
        return RewardTarget(rollout_id=target.rollout_id, attempt=target.attempt, trace_id=target.trace_id, step=step)
    if isinstance(target, RunningTrajectory):
        return _in_running(target, step)
    if isinstance(target, Step):
        return _of_step(target)
    if isinstance(target, CallRecord):
        return RewardTarget(context=_span_context(target), rollout_id=rollout_id)
    if isinstance(target, SpanContext):
        return RewardTarget(context=target, rollout_id=rollout_id, is_ours=not target.is_valid)
    if isinstance(target, Span):
        return RewardTarget(span=target, context=target.get_span_context(), rollout_id=rollout_id, is_ours=True)
    if target is not None and not isinstance(target, str):  # pyright: ignore[reportUnnecessaryIsInstance] # not every app is typed
        kind = type(target).__qualname__
        raise UsageError(f"target of type {kind}: give a response's id, a span, a step, a call or a trajectory")
    return _around(target, rollout_id, step)


def _around(response_id: str | None, rollout_id: str | None, step: int | None) -> RewardTarget:
    """The named rollout as target, else the rollout (or its open step) in which the calling code runs."""
    running = running_trajectory()
    if running is None or rollout_id not in (None, running.rollout_id):
        return RewardTarget(rollout_id=rollout_id or current_rollout_id(), response_id=response_id, step=step)
    if response_id is not None:
        return replace(_of_run(running), span=running.span, response_id=response_id)
    inside = current_step(running) if step is None and rollout_id is None else None
    return _in_running(running, step) if inside is None else _of_step(inside)


def _in_running(running: RunningTrajectory, step: int | None) -> RewardTarget:
    reward_target = _of_run(running)
    if step is None:
        return replace(reward_target, span=running.span, context=running.span.get_span_context(), whole=running)
    started_step = running.steps.get(step)
    return replace(reward_target, step=step) if started_step is None else _of_step(started_step)


def _of_step(step: Step) -> RewardTarget:
    reward_target = RewardTarget(is_ours=True) if step.running is None else _of_run(step.running)
    return replace(reward_target, span=step.span, context=step.span.get_span_context(), whole=step, step=step.index)


def _of_run(running: RunningTrajectory) -> RewardTarget:
    """A target that names a rollout of this process, without its span."""
    context = running.span.get_span_context()
    return RewardTarget(
        rollout_id=running.rollout_id,
        attempt=running.attempt,
        trace_id=f"{context.trace_id:032x}" if context.is_valid else None,
        is_ours=True,
    )


def _span_context(call: CallRecord) -> SpanContext:
    return SpanContext(
        trace_id=int(call.trace_id, 16), span_id=int(call.span_id, 16), is_remote=True, trace_flags=TraceFlags(0)
    )
