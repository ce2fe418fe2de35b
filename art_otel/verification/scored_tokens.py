"""Scored tokens: the trained tokens with a recorded logprob, and the rows of ids that a model reads to compare them.

Invariant: each completion whose ids are trained is here once, at its place in the token history that trains it, or is
counted with a reason. A row has exactly the tokens that the server read and sampled, so that a model that reads the row
gives the server's logprobs.

    row (ids)   ▒▒▒▒ prompt ▒▒▒▒ completion 0 ▒▒ context ▒▒ completion 1
    scored                       ^^^^^^^^^^^^               ^^^^^^^^^^^^     flat arrays, completion after completion
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from art_otel.trajectories import CompletionSpan, TokenHistory, Trajectory, Turn, token_histories, version_of

NO_LOGPROBS = "no logprobs"
NO_IDS = "no token ids"


class ScoredCompletion(NamedTuple):
    """A completion with compared tokens: its turn, its place in a row, and how it was sampled.

    Its tokens are `start` to `end` (exclusive) of row `row`; `turn` is a position in the trajectory's turns.
    `temperature` is None if the request has none. `is_constrained`: a grammar, a schema or the like allowed only some
    tokens.
    """

    rollout_id: str
    turn: int
    row: int
    start: int
    end: int
    temperature: float | None
    is_constrained: bool


@dataclass(kw_only=True)
class ScoredTokens:
    """Completions, the rows that they are in, and one entry for each compared token.

    `rows` are int32 arrays of shape (tokens of the row,). These have shape (compared tokens,): `recorded` (float64),
    `completion` (int32, a position in `completions`), `position` (int32, in the row), `version` (int32, a position in
    `versions`, where None is unknown). `skipped` counts completions that are not compared, by reason.
    """

    completions: list[ScoredCompletion] = field(default_factory=list[ScoredCompletion])
    rows: list[NDArray[np.int32]] = field(default_factory=list[NDArray[np.int32]])
    versions: list[str | None] = field(default_factory=list[str | None])
    recorded: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    completion: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    position: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    version: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    rollouts: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])

    def __len__(self) -> int:
        return len(self.recorded)

    @property
    def depth(self) -> NDArray[np.int32]:
        """The position of each token in its completion, from 0."""
        starts = np.array([one.start for one in self.completions], np.int32)
        return self.position - starts[self.completion] if len(self) else self.position


def score_tokens(trajectories: Iterable[Trajectory]) -> ScoredTokens:
    """Find the tokens to compare in trajectories, which must have been read with their tokens."""
    scored = ScoredTokens()
    parts: list[tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]] = []
    codes: dict[str | None, int] = {}
    for trajectory in trajectories:
        scored.rollouts += 1
        scored.skipped.update(turn.tokens_untrained for turn in trajectory.turns if turn.tokens_untrained is not None)
        scored.skipped[NO_IDS] += sum(
            turn.token_ids is None and turn.tokens_untrained is None for turn in trajectory.turns
        )
        for history in token_histories(trajectory):
            row = np.frombuffer(history.token_ids.data, "<i4")
            row_number = len(scored.rows)
            for span in history.spans:
                if not span.trained or span.start == span.end:
                    continue
                turn = trajectory.turns[span.turn]
                call = trajectory.calls[turn.call]
                recorded = _recorded(turn, span)
                # There is nothing before a row's first token, so no model gives a logprob for it.
                has_logprob = ~np.isnan(recorded) & (np.arange(span.start, span.end) > 0)
                at = np.flatnonzero(has_logprob).astype(np.int32)
                if not len(at):
                    scored.skipped[NO_LOGPROBS] += 1
                    continue
                versions = _versions(trajectory, turn, span)
                numbers = np.array([codes.setdefault(version, len(codes)) for version in versions], np.int32)
                parts.append(
                    (
                        recorded[at],
                        np.full(len(at), len(scored.completions), np.int32),
                        at + np.int32(span.start),
                        numbers[at],
                    )
                )
                scored.completions.append(
                    ScoredCompletion(
                        trajectory.rollout_id,
                        span.turn,
                        row_number,
                        span.start,
                        span.end,
                        call.sampling.temperature,
                        call.is_constrained,
                    )
                )
            if scored.completions and scored.completions[-1].row == row_number:
                scored.rows.append(_up_to_last(row, history))
    scored.versions, scored.skipped = list(codes), +scored.skipped
    if parts:
        recorded, completion, position, version = (np.concatenate(column) for column in zip(*parts, strict=True))
        scored.recorded, scored.completion, scored.position, scored.version = recorded, completion, position, version
    return scored


def _recorded(turn: Turn, span: CompletionSpan) -> NDArray[np.float64]:
    """The recorded logprob of each token of a completion; NaN if it is unknown. Shape: (tokens,)."""
    size = span.end - span.start
    if turn.logprobs is None or len(turn.logprobs) != size:
        return np.full(size, np.nan)
    return np.frombuffer(turn.logprobs.data, "<f4").astype(np.float64)


def _versions(trajectory: Trajectory, turn: Turn, span: CompletionSpan) -> list[str | None]:
    """The policy version that sampled each token: the server's own, else the call's."""
    versions = [version_of(trajectory, trajectory.calls[turn.call])] * (span.end - span.start)
    for one in turn.weight_versions or ():
        versions[one.start : one.end] = [str(one.version)] * (one.end - one.start)
    return versions


def _up_to_last(row: NDArray[np.int32], history: TokenHistory) -> NDArray[np.int32]:
    """The row up to its last trained token: later tokens are before no compared token."""
    return row[: max(span.end for span in history.spans if span.trained)]
