"""Why: the chain that leads to what a completion is trained with: mask, credit, advantage, option.

Invariant: the reasons and numbers are those of the verdict and the turn's reward; sentences only say them.
"""

from typing import Final

from art_otel.trajectories import CompletionSpan
from art_otel.viewer.cures import cure_of
from art_otel.viewer.options import NONE, PlanOptions
from art_otel.viewer.rollout.comparison import Comparison

_OF_CREDIT: Final = {
    "outcome_reward": "the final reward of the rollout",
    "step_reward": "the reward of its step",
    "call_reward": "the reward of its call",
}


def explain_completion(
    span: CompletionSpan, comparison: Comparison, options: PlanOptions, trained_in: dict[int, int]
) -> list[dict[str, str]]:
    """The chain for one completion of a history. `trained_in` says in which history each turn would be trained."""
    return [
        {"step": "mask", "says": _mask(span, comparison, trained_in)},
        {"step": "credit", "says": _credit(span, comparison, options)},
        {"step": "advantage", "says": _advantage(span, comparison, options)},
        {"step": "option", "says": _option(span, comparison)},
    ]


def _mask(span: CompletionSpan, comparison: Comparison, trained_in: dict[int, int]) -> str:
    untrained = comparison.trajectory.turns[span.turn].untrained
    if untrained is not None:
        return f"Not under the mask: {untrained}. {_sentence(cure_of(untrained))}"
    if not span.trained:
        return f"Context here: history {trained_in[span.turn] + 1} is the first that holds it, and trains it."
    return f"Sampled by turn {span.turn}; this history is where it is trained."


def _credit(span: CompletionSpan, comparison: Comparison, options: PlanOptions) -> str:
    reward, what = comparison.turn_rewards[span.turn].reward, _OF_CREDIT[options.credit]
    if comparison.built is None:
        return "Not asked: an option refused the whole rollout."
    if reward is None:
        return f"{options.credit}: {what} is unknown."
    return f"{options.credit}: {what}, {reward:g}."


def _advantage(span: CompletionSpan, comparison: Comparison, options: PlanOptions) -> str:
    turn_reward, group_id = comparison.turn_rewards[span.turn], comparison.trajectory.group_id
    if options.advantage == NONE:
        return "None asked for: every trained token counts alike."
    if turn_reward.advantage is None:
        return "None: there is no usable reward to compare."
    size = len(comparison.members)
    where = "alone, without a group" if group_id is None else f"in group {group_id!r} of {size}"
    return f"{options.advantage} {where}: {turn_reward.advantage:+.6g}."


def _option(span: CompletionSpan, comparison: Comparison) -> str:
    verdict = comparison.verdict
    reason = verdict.completions[span.turn] if verdict.completions else verdict.skipped
    return "Trained." if reason is None else f"Skipped: {reason}. {_sentence(cure_of(reason))}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
