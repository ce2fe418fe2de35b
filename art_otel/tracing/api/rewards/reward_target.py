"""RewardTarget: where a reward goes.

Invariant: it is the target's own span while that runs here, else the rollout, step, call or response that is named, so
that the same is judged whenever and wherever the reward is given. A forked child's copy of that span is not the span.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from opentelemetry.trace import Span, SpanContext, TraceFlags

from art_otel.calls import InferenceCall
from art_otel.errors import UsageError
from art_otel.forks import runs_here
from art_otel.tracing.api.context import current_rollout_id, running_trajectory
from art_otel.tracing.api.rewards.rewarded import Rewarded
from art_otel.tracing.api.running.running import RunningTrajectory
from art_otel.tracing.api.step import Step, current_step
from art_otel.trajectories import Trajectory

Target: TypeAlias = str | Span | SpanContext | RunningTrajectory | Step | InferenceCall | Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardTarget:
    """Where a reward goes. `whole` is the rollout or step that it judges, if that runs in this process.

    `trace_id` is that of the rollout's own span: several runs may have one rollout id. `is_ours` says that this process
    ran it.
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
        """Whether the span that is judged, or that holds what is judged, still runs in this process."""
        return self.span is not None and runs_here(self.span)


def resolve_target(target: Target | None, rollout_id: str | None = None, step: int | None = None) -> RewardTarget:
    """Resolve the arguments of `reward` to its target. Raises UsageError for a target of a wrong type."""
    if isinstance(target, Trajectory):
        return RewardTarget(rollout_id=target.rollout_id, attempt=target.attempt, trace_id=target.trace_id, step=step)
    if isinstance(target, RunningTrajectory):
        return _in_running(target, step)
    if isinstance(target, Step):
        return _of_step(target)
    if isinstance(target, InferenceCall):
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
    """Resolve to the named rollout, else to the one that the calling code runs in."""
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
    """Return a target that names a rollout of this process, without a span."""
    context = running.span.get_span_context()
    return RewardTarget(
        rollout_id=running.rollout_id,
        attempt=running.attempt,
        trace_id=f"{context.trace_id:032x}" if context.is_valid else None,
        is_ours=True,
    )


def _span_context(call: InferenceCall) -> SpanContext:
    return SpanContext(
        trace_id=int(call.trace_id, 16), span_id=int(call.span_id, 16), is_remote=True, trace_flags=TraceFlags(0)
    )
