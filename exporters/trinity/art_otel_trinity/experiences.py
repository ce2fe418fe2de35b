"""Experiences: trajectories as what Trinity-RFT's `TrinityExperience` holds, without Trinity or torch.

Invariant: each completion of a trajectory that has tokens is under the action mask of exactly one experience, or it is
counted with the reason. Tokens before `prompt_length` are what the server saw, and those under the action mask what it
sampled. The response is `tokens` from `prompt_length` on. It begins and ends with a token under the mask, and Trinity
puts the reward at the last one. Experiences of a run stand in the order in which they were sampled.

Source: `trinity/common/experience.py` of Trinity-RFT 0.6.0.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from art_otel.exporting import (
    ExportStats,
    ScoredTrajectory,
    TokenSequence,
    group_name,
    policy_number,
    rollout_name,
    scored,
    sequences_of,
)
from art_otel.trajectories import CompletionSpan, Trajectory, chat_message, version_of

TrinityTask: TypeAlias = tuple[int | str, str]
"""Batch and name of a task. Trinity compares the runs of a task."""

NONE_SCORED: Final = "no logprobs"
OTHER_REWARDS: Final = "histories whose completions have different rewards, written with the reward of the last"
NO_VERSION: Final = "policy versions that are not whole numbers, left out"

_LARGEST: Final = 2**31 - 1
"""Trinity's databases keep versions in a column of 32 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperiencesConfig:
    """Options of an experience, and of `payloads`."""

    unit: Annotated[
        Literal["history", "call"],
        Meta(
            description="what an experience is: a history with all its completions under the action mask, or one"
            " completion behind its whole prompt, as Trinity's step-wise workflows make them"
        ),
    ] = "history"
    without_logprobs: Annotated[
        Literal["drop", "keep"],
        Meta(description="what to do with completions without logprobs; Trinity only trains them without a reward"),
    ] = "drop"
    token_rewards: Annotated[
        str | None,
        Meta(
            description="name of rewards given to spans of tokens; every experience then has a token_level_reward:"
            " theirs, and its reward at the last token"
        ),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="the longest history that is written, in tokens; longer ones are left out"),
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Eid:
    """Trinity's id of an experience: batch/task is a group, batch/task/run a rollout."""

    batch: int | str
    task: str
    run: int
    step: int
    suffix: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrinityExperience:
    """One piece to train on.

    `tokens` has shape (tokens,), the other arrays (response,). `messages` are the prompt and the last sampled message,
    as OpenAI's API has them. What is unknown is None.
    """

    eid: Eid
    tokens: NDArray[np.int32]
    prompt_length: int
    action_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32] | None
    reward: float | None
    advantages: NDArray[np.float32] | None
    token_level_reward: NDArray[np.float32] | None
    truncate_status: str | None
    response_text: str | None
    messages: list[dict[str, Any]] | None
    tools: list[Any] | None
    info: Mapping[str, Any]
    metrics: Mapping[str, float]


def encode_experiences(
    items: Iterator[ScoredTrajectory], config: ExperiencesConfig, stats: ExportStats
) -> Iterator[TrinityExperience]:
    """Yield the experiences of one trajectory after the other."""
    for experiences in encode_runs(items, config, stats):
        yield from experiences


def encode_runs(
    items: Iterator[ScoredTrajectory], config: ExperiencesConfig, stats: ExportStats
) -> Iterator[list[TrinityExperience]]:
    """Yield the experiences of each trajectory, which is a run of a task; the runs of a task are counted from 0."""
    counts = Counter[TrinityTask]()
    for item in items:
        task = _task(item.trajectory)
        yield _experiences(item, _Run(*task, counts[task]), config, stats)
        counts[task] += 1


class _Run(NamedTuple):
    batch: int | str
    task: str
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """Completions of a sequence that one experience trains, with their rewards."""

    sequence: TokenSequence
    completions: Sequence[CompletionSpan]
    rewards: Sequence[float | None]


def _task(trajectory: Trajectory) -> TrinityTask:
    """The task of a trajectory. Without a group, each attempt is a task of its own."""
    # Trinity's own word for no batch is "".
    batch = "" if trajectory.training_step is None else trajectory.training_step
    if trajectory.group_key is None:
        return batch, rollout_name(trajectory)
    return batch, group_name(trajectory.group_key._replace(training_step=None))  # the step is the batch


def _experiences(
    item: ScoredTrajectory, run: _Run, config: ExperiencesConfig, stats: ExportStats
) -> list[TrinityExperience]:
    """The experiences of a run, by the last turn that each trains."""
    sequences = sequences_of(item, stats, max_tokens=config.max_tokens, token_rewards=config.token_rewards)
    kept = [
        trained
        for one in sequences
        if (trained := one if config.without_logprobs == "keep" else scored(one, stats)) is not None
    ]
    if sequences and not kept:
        stats.trajectories_skipped[NONE_SCORED] += 1
    pieces = [piece for one in kept for piece in _pieces(one, config)]
    pieces.sort(key=lambda piece: piece.completions[-1].turn)
    steps = _steps(item.trajectory, pieces)
    return [_experience(item.trajectory, piece, run, step, stats) for piece, step in zip(pieces, steps, strict=True)]


def _pieces(sequence: TokenSequence, config: ExperiencesConfig) -> Iterator[_Piece]:
    if config.unit == "history":
        yield _Piece(sequence=sequence, completions=sequence.completions, rewards=sequence.rewards)
        return
    for span, reward in zip(sequence.completions, sequence.rewards, strict=True):
        yield _Piece(sequence=sequence, completions=(span,), rewards=(reward,))


def _steps(trajectory: Trajectory, pieces: Sequence[_Piece]) -> Sequence[int]:
    """The step of the last call of each piece. If a call has no step, the places of the pieces in the run."""
    steps = [trajectory.calls[trajectory.turns[piece.completions[-1].turn].call].step for piece in pieces]
    recorded = [step for step in steps if step is not None]
    return recorded if len(recorded) == len(steps) else range(len(steps))


def _experience(trajectory: Trajectory, piece: _Piece, run: _Run, step: int, stats: ExportStats) -> TrinityExperience:
    sequence, last = piece.sequence, piece.completions[-1]
    response = slice(piece.completions[0].start, last.end)
    turn = trajectory.turns[last.turn]
    call = trajectory.calls[turn.call]
    stats.changed[OTHER_REWARDS] += len(set(piece.rewards)) > 1
    message = None if turn.message is None else chat_message(turn.message)
    messages = None
    if message is not None and call.input_messages is not None:
        messages = [*map(chat_message, call.input_messages), message]
    logprobs = sequence.logprobs[response]
    # The span that sampled the last token; the further choices of a call need names of their own.
    suffix = f"{call.span_id}.{turn.choice}" if turn.choice else call.span_id
    return TrinityExperience(
        eid=Eid(batch=run.batch, task=run.task, run=run.number, step=step, suffix=suffix),
        tokens=sequence.input_ids[: last.end],
        prompt_length=response.start,
        action_mask=sequence.loss_mask[response],
        logprobs=None if np.isnan(logprobs).any() else logprobs,
        reward=piece.rewards[-1],
        advantages=None if sequence.advantages is None else sequence.advantages[response],
        token_level_reward=_token_level_reward(sequence, response, piece.rewards[-1]),
        truncate_status="response_truncated" if turn.finish_reason == "length" else None,
        response_text=None if turn.message is None else turn.message.content,
        messages=messages,
        tools=None if call.tools is None else list(call.tools),
        info=_info(trajectory, piece, stats),
        metrics=trajectory.metrics,
    )


def _token_level_reward(sequence: TokenSequence, response: slice, reward: float | None) -> NDArray[np.float32] | None:
    """The rewards of spans of tokens, and the reward at the last token: Trinity reads these instead of the reward."""
    if sequence.token_rewards is None:
        return None
    rewards = sequence.token_rewards[response].copy()
    rewards[-1] += reward or 0.0
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
