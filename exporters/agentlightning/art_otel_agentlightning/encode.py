"""Encode: a trajectory as Agent Lightning's rollout of triplets.

Invariant: each completion with tokens is the response of exactly one triplet, or counted with the reason why it is not;
the prompt's ids are what the server saw. Triplets stand in the order of their calls.

Source: `RolloutLegacy` and `Triplet` in `agentlightning/types/core.py`, and `span_to_triplet` in
`agentlightning/adapter/triplet.py`, of Agent Lightning 0.3.0; `CompletedRollout` in
`agentlightning/verl/agl_rollout_manager.py` and `RolloutAdapter` of 1.0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from art_otel import attributes as names
from art_otel.exporting import ExportStats, ScoredTrajectory, sequences_of, unrewarded
from art_otel.trajectories import CompletionSpan, Trajectory
from art_otel_agentlightning.config import TripletsConfig
from art_otel_agentlightning.triplet import Sampled, triplet

JsonObject: TypeAlias = dict[str, Any]

NULL: Final = "final rewards that are null, for which Agent Lightning's trainer takes 0: {}"
EARLIER: Final = "rollouts whose calls have different rewards, written with the last (reward=each keeps them)"


@dataclass(frozen=True, slots=True)
class _Rewarded:
    sampled: Sampled
    reward: float | None


def encode_triplets(
    items: Iterator[ScoredTrajectory], config: TripletsConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """A rollout a record, as `RolloutLegacy.model_validate_json` reads it."""
    for item in items:
        completions = _completions(item, stats)
        if completions:
            yield _rollout(item.trajectory, completions, config, stats)


def _completions(item: ScoredTrajectory, stats: ExportStats) -> list[_Rewarded]:
    """The completions by their turns, which are in the order of calls."""
    by_turn: dict[int, _Rewarded] = {}
    for sequence in sequences_of(item, stats):
        for span, reward in zip(sequence.completions, sequence.rewards, strict=True):
            ids = sequence.input_ids[: span.end].tolist()
            logprobs = _known(sequence.logprobs[span.start : span.end].tolist())
            by_turn[span.turn] = _Rewarded(_sampled(item.trajectory, span, ids, logprobs), reward)
    return [by_turn[turn] for turn in sorted(by_turn)]


def _known(logprobs: list[float]) -> list[float] | None:
    """The logprobs, None where one of them is no number that JSON has."""
    return logprobs if all(abs(value) < float("inf") for value in logprobs) else None


def _sampled(trajectory: Trajectory, span: CompletionSpan, ids: list[int], logprobs: list[float] | None) -> Sampled:
    turn = trajectory.turns[span.turn]
    return Sampled(
        call=trajectory.calls[turn.call],
        turn=turn,
        prompt_ids=ids[: span.start],
        response_ids=ids[span.start :],
        logprobs=logprobs,
    )


def _rollout(
    trajectory: Trajectory, completions: Sequence[_Rewarded], config: TripletsConfig, stats: ExportStats
) -> JsonObject:
    final = next((one.reward for one in reversed(completions) if one.reward is not None), None)
    if final is None:
        stats.changed[NULL.format(unrewarded(trajectory) or "no reward")] += 1
    rewards = [one.reward for one in completions]
    if config.reward == "last":
        stats.changed[EARLIER] += len(set(rewards)) > 1
        rewards = [*[None] * (len(completions) - 1), final]
    return {
        "rollout_id": trajectory.rollout_id,
        "final_reward": final,
        "triplets": [
            triplet(one.sampled, reward, stats, raw_content=config.raw_content)
            for one, reward in zip(completions, rewards, strict=True)
        ],
        "logs": list(trajectory.logs),
        "metadata": dict(_metadata(trajectory)),
    }


def _metadata(trajectory: Trajectory) -> Iterator[tuple[str, Any]]:
    """What a rollout of theirs has no field for, under the names of our attributes."""
    fields = {
        names.ROLLOUT_NAME: trajectory.name,
        names.ROLLOUT_ATTEMPT: trajectory.attempt,
        names.GROUP_ID: trajectory.group_id,
        names.SPLIT: trajectory.split,
        names.TRAINING_STEP: trajectory.training_step,
        "trace_id": trajectory.trace_id,
        "status": trajectory.status,
        "error": trajectory.error,
    }
    yield from ((name, value) for name, value in fields.items() if value is not None)
    yield from ((names.METRIC_PREFIX + name, value) for name, value in trajectory.metrics.items())
    yield from ((names.METADATA_PREFIX + name, value) for name, value in trajectory.metadata.items())
