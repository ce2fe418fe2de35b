"""Tokens: one token history with its mask, logprobs and advantages, and why each completion has them.

Invariant: mask and advantages are those of the sequence that `art_otel.batches` builds of the history.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from art_otel.data.sequences import TokenSequence
from art_otel.trajectories import CompletionSpan, TokenHistory, Trajectory, token_histories
from art_otel.viewer.keys import TrajectoryKey
from art_otel.viewer.options import PlanOptions
from art_otel.viewer.problems import NotFoundError
from art_otel.viewer.rollout.comparison import Comparison, compare
from art_otel.viewer.rollout.tokenizer import Tokenizer
from art_otel.viewer.rollout.why import explain_completion
from art_otel.viewer.snapshot import Snapshot

if TYPE_CHECKING:
    from art_otel.calls import Logprobs

_NO_IDS: Final = (
    "the server gave no token ids for this rollout, so nobody knows what exactly was sampled; docs/spec/tokens.md says"
    " which servers give them"
)
_UNKNOWN_SCALE: Final = {"min": None, "max": None}


def show_tokens(
    snapshot: Snapshot, key: TrajectoryKey, number: int, options: PlanOptions, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """The token history of this number. Raises NotFoundError where there is none."""
    comparison = compare(snapshot, snapshot.row_of(key), options)
    histories = token_histories(comparison.trajectory)
    if not histories and number == 0:
        return _unknown()
    if number >= len(histories):
        raise NotFoundError(f"the rollout has {len(histories)} token histories; there is no history {number}")
    history = histories[number]
    sequence = _sequence_of(history, comparison)
    ids = history.token_ids.tolist()
    mask = [0] * len(ids) if sequence is None else _padded(sequence.loss_mask.astype(int).tolist(), len(ids), 0)
    logprobs, advantages = _logprobs(comparison.trajectory, history), _advantages(sequence, mask)
    trained_in = {span.turn: at for at, one in enumerate(histories) for span in one.spans if span.trained}
    return {
        "history": number,
        "histories": [
            {"index": at, "turns": list(one.turns), "length": len(one.token_ids)} for at, one in enumerate(histories)
        ],
        "length": len(ids),
        "ids": ids,
        "texts": None if tokenizer is None else tokenizer.texts(ids),
        "mask": mask,
        "logprobs": logprobs,
        "advantages": advantages,
        "spans": [
            {
                "turn": span.turn,
                "start": span.start,
                "end": span.end,
                "trained": _is_trained(span, mask),
                "why": explain_completion(span, comparison, options, trained_in),
            }
            for span in history.spans
        ],
        "scale": {"logprob": _scale(logprobs, mask), "advantage": _scale(advantages, mask)},
        "unknown": None,
    }


def _unknown() -> dict[str, Any]:
    lists: dict[str, Any] = {name: [] for name in ("ids", "mask", "logprobs", "advantages", "spans", "histories")}
    scale = {"logprob": _UNKNOWN_SCALE, "advantage": _UNKNOWN_SCALE}
    return {"history": 0, "length": 0, "texts": None, **lists, "scale": scale, "unknown": _NO_IDS}


def _sequence_of(history: TokenHistory, comparison: Comparison) -> TokenSequence | None:
    sequences = () if comparison.built is None else comparison.built.sequences
    return next((sequence for sequence in sequences if sequence.turns == history.turns), None)


def _logprobs(trajectory: Trajectory, history: TokenHistory) -> list[float | None]:
    """The logprobs of all completions, also of copies; None where nothing was sampled or nobody recorded them."""
    logprobs: list[float | None] = [None] * len(history.token_ids)
    for span in history.spans:
        recorded: Logprobs | None = trajectory.turns[span.turn].logprobs
        if recorded is not None and len(recorded) == span.end - span.start:
            logprobs[span.start : span.end] = [value if np.isfinite(value) else None for value in recorded]
    return logprobs


def _advantages(sequence: TokenSequence | None, mask: Sequence[int]) -> list[float | None]:
    """The advantages of the tokens under the mask, None elsewhere."""
    if sequence is None or sequence.advantages is None:
        return [None] * len(mask)
    values = _padded(sequence.advantages.tolist(), len(mask), 0.0)
    return [value if is_trained else None for value, is_trained in zip(values, mask, strict=True)]


def _padded(values: list[Any], size: int, padding: float) -> list[Any]:
    """Pad the values to the length of the history, of which a truncated sequence is the beginning."""
    return values + [padding] * (size - len(values))


def _is_trained(span: CompletionSpan, mask: Sequence[int]) -> bool:
    return any(mask[span.start : span.end])


def _scale(values: Sequence[float | None], mask: Sequence[int]) -> dict[str, float | None]:
    """The least and the greatest value of trained tokens."""
    trained = [value for value, is_trained in zip(values, mask, strict=True) if is_trained and value is not None]
    return {"min": min(trained, default=None), "max": max(trained, default=None)}
