"""Tokens: one token history with its mask, logprobs and advantages, and why each completion has them.

Invariant: mask and advantages are those of the sequence that `art_otel.batches` builds of the history; the sentences
only say its verdicts and rewards. Texts of ids come from a tokenizer on this machine: nothing is fetched. Where ids
stand for an image, they are said to be its placeholders.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from art_otel import attributes as names
from art_otel.calls import TOKEN_FACTS
from art_otel.data.cures import cure_of
from art_otel.data.option_texts import NONE
from art_otel.data.sequences import TokenSequence
from art_otel.errors import UsageError
from art_otel.trajectories import CompletionSpan, TokenHistory, Trajectory, Turn, token_histories
from art_otel.viewer.addresses import NotFoundError, TrajectoryKey
from art_otel.viewer.comparison import Comparison, compare
from art_otel.viewer.judging import PlanOptions
from art_otel.viewer.snapshot import Snapshot

if TYPE_CHECKING:
    from art_otel.calls import Logprobs

_NO_IDS: Final = (
    "the server gave no token ids for this rollout, so nobody knows what exactly was sampled; docs/spec/recorders.md"
    " says which servers give them"
)

_PLACEHOLDERS: Final = names.PLACEHOLDERS.removeprefix(f"{names.EXTRA}.")
_UNKNOWN_SCALE: Final = {"min": None, "max": None}

_OF_UNIT: Final = {
    "rollout": "the reward of the rollout",
    "step": "the reward of its step",
    "call": "the reward of its call",
}


class Tokenizer:
    """The tokenizer of a folder (`tokenizer.json` and its configuration) or of a `tokenizer.json`."""

    def __init__(self, path: Path) -> None:
        self._decode = _decoder(path)
        self._texts: dict[int, str] = {}

    def text(self, ids: Sequence[int]) -> str:
        """The ids as one text."""
        return self._decode(list(ids))

    def texts(self, ids: Sequence[int]) -> list[str]:
        """The text of each id by itself; a token may be a part of a character."""
        for token in set(ids) - self._texts.keys():
            self._texts[token] = self._decode([token])
        return [self._texts[token] for token in ids]


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
                "weights": _weights(span, comparison.trajectory.turns[span.turn]),
                "why": explain_completion(span, comparison, options, trained_in),
            }
            for span in history.spans
        ],
        "placeholders": _placeholders(comparison.trajectory, history),
        "scale": {"logprob": _scale(logprobs, mask), "advantage": _scale(advantages, mask)},
        "unknown": None,
    }


def _unknown() -> dict[str, Any]:
    empty = ("ids", "mask", "logprobs", "advantages", "spans", "histories", "placeholders")
    lists: dict[str, Any] = {name: [] for name in empty}
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


def _weights(span: CompletionSpan, turn: Turn) -> list[dict[str, Any]]:
    """The versions that sampled the completion, and at which token of the history each begins."""
    return [{"version": one.version, "start": span.start + one.start} for one in turn.weight_versions or ()]


def _placeholders(trajectory: Trajectory, history: TokenHistory) -> list[dict[str, Any]]:
    """Where ids of prompts stand for images and the like, as their calls say it."""
    places: dict[int, dict[str, Any]] = {}
    for span in history.spans:
        said = trajectory.calls[trajectory.turns[span.turn].call].extra.get(_PLACEHOLDERS)
        try:
            ranges = msgspec.convert(said or {}, dict[str, list[tuple[int, int]]])
        except msgspec.ValidationError:  # an app may say anything under this name
            continue
        for kind, start, length in ((kind, *one) for kind, of_kind in ranges.items() for one in of_kind):
            if 0 <= start < start + length <= span.start:
                places[start] = {"kind": kind, "start": start, "length": length}
    return [places[start] for start in sorted(places)]


def _scale(values: Sequence[float | None], mask: Sequence[int]) -> dict[str, float | None]:
    """The least and the greatest value of trained tokens."""
    trained = [value for value, is_trained in zip(values, mask, strict=True) if is_trained and value is not None]
    return {"min": min(trained, default=None), "max": max(trained, default=None)}


def explain_completion(
    span: CompletionSpan, comparison: Comparison, options: PlanOptions, trained_in: dict[int, int]
) -> list[dict[str, str]]:
    """The chain for one completion of a history. `trained_in` says in which history each turn would be trained."""
    return [
        {
            "step": "mask",
            "says": _mask(span, comparison, trained_in) + facts_of(comparison.trajectory.turns[span.turn]),
        },
        {"step": "credit", "says": _credit(span, comparison, options)},
        {"step": "advantage", "says": _advantage(span, comparison, options)},
        {"step": "option", "says": _option(span, comparison)},
    ]


def facts_of(turn: Turn) -> str:
    """What else is known of a completion's tokens: where the weights change, and which large facts there are."""
    versions = ", ".join(f"{one.version} from token {one.start}" for one in turn.weight_versions or ())
    large = ", ".join(name.replace("_", " ") for name in TOKEN_FACTS if getattr(turn, name) is not None)
    return (f" Weights: {versions}." if versions else "") + (f" Also known: {large}." if large else "")


def _mask(span: CompletionSpan, comparison: Comparison, trained_in: dict[int, int]) -> str:
    untrained = comparison.trajectory.turns[span.turn].tokens_untrained
    if untrained is not None:
        return f"Not under the mask: {untrained}. {cure_of(untrained)}"
    verdict = comparison.verdict
    trains = bool(verdict.completions) and verdict.completions[span.turn] is None
    if not span.trained:
        says = ", and trains it" if trains else ""
        return f"Context here: history {trained_in[span.turn] + 1} is the first that holds it{says}."
    says = "is where it is trained" if trains else "would train it, if no option spoke against it"
    return f"Sampled by turn {span.turn}; this history {says}."


def _credit(span: CompletionSpan, comparison: Comparison, options: PlanOptions) -> str:
    reward = comparison.turn_rewards[span.turn].reward
    what = "the final reward of the rollout" if options.credit == "outcome_reward" else _OF_UNIT[options.unit]
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
    return "Trained." if reason is None else f"Skipped: {reason}. {cure_of(reason)}"


def _decoder(path: Path) -> Callable[[list[int]], str]:
    """Load the tokenizer, and return what decodes ids with it. Raises UsageError where none can be loaded."""
    if not path.exists():
        raise UsageError(f"--tokenizer {path}: there is no such file or folder")
    try:
        if path.is_file():
            from tokenizers import Tokenizer as Fast  # noqa: PLC0415 # an extra

            fast: Any = Fast.from_file(str(path))
            return lambda ids: str(fast.decode(ids, skip_special_tokens=False))
        import transformers  # noqa: PLC0415 # an extra

        library: Any = transformers  # it is not typed
        slow: Any = library.AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        return lambda ids: str(slow.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    except ImportError as error:
        raise UsageError(f"--tokenizer needs the extra: pip install 'art-otel[tokenizer]' ({error})") from error
    except Exception as error:  # the library raises a plain Exception for files that it does not understand
        raise UsageError(f"--tokenizer {path}: no tokenizer can be loaded: {error}") from error
