"""Rollouts: token histories as rows of a DataProto, without padding.

Invariant: `responses`, `response_mask`, `rollout_log_probs`, `rm_scores` and `advantages` of a row have one length; the
tokens under the mask are the trained completions of the history; a row begins and ends its response with one.

Source: `AgentLoopOutput` and `DataProto` of verl 0.9.1.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from art_otel.exporting import ExportStats, ScoredTrajectory, TokenSequence, sequences_of
from art_otel.trajectories import Trajectory
from art_otel_verl.config import RolloutsConfig

Row: TypeAlias = dict[str, Any]

NO_PROMPT: Final = "no prompt tokens before the first trained completion"
END_CUT: Final = "tokens behind the last trained completion cut"


def encode_rollouts(items: Iterator[ScoredTrajectory], config: RolloutsConfig, stats: ExportStats) -> Iterator[Row]:
    """A row for each token history that trains something."""
    uids = _Uids()
    for item in items:
        uid = uids.of(item.trajectory)
        sequences = sequences_of(item, stats, token_rewards=config.token_rewards)
        kept = [sequence for sequence in sequences if sequence.completions[0].start > 0]
        if len(kept) < len(sequences):
            stats.skipped[NO_PROMPT] += len(sequences) - len(kept)
            if not kept:
                stats.trajectories_skipped[NO_PROMPT] += 1
        for sequence in kept:
            if len(sequence) > sequence.completions[-1].end:
                stats.changed[END_CUT] += 1
            yield _row(sequence, config, uid)


class _Uids:
    """What verl compares rows by: a group's members of one training step. Others are compared with nothing."""

    def __init__(self) -> None:
        self._steps: dict[str, int | None] = {}
        self._traces: dict[str, str] = {}

    def of(self, trajectory: Trajectory) -> str:
        """The uid of a trajectory's rows."""
        group, step = trajectory.group_id, trajectory.training_step
        if group is not None:
            # The first step that a group is met in needs no mark.
            return group if self._steps.setdefault(group, step) == step else f"{group} of step {step}"
        attempt = f" attempt {trajectory.attempt}" if trajectory.attempt else ""
        uid = f"rollout {trajectory.rollout_id}{attempt}"
        trace = trajectory.trace_id
        return uid if self._traces.setdefault(uid, trace) == trace else f"{uid} of trace {trace}"


def _row(sequence: TokenSequence, config: RolloutsConfig, uid: str) -> Row:
    start, end = sequence.completions[0].start, sequence.completions[-1].end
    logprobs, scores = sequence.logprobs[start:end], _scores(sequence, config)
    return {
        "prompts": sequence.input_ids[:start],
        "responses": sequence.input_ids[start:end],
        "response_mask": sequence.loss_mask[start:end].astype(np.int8),
        "rollout_log_probs": None if np.isnan(logprobs).any() else logprobs,
        "rm_scores": None if scores is None else scores[start:end],
        "advantages": None if sequence.advantages is None else sequence.advantages[start:end],
        "uid": uid,
        "rollout_id": sequence.rollout_id,
        "policy_version": sequence.policy_version,
    }


def _scores(sequence: TokenSequence, config: RolloutsConfig) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """The reward of each token, None where a reward is unknown. Shape: (tokens,)."""
    rewarded = range(len(sequence.completions)) if config.reward_at == "completions" else [-1]
    scores = np.zeros(len(sequence)) if sequence.token_rewards is None else sequence.token_rewards.astype(np.float64)
    for position in rewarded:
        reward = sequence.rewards[position]
        if reward is None:
            return None
        scores[sequence.completions[position].end - 1] += reward
    return scores
