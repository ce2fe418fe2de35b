"""Tree: the turns of a trajectory, what each continues, and where ids and messages disagree."""

from collections.abc import Sequence
from typing import Any, Final

from art_otel.calls import TokenIds
from art_otel.trajectories import Trajectory, Turn
from art_otel.viewer.tokens import Tokenizer

_AROUND: Final = 8
"""Ids before a drift."""

_AFTER: Final = 24
"""Ids from a drift on."""

_LABEL: Final = 80


def show_turns(
    trajectory: Trajectory, verdicts: Sequence[str | None] | None, tokenizer: Tokenizer | None
) -> list[dict[str, Any]]:
    """The turns in their order. `verdicts` are those of the default options, None where they are unknown."""
    return [
        _turn(trajectory, position, tokenizer)
        | {"verdict": None if verdicts is None else verdicts[position], "judged": verdicts is not None}
        for position in range(len(trajectory.turns))
    ]


def _turn(trajectory: Trajectory, position: int, tokenizer: Tokenizer | None) -> dict[str, Any]:
    turn = trajectory.turns[position]
    call = trajectory.calls[turn.call]
    return {
        "turn": position,
        "call": turn.call,
        "choice": turn.choice,
        "parent": turn.parent,
        "tokenParent": turn.token_parent,
        "relation": _relation(trajectory, position),
        "agent": call.agent,
        "step": call.step,
        "finishReason": turn.finish_reason,
        "completionTokens": None if turn.token_ids is None else len(turn.token_ids),
        "promptTokens": None if call.prompt_token_ids is None else len(call.prompt_token_ids),
        "tokensUntrained": turn.tokens_untrained,
        "textUntrained": turn.text_untrained,
        "markedUntrained": call.marked_untrained,
        "failed": call.failed,
        "label": _label(turn),
        "drift": _drift(trajectory, turn, tokenizer),
        "rewrittenAt": call.rewritten_at,
        "model": call.response_model or call.request_model,
        "policyVersion": call.policy_version
        if call.policy_version_end is None
        else f"{call.policy_version}, then {call.policy_version_end}",
    }


def _relation(trajectory: Trajectory, position: int) -> str:  # one line a relation
    """Say how a turn came about; where several words fit, the most specific."""
    turn = trajectory.turns[position]
    call = trajectory.calls[turn.call]
    if turn.choice > 0:
        return "n>1"
    if call.drifted_at is not None:
        return "drift"
    if call.rewritten_at is not None:
        return "rewritten"
    before = [one for one in trajectory.turns[:position] if one.call != turn.call and one.parent == turn.parent]
    if any(trajectory.calls[one.call].prompt_node is call.prompt_node for one in before):
        return "retry"
    link = turn.parent if turn.parent is not None else turn.token_parent
    if link is None:
        first = trajectory.calls[trajectory.turns[0].call]
        return "sub-agent" if position and call.agent != first.agent else "root"
    if trajectory.calls[trajectory.turns[link].call].agent != call.agent:
        return "sub-agent"
    return "branch" if before else "continue"


def _label(turn: Turn) -> str | None:
    """The completion in a few words: the tools it calls, else how its text begins."""
    if turn.message is None:
        return None
    if turn.message.tool_calls:
        return ", ".join(call.name for call in turn.message.tool_calls)[:_LABEL]
    text = turn.message.content or turn.message.refusal or turn.message.reasoning
    return None if text is None else text[:_LABEL]


def _drift(trajectory: Trajectory, turn: Turn, tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    """Show both id sequences from where the prompt's ids differ from those of the turn that its messages continue."""
    call = trajectory.calls[turn.call]
    at, prompt = call.drifted_at, call.prompt_token_ids
    if at is None or prompt is None or turn.parent is None:
        return None
    parent = trajectory.turns[turn.parent]
    path = trajectory.calls[parent.call].prompt_token_ids or TokenIds()
    path += parent.token_ids or TokenIds()
    expected, actual = path[at : at + _AFTER].tolist(), prompt[at : at + _AFTER].tolist()
    return {
        "at": at,
        "before": prompt[max(0, at - _AROUND) : at].tolist(),
        "expected": expected,
        "actual": actual,
        "expectedText": None if tokenizer is None else tokenizer.text(expected),
        "actualText": None if tokenizer is None else tokenizer.text(actual),
    }
