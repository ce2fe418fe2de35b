"""Tokens: the tokens of turns with their mask, logprobs and advantages, and why each completion has them.

Invariant: mask and advantages are those of the sequence that `art_otel.batches` builds with the turn; the sentences
only say its verdicts and rewards. Texts of ids come from a tokenizer on this machine: nothing is fetched. Where ids
stand for an image, they are said to be its placeholders.
"""

from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from art_otel import attributes as names
from art_otel.calls import TOKEN_FACTS
from art_otel.data.cures import cure_of
from art_otel.data.option_texts import NONE
from art_otel.data.sequences import TokenSequence
from art_otel.errors import UsageError
from art_otel.trajectories import CompletionSpan, TokenHistory, Trajectory, Turn, token_histories
from art_otel.viewer.comparison import Comparison, compare
from art_otel.viewer.judging import PlanOptions
from art_otel.viewer.snapshot import Snapshot

_NO_IDS: Final = (
    "the server gave no token ids for this rollout, so it is unknown what exactly was sampled; docs/spec/recorders.md"
    " says which servers give them"
)

_PLACEHOLDERS: Final = names.PLACEHOLDERS.removeprefix(f"{names.EXTRA}.")
TURNS: Final = 20
"""Turns of one answer."""

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
    snapshot: Snapshot, row: int, first: int, options: PlanOptions, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """The tokens of the turns from `first` on, at most `TURNS`: of each its context that is new, and its completion."""
    comparison = compare(snapshot, row, options)
    homes, masks = _homes(comparison)
    if not homes:
        return {"first": first, "turns": [], "scale": _scales({}), "unknown": _NO_IDS}
    facts = {turn: _values(turn, home, masks, comparison) for turn, home in homes.items()}
    shown = [
        _turn(turn, homes[turn], facts[turn], comparison, options, tokenizer)
        for turn in range(first, first + TURNS)
        if turn in homes
    ]
    return {"first": first, "turns": shown, "scale": _scales(facts), "unknown": None}


class _Home(NamedTuple):
    """The history that trains a turn, or the first that holds it; its place there, and where its context begins."""

    history: TokenHistory
    span: CompletionSpan
    start: int


def _homes(comparison: Comparison) -> tuple[dict[int, _Home], dict[tuple[int, ...], TokenSequence]]:
    """The home of each turn with ids, and the sequences that are trained, by their turns."""
    homes: dict[int, _Home] = {}
    for history in token_histories(comparison.trajectory):
        start = 0
        for span in history.spans:
            if span.turn not in homes or (span.trained and not homes[span.turn].span.trained):
                homes[span.turn] = _Home(history, span, start)
            start = span.end
    sequences = comparison.sequences or ()
    return homes, {sequence.turns: sequence for sequence in sequences}


class _TurnNumbers(NamedTuple):
    """Mask, logprobs and advantages of a completion, None where there are none. Shape of each: (tokens,)."""

    mask: list[int]
    logprobs: list[float | None]
    advantages: list[float | None]


def _values(
    position: int, home: _Home, sequences: dict[tuple[int, ...], TokenSequence], comparison: Comparison
) -> _TurnNumbers:
    """What a completion's tokens are trained with. A truncated sequence is the beginning of its history."""
    start, end = home.span.start, home.span.end
    sequence = sequences.get(home.history.turns)
    kept = 0 if sequence is None else max(0, min(end, len(sequence.loss_mask)) - start)
    mask = [0] * (end - start)
    advantages: list[float | None] = [None] * (end - start)
    if sequence is not None:
        mask[:kept] = sequence.loss_mask[start : start + kept].astype(int).tolist()
        if sequence.advantages is not None:
            values = sequence.advantages[start : start + kept].tolist()
            advantages[:kept] = [value if on else None for value, on in zip(values, mask[:kept], strict=True)]
    recorded = comparison.trajectory.turns[position].logprobs
    is_whole = recorded is not None and len(recorded) == end - start
    logprobs = [value if isfinite(value) else None for value in recorded] if recorded and is_whole else None
    return _TurnNumbers(mask, logprobs or [None] * (end - start), advantages)


def _turn(
    position: int,
    home: _Home,
    values: _TurnNumbers,
    comparison: Comparison,
    options: PlanOptions,
    tokenizer: Tokenizer | None,
) -> dict[str, Any]:
    turn, span = comparison.trajectory.turns[position], home.span
    context = home.history.token_ids[home.start : span.start].tolist()
    ids = home.history.token_ids[span.start : span.end].tolist()
    return {
        "turn": position,
        "start": span.start,
        "context": context,
        "contextTexts": None if tokenizer is None else tokenizer.texts(context),
        "ids": ids,
        "texts": None if tokenizer is None else tokenizer.texts(ids),
        **values._asdict(),
        "weights": [{"version": one.version, "start": one.start} for one in turn.weight_versions or ()],
        "why": explain_completion(position, comparison, options),
        "placeholders": [
            {**one, "start": one["start"] - home.start}
            for one in _placeholders(comparison.trajectory, home.history)
            if home.start <= one["start"] < span.start
        ],
    }


def _scales(facts: dict[int, _TurnNumbers]) -> dict[str, dict[str, float | None]]:
    """The least and the greatest logprob and advantage of the trained tokens of the whole rollout."""
    logprobs, advantages = list[float](), list[float]()
    for mask, *both in facts.values():
        for values, trained in zip(both, (logprobs, advantages), strict=True):
            trained += [value for value, on in zip(values, mask, strict=True) if on and value is not None]
    return {
        name: {"min": min(trained, default=None), "max": max(trained, default=None)}
        for name, trained in (("logprob", logprobs), ("advantage", advantages))
    }


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


def explain_completion(position: int, comparison: Comparison, options: PlanOptions) -> list[dict[str, str]]:
    """Why a completion is trained, with which number, or why not: mask, credit, advantage, option."""
    return [
        {"step": "mask", "says": _mask(position, comparison) + facts_of(comparison.trajectory.turns[position])},
        {"step": "credit", "says": _credit(position, comparison, options)},
        {"step": "advantage", "says": _advantage(position, comparison, options)},
        {"step": "option", "says": _option(position, comparison)},
    ]


def facts_of(turn: Turn) -> str:
    """What else is known of a completion's tokens: where the weights change, and which large facts there are."""
    versions = ", ".join(f"{one.version} from token {one.start}" for one in turn.weight_versions or ())
    large = ", ".join(name.replace("_", " ") for name in TOKEN_FACTS if getattr(turn, name) is not None)
    return (f" Weights: {versions}." if versions else "") + (f" Also known: {large}." if large else "")


def _mask(position: int, comparison: Comparison) -> str:
    untrained = comparison.trajectory.turns[position].tokens_untrained
    if untrained is not None:
        return f"Not under the mask: {untrained}. {cure_of(untrained)}"
    verdict = comparison.verdict
    trains = bool(verdict.completions) and verdict.completions[position] is None
    says = "which trains it" if trains else "which would train it if no option excluded it"
    return f"Sampled by turn {position}, {says}."


def _credit(position: int, comparison: Comparison, options: PlanOptions) -> str:
    reward = comparison.turn_rewards[position].reward
    what = "the final reward of the rollout" if options.credit == "outcome_reward" else _OF_UNIT[options.unit]
    if comparison.sequences is None:
        return "Not computed: an option left out the whole rollout."
    if reward is None:
        return f"{options.credit}: {what} is unknown."
    return f"{options.credit}: {what}, {reward:g}."


def _advantage(position: int, comparison: Comparison, options: PlanOptions) -> str:
    turn_reward, group_id = comparison.turn_rewards[position], comparison.trajectory.group_id
    if options.advantage == NONE:
        return "No advantages were requested: every trained token has the same weight."
    if turn_reward.advantage is None:
        return "None: there is no usable reward to compare."
    size = len(comparison.members)
    where = "alone, without a group" if group_id is None else f"in group {group_id!r} of {size}"
    return f"{options.advantage} {where}: {turn_reward.advantage:+.6g}."


def _option(position: int, comparison: Comparison) -> str:
    verdict = comparison.verdict
    reason = verdict.completions[position] if verdict.completions else verdict.skipped
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
