"""Rollouts: token histories by the fields of SkyRL's GeneratorOutput.

Invariant: `response_ids`, `loss_mask` and `rollout_logprobs` of a record have one length; the tokens under the mask are
the trained completions of the history; a response begins and ends with one. The records of a trajectory stand next to
each other, and `is_last_step` marks the last of them.

Source: `GeneratorOutput` and `validate_generator_output` of SkyRL 0.4.0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from art_otel.exporting import (
    ExportStats,
    JsonObject,
    RewardAt,
    ScoredTrajectory,
    TokenSequence,
    group_name,
    rollout_name,
    sequences_of,
)
from art_otel.trajectories import Trajectory

NO_PROMPT: Final = "no prompt tokens before the first trained completion"
NO_REWARD: Final = "no reward"
END_CUT: Final = "tokens behind the last trained completion, cut"

_STOPPED: Final = ("stop", "tool_calls", "function_call")
"""Finish reasons of completions that the model ended itself; SkyRL's engines say `stop` of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SkyRLRolloutsConfig:
    """Options of `rollouts`."""

    reward_at: RewardAt = "end"


def encode_rollouts(
    items: Iterator[ScoredTrajectory], config: SkyRLRolloutsConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """Yield a record for each token history that trains something and has a reward."""
    instances = _Instances()
    for item in items:
        sequences = sequences_of(item, stats)
        problems = [_problem(sequence, config) for sequence in sequences]
        stats.skipped.update(problem for problem in problems if problem is not None)
        kept = [sequence for sequence, problem in zip(sequences, problems, strict=True) if problem is None]
        if problems and not kept:
            stats.trajectories_skipped[str(problems[-1])] += 1
        if not kept:
            continue
        names = instances.of(item.trajectory)
        for number, sequence in enumerate(kept, start=1):
            stats.changed[END_CUT] += len(sequence) > sequence.completions[-1].end
            yield names | {"is_last_step": number == len(kept)} | _record(sequence, item.trajectory, config)


class _Instances:
    """Numbers the rollouts that SkyRL compares: the members of a group."""

    def __init__(self) -> None:
        self._members: dict[str, int] = {}

    def of(self, trajectory: Trajectory) -> JsonObject:
        """Return the parts of the TrajectoryID of a trajectory. No two trajectories have the same."""
        key = trajectory.group_key
        instance = rollout_name(trajectory) if key is None else group_name(key)
        repetition = self._members.get(instance, 0)
        self._members[instance] = repetition + 1
        return {"instance_id": instance, "repetition_id": repetition}


def _problem(sequence: TokenSequence, config: SkyRLRolloutsConfig) -> str | None:
    """Why SkyRL does not take a sequence. It has no place for a response without a prompt or an unknown reward."""
    if sequence.completions[0].start == 0:
        return NO_PROMPT
    return NO_REWARD if None in _rewards(sequence, config) else None


def _rewards(sequence: TokenSequence, config: SkyRLRolloutsConfig) -> tuple[float | None, ...]:
    return sequence.rewards if config.reward_at == "completions" else sequence.rewards[-1:]


def _record(sequence: TokenSequence, trajectory: Trajectory, config: SkyRLRolloutsConfig) -> JsonObject:
    start, end = sequence.completions[0].start, sequence.completions[-1].end
    logprobs = sequence.logprobs[start:end]
    return {
        "prompt_token_ids": sequence.input_ids[:start].tolist(),
        "response_ids": sequence.input_ids[start:end].tolist(),
        "loss_mask": sequence.loss_mask[start:end].astype(np.int8).tolist(),
        "rollout_logprobs": None if np.isnan(logprobs).any() else logprobs.tolist(),
        "reward": sequence.reward if config.reward_at == "end" else _token_rewards(sequence),
        "stop_reason": _stop_reason(trajectory, sequence),
        "rollout_id": sequence.rollout_id,
        "training_step": sequence.training_step,
        "policy_version": sequence.policy_version,
    }


def _token_rewards(sequence: TokenSequence) -> list[float]:
    """Return the reward of each token of the response. That of a completion stands at its last token."""
    start = sequence.completions[0].start
    rewards = [0.0] * (sequence.completions[-1].end - start)
    for span, reward in zip(sequence.completions, sequence.rewards, strict=True):
        if reward is not None:
            rewards[span.end - 1 - start] = reward
    return rewards


def _stop_reason(trajectory: Trajectory, sequence: TokenSequence) -> str | None:
    """Why the last trained completion ended, in the words of SkyRL's engines. None if it is unknown."""
    reason = trajectory.turns[sequence.completions[-1].turn].finish_reason
    return "stop" if reason in _STOPPED else reason
