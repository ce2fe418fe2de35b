"""Traces: a rollout as OpenEnv's TrainingTrace, version 1.

Invariant: the turns of a trace are the trained completions of the rollout, each once, with the prompt that the server
saw. They stand in the order of the histories that train them, so that a reader who joins each turn to the one before
makes a row of every history.

Source: `TrainingTrace`, `TrainingTurn` and `validate_training_turn` of openenv.core.harness (OpenEnv 0.10.0).
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import structs

from art_otel.exporting import (
    NO_LOGPROBS,
    ExportStats,
    JsonObject,
    NoOptions,
    ScoredTrajectory,
    TokenSequence,
    sequences_of,
)
from art_otel.trajectories import CompletionSpan, Trajectory, chat_message, version_of

NO_PROMPT: Final = "completions without a prompt before them"
IMPOSSIBLE: Final = "completions with a logprob that is infinite or above 0"


def encode_traces(items: Iterator[ScoredTrajectory], _config: NoOptions, stats: ExportStats) -> Iterator[JsonObject]:
    """Yield a trace for each trajectory of which OpenEnv can train something."""
    for item in items:
        turns: list[JsonObject] = []
        problem = None
        for sequence in sequences_of(item, stats):
            for span, reward in zip(sequence.completions, sequence.rewards, strict=True):
                problem = _problem(sequence, span)
                if problem is None:
                    turns.append(_turn(sequence, span, reward, item.trajectory))
                else:
                    stats.skipped[problem] += 1
        if turns:
            yield {"schema_version": 1, "turns": turns}
        elif problem is not None:
            stats.trajectories_skipped[problem] += 1


def _problem(sequence: TokenSequence, span: CompletionSpan) -> str | None:
    """Why OpenEnv's validator would refuse the completion, or None."""
    logprobs = sequence.logprobs[span.start : span.end]
    if np.isnan(logprobs).any():
        return NO_LOGPROBS
    if np.isinf(logprobs).any() or (logprobs > 0).any():
        return IMPOSSIBLE
    return NO_PROMPT if span.start == 0 else None


def _turn(sequence: TokenSequence, span: CompletionSpan, reward: float | None, trajectory: Trajectory) -> JsonObject:
    turn = trajectory.turns[span.turn]
    call = trajectory.calls[turn.call]
    answer = {} if turn.message is None else {"message": chat_message(turn.message)}
    known = {
        "reward": reward,
        "rollout_id": sequence.rollout_id,
        "group_id": sequence.group_id,
        "training_step": sequence.training_step,
        "policy_version": version_of(trajectory, call),
        "model": call.request_model,
        "agent": call.agent,
    }
    sampling = structs.asdict(call.sampling)
    return {
        # A rollout may be joined of several traces, and their spans need not differ: the number of the turn does.
        "node_id": f"{call.span_id}.{span.turn}",
        "prompt_token_ids": sequence.input_ids[: span.start].tolist(),
        "completion_token_ids": sequence.input_ids[span.start : span.end].tolist(),
        "per_token_logps": sequence.logprobs[span.start : span.end].tolist(),
        "loss_mask": [0] * span.start + [1] * (span.end - span.start),
        "request": {
            "messages": [chat_message(message) for message in call.input_messages or ()],
            "tools": list(call.tools or ()),
        },
        "response": {"choices": [{**answer, "finish_reason": turn.finish_reason}]},
        "metadata": {
            **{name: value for name, value in known.items() if value is not None},
            "sampling_params": {name: value for name, value in sampling.items() if value is not None},
        },
    }
