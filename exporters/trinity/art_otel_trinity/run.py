"""Run: one trajectory as experiences of one of Trinity's runs.

Invariant: tokens before `prompt_length` are what the server saw, and those under the action mask what it sampled; an
experience ends with its last sampled token, where Trinity puts the reward.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from art_otel.exporting import (
    ExportStats,
    ScoredTrajectory,
    TokenSequence,
    policy_number,
    scored,
    sequences_of,
)
from art_otel.trajectories import CompletionSpan, Trajectory, chat_message, version_of
from art_otel_trinity.config import ExperiencesConfig
from art_otel_trinity.experience import Eid, Experience

NONE_SCORED: Final = "no logprobs"
OTHER_REWARDS: Final = "histories whose completions have different rewards, written with that of the last"
NO_VERSION: Final = "policy versions that are no whole number left out"

_LARGEST: Final = 2**31 - 1
"""Trinity's databases keep versions in a column of 32 bits."""


class Run(NamedTuple):
    """A run of a task, counted from 0."""

    batch: int | str
    task: str
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """Completions of a sequence that one experience trains, with their rewards."""

    sequence: TokenSequence
    completions: Sequence[CompletionSpan]
    rewards: Sequence[float | None]

    @property
    def last(self) -> CompletionSpan:
        return self.completions[-1]

    @property
    def response(self) -> slice:
        return slice(self.completions[0].start, self.last.end)

    @property
    def has_logprobs(self) -> bool:
        return not np.isnan(self.sequence.logprobs[self.response]).any()


def experiences_of(item: ScoredTrajectory, run: Run, config: ExperiencesConfig, stats: ExportStats) -> list[Experience]:
    """The experiences, by the last turn that each trains."""
    sequences = sequences_of(item, stats, max_tokens=config.max_tokens, token_rewards=config.token_rewards)
    kept = [
        trained
        for one in sequences
        if (trained := one if config.without_logprobs == "keep" else scored(one, stats)) is not None
    ]
    if sequences and not kept:
        stats.trajectories_skipped[NONE_SCORED] += 1
    pieces = [piece for one in kept for piece in _pieces(one, config)]
    pieces.sort(key=lambda piece: piece.last.turn)
    steps = _steps(item.trajectory, pieces)
    return [_experience(item.trajectory, piece, run, step, stats) for piece, step in zip(pieces, steps, strict=True)]


def _pieces(sequence: TokenSequence, config: ExperiencesConfig) -> Iterator[_Piece]:
    if config.unit == "history":
        yield _Piece(sequence=sequence, completions=sequence.completions, rewards=sequence.rewards)
        return
    for span, reward in zip(sequence.completions, sequence.rewards, strict=True):
        yield _Piece(sequence=sequence, completions=(span,), rewards=(reward,))


def _steps(trajectory: Trajectory, pieces: Sequence[_Piece]) -> Sequence[int]:
    """The step of each piece: that of its last call, its place in the run where a call has none."""
    steps = [trajectory.calls[trajectory.turns[piece.last.turn].call].step for piece in pieces]
    recorded = [step for step in steps if step is not None]
    return recorded if len(recorded) == len(steps) else range(len(steps))


def _experience(trajectory: Trajectory, piece: _Piece, run: Run, step: int, stats: ExportStats) -> Experience:
    sequence, response = piece.sequence, piece.response
    turn = trajectory.turns[piece.last.turn]
    call = trajectory.calls[turn.call]
    stats.changed[OTHER_REWARDS] += len(set(piece.rewards)) > 1
    message = None if turn.message is None else chat_message(turn.message)
    messages = None
    if message is not None and call.input_messages is not None:
        messages = [*map(chat_message, call.input_messages), message]
    return Experience(
        eid=Eid(batch=run.batch, task=run.task, run=run.number, step=step, suffix=_suffix(call.span_id, turn.choice)),
        tokens=sequence.input_ids[: response.stop],
        prompt_length=response.start,
        action_mask=sequence.loss_mask[response],
        logprobs=sequence.logprobs[response] if piece.has_logprobs else None,
        reward=piece.rewards[-1],
        advantages=None if sequence.advantages is None else sequence.advantages[response],
        token_level_reward=_token_level_reward(piece),
        truncate_status="response_truncated" if turn.finish_reason == "length" else None,
        response_text=None if turn.message is None else turn.message.content,
        messages=messages,
        tools=None if call.tools is None else list(call.tools),
        info=_info(trajectory, piece, stats),
        metrics=trajectory.metrics,
    )


def _suffix(span_id: str, choice: int) -> str:
    """The span that sampled the last token; a call's further choices are told apart."""
    return f"{span_id}.{choice}" if choice else span_id


def _token_level_reward(piece: _Piece) -> NDArray[np.float32] | None:
    """What spans of tokens were given, and the reward at the last token: Trinity reads these instead of the reward."""
    if piece.sequence.token_rewards is None:
        return None
    rewards = piece.sequence.token_rewards[piece.response].copy()
    rewards[-1] += piece.rewards[-1] or 0.0
    return rewards


def _info(trajectory: Trajectory, piece: _Piece, stats: ExportStats) -> dict[str, Any]:
    policy_version = version_of(trajectory, trajectory.calls[trajectory.turns[piece.completions[0].turn].call])
    version = policy_number(policy_version, largest=_LARGEST)
    stats.changed[NO_VERSION] += policy_version is not None and version is None
    fields = {
        "rollout_id": trajectory.rollout_id,
        "rollout_name": trajectory.name,
        "trace_id": trajectory.trace_id,
        "attempt": trajectory.attempt,
        "split": trajectory.split,
        "status": trajectory.status,
        "metadata": dict(trajectory.metadata) or None,
    }
    return {"model_version": version, **{name: value for name, value in fields.items() if value is not None}}
