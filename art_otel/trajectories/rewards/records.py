"""Reward records: a reward and its target become what a trajectory keeps.

Invariant: a record says the nearest call or step at or above its target, and names a choice by its position in the
call. A part that the call does not have is no record.
"""

from typing import Literal

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import BadReward, GivenReward
from art_otel.trajectories.calls.recorded_calls import step_index
from art_otel.trajectories.model import Reward
from art_otel.trajectories.rewards.context import AttributionContext
from art_otel.trajectories.rewards.resolution import Target
from art_otel.trajectories.rollouts.marks import is_reward_span


def make_reward(given: GivenReward, target: Target, context: AttributionContext) -> Reward | BadReward:
    """The record of a reward for a target; bad where it is of a part that the target does not have."""
    span_id, step = _judged(target, context)
    if span_id is None and _is_of_part(given) and target.span is not None:
        span_id = context.call_of.get(target.span.key)  # a call that is a whole rollout by itself
    reward = Reward(
        name=given.name,
        value=given.value,
        step=step,
        target=span_id,
        target_kind=_bystander(target, context),
        source=given.source,
        time_ns=given.time_ns,
        label=given.label,
        explanation=given.explanation,
        choice=given.choice,
        token_start=given.token_start,
        token_end=given.token_end,
        comparison=given.comparison,
    )
    return fit_part(reward, context.calls.get((target.rollout, span_id)))


def fit_part(reward: Reward, call: InferenceCall | None) -> Reward | BadReward:
    """The reward, with the choice that it names by its index as a position; bad where the call has no such part."""
    if not _is_of_part(reward):
        return reward
    if call is None:
        return BadReward(name=reward.name, detail="judges a choice or tokens of what is no call")
    if call.choices is None:
        return reward
    index = reward.choice or 0
    position = next((place for place, choice in enumerate(call.choices) if choice.index == index), None)
    if position is None:
        return BadReward(name=reward.name, detail=f"judges choice {index} of a call that has no such choice")
    sampled = call.choices[position].token_ids
    if reward.token_end is not None and sampled is not None and reward.token_end > len(sampled):
        detail = f"judges tokens up to {reward.token_end} of a completion of {len(sampled)} tokens"
        return BadReward(name=reward.name, detail=detail)
    return reward if position == index else msgspec.structs.replace(reward, choice=position)


def _is_of_part(reward: Reward | GivenReward) -> bool:
    return reward.choice is not None or reward.token_end is not None


def _judged(target: Target, context: AttributionContext) -> tuple[str | None, int | None]:
    """The span id of the call, step, agent or tool that the target is or lies in, and the index of its step.

    (None, None) is the whole rollout, (None, its index) a step that only its index names.
    """
    span = target.span
    if span is None or span is target.rollout.root:
        return None, target.step
    call, step = context.parts[span.key]
    judged = span.span_id if _bystander(target, context) else call
    if step is None:
        return judged, None
    return judged or (None if is_reward_span(step) else step.span_id), step_index(step)


def _bystander(target: Target, context: AttributionContext) -> Literal["agent", "tool"] | None:
    """What the target is, when it is an agent or tool."""
    span = target.span
    if span is None or span is target.rollout.root or span.key in context.call_of:
        return None
    role = context.roles[span.key]
    return role if role in ("agent", "tool") else None
