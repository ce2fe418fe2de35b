"""Reward records: a reward and its target become the `Reward` of a trajectory.

Invariant: a record names the nearest call or step at or above its target, and names a choice by its position in the
call. A part that the call does not have is no record.
"""

from typing import Literal

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import BadReward, RecordedReward
from art_otel.trajectories.calls.recorded_calls import step_index
from art_otel.trajectories.model import Reward
from art_otel.trajectories.rewards.context import AttributionContext
from art_otel.trajectories.rewards.resolution import Target
from art_otel.trajectories.rollouts.marks import is_reward_span


def make_reward(recorded: RecordedReward, target: Target, context: AttributionContext) -> Reward | BadReward:
    """Make the record of a reward for a target; bad if it is for a part that the target does not have."""
    span_id, step = _target_ids(target, context)
    if span_id is None and _is_of_part(recorded) and target.span is not None:
        span_id = context.call_of.get(target.span.key)  # a call that is a whole rollout by itself
    reward = Reward(
        name=recorded.name,
        value=recorded.value,
        step=step,
        target=span_id,
        target_kind=_target_kind(target, context),
        source=recorded.source,
        time_ns=recorded.time_ns,
        label=recorded.label,
        explanation=recorded.explanation,
        choice=recorded.choice,
        token_start=recorded.token_start,
        token_end=recorded.token_end,
    )
    return fit_part(reward, context.calls.get((target.rollout, span_id)))


def fit_part(reward: Reward, call: InferenceCall | None) -> Reward | BadReward:
    """Replace the choice's index by its position; bad if the call has no such choice or tokens."""
    if not _is_of_part(reward):
        return reward
    if call is None:
        return BadReward(name=reward.name, detail="judges a choice or tokens of what is no call")
    if call.choices is None:
        return reward
    index = reward.choice or 0
    position = next((at for at, choice in enumerate(call.choices) if choice.index == index), None)
    if position is None:
        return BadReward(name=reward.name, detail=f"judges choice {index} of a call that has no such choice")
    sampled = call.choices[position].token_ids
    if reward.token_end is not None and sampled is not None and reward.token_end > len(sampled):
        detail = f"judges tokens up to {reward.token_end} of a completion of {len(sampled)} tokens"
        return BadReward(name=reward.name, detail=detail)
    return reward if position == index else msgspec.structs.replace(reward, choice=position)


def _is_of_part(reward: Reward | RecordedReward) -> bool:
    return reward.choice is not None or reward.token_end is not None


def _target_ids(target: Target, context: AttributionContext) -> tuple[str | None, int | None]:
    """The span id of the call, step, agent or tool that the target is or lies in, and the index of its step.

    (None, None) is the whole rollout, (None, its index) a step that only its index names.
    """
    span = target.span
    if span is None or span is target.rollout.root:
        return None, target.step
    call, step = context.enclosing[span.key]
    target_id = span.span_id if _target_kind(target, context) else call
    if step is None:
        return target_id, None
    return target_id or (None if is_reward_span(step) else step.span_id), step_index(step)


def _target_kind(target: Target, context: AttributionContext) -> Literal["agent", "tool"] | None:
    """What the target is, when it is an agent or tool."""
    span = target.span
    if span is None or span is target.rollout.root or span.key in context.call_of:
        return None
    role = context.roles[span.key]
    return role if role in ("agent", "tool") else None
