"""Diagnosis: the meaning of a pattern of differences between recorded and computed logprobs.

    the first completion of each row agrees, all later ones are off      other ids are before them
    one version is off, another agrees                                   other weights sampled this version

Invariant: each part of the tokens is explained once, by the first pattern that fits; a part that no pattern fits is
reported as unexplained. Without a part beyond the limit there is no diagnosis.

Narrow patterns are tried first, because a wide one fits the same tokens, too: logprobs at another temperature are off
in every version, but so are tokens that other weights sampled.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from art_otel.verification.scored_tokens import ScoredTokens

DiagnosisName: TypeAlias = Literal[
    "tempered logprobs",
    "constrained",
    "first tokens",
    "other weights",
    "shifted ids",
    "some completions",
    "numeric noise",
    "another model",
]

_MOST: Final = 0.5
"""The share of completions that must be off for "all are off": a model that is sure of a token is sure of it with other
weights, too, so some short completions agree by chance."""

_FEW: Final = 0.1

_LOST: Final = 1.0
"""In nats per token. Weights of the step before differ by thousandths; a model that read other ids is far off."""

_NOISE: Final = 0.1
"""In nats per token. Rounding in 16 bits stays below it."""

_GROWTH: Final = 10.0
"""The most by which rounding may grow from the first third of the tokens to the last."""

_MISREAD: Final = 0.1
"""Nats a token, which a model that has read other ids is off at the least: SmolLM2-135M is, by 0.3 to 0.9, where one id
of the latest message is missing, doubled or another. Weights that were not loaded again are hundredths apart."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the tokens that is off: `meaning` is the cause in one sentence, `advice` what to do.

    `tokens` is the number of these tokens, `share` their share of all compared tokens, `mean` their mean absolute
    difference in nats; `where` describes which tokens they are.
    """

    name: DiagnosisName
    where: str
    tokens: int
    share: float
    mean: float
    meaning: str
    advice: str


_TokenMask: TypeAlias = NDArray[np.bool_]


class _Meaning(NamedTuple):
    meaning: str
    advice: str


_MEANINGS: Final[dict[DiagnosisName, _Meaning]] = {
    "tempered logprobs": _Meaning(
        meaning="the server's logprobs are those of the distribution after temperature, not the model's own",
        advice="start vLLM with --logprobs-mode raw_logprobs, or sample at temperature 1; a loss that compares them"
        " with the model's own has wrong ratios",
    ),
    "constrained": _Meaning(
        meaning="where a grammar, a schema or a forced tool restricted the tokens, logprobs are relative to the "
        "allowed tokens",
        advice='leave such completions out with batches(…, constrained="mask"), or mask their ratios in the loss',
    ),
    "first tokens": _Meaning(
        meaning="only the first token of each completion is off: the prompt that the server sampled from ends "
        "differently from the recorded one",
        advice="compare the end of prompt_token_ids with the chat template's generation prompt",
    ),
    "other weights": _Meaning(
        meaning="these tokens were sampled from other weights than this model's",
        advice="give --model the checkpoint of this version; if it is the one, the server had not loaded all of it:"
        " look for a tied head (vLLM on a CPU keeps the old one), an adapter that was not switched, or the base model."
        " If the weights are right, the server read other prompts than the recorded ones",
    ),
    "shifted ids": _Meaning(
        meaning="the beginning agrees, but not what follows a certain place: there the model read something else "
        "than the server",
        advice="look at this place in `art-otel view`: ids that are missing, doubled or shifted, or a context that the"
        " server shortened",
    ),
    "some completions": _Meaning(
        meaning="some completions differ as a whole, and others agree",
        advice="look at these rollouts: ids of another call, calls that another model answered, or a context that the"
        " server shortened",
    ),
    "numeric noise": _Meaning(
        meaning="the differences are small, have no direction and grow with the length, like rounding errors",
        advice="other kernels or a lower precision cause this; set --precision to the server's precision. If that is"
        " float32, look for weights that it had not loaded",
    ),
    "another model": _Meaning(
        meaning="nothing agrees: these tokens are not from this model, or it read another prompt than the recorded one",
        advice="compare the model's name and its tokenizer with those of the server",
    ),
}


class _Differences(NamedTuple):
    """The absolute difference of each token at temperature 1 and at its own temperature; and the first one with sign.

    Shape: (tokens,) each.
    """

    plain: NDArray[np.float64]
    tempered: NDArray[np.float64]
    signed: NDArray[np.float64]


def diagnose(
    scored: ScoredTokens, model: NDArray[np.float64], tempered: NDArray[np.float64], limit: float
) -> tuple[Diagnosis, ...]:
    """Explain the parts of the tokens whose mean absolute difference is above `limit`, in nats.

    `model` and `tempered` are the model's logprobs of the compared tokens, at temperature 1 and at each token's own
    temperature. Shape: (compared tokens,).
    """
    if not len(scored):
        return ()
    signed = model - scored.recorded
    differences = _Differences(np.abs(signed), np.abs(tempered - scored.recorded), signed)
    unexplained = np.ones(len(scored), np.bool_)
    diagnoses: list[Diagnosis] = []
    for pattern in _PATTERNS:
        for name, where, part in pattern(scored, differences, unexplained, limit):
            mean = float(differences.plain[part].mean())
            meaning, advice = _MEANINGS[name]
            tokens = int(np.count_nonzero(part))
            diagnoses.append(
                Diagnosis(
                    name=name,
                    where=where,
                    tokens=tokens,
                    share=tokens / len(scored),
                    mean=mean,
                    meaning=meaning,
                    advice=advice,
                )
            )
            unexplained &= ~part
    return tuple(diagnoses)


_Explained: TypeAlias = Iterator[tuple[DiagnosisName, str, _TokenMask]]
_Pattern: TypeAlias = Callable[[ScoredTokens, _Differences, _TokenMask, float], _Explained]


def _is_off(part: _TokenMask, differences: _Differences, limit: float) -> bool:
    return bool(part.any()) and float(differences.plain[part].mean()) > limit


def _only(part: _TokenMask, differences: _Differences, unexplained: _TokenMask, limit: float) -> bool:
    """Whether a part is off, and the other tokens without an explanation are not."""
    rest = unexplained & ~part
    return _is_off(part, differences, limit) and bool(rest.any()) and not _is_off(rest, differences, limit)


def _tempered(scored: ScoredTokens, differences: _Differences, unexplained: _TokenMask, limit: float) -> _Explained:
    """Pattern: at the temperature of the request, the model gives the recorded logprobs."""
    temperatures = np.array([one.temperature or 1.0 for one in scored.completions])[scored.completion]
    part = unexplained & (temperatures != 1.0)
    if _is_off(part, differences, limit) and float(differences.tempered[part].mean()) <= limit:
        texts = ", ".join(f"{temperature:g}" for temperature in sorted(set(temperatures[part].tolist())))
        yield "tempered logprobs", f"at temperature {texts}", part


def _constrained(scored: ScoredTokens, differences: _Differences, unexplained: _TokenMask, limit: float) -> _Explained:
    """Pattern: only constrained completions are off; or, if all are constrained, many of their logprobs are 0.0."""
    part = unexplained & np.array([one.is_constrained for one in scored.completions])[scored.completion]
    is_forced = bool(part.any()) and float((scored.recorded[part] == 0.0).mean()) > _FEW
    if _only(part, differences, unexplained, limit) or (is_forced and _is_off(part, differences, limit)):
        yield "constrained", "completions that were constrained", part


def _first_tokens(scored: ScoredTokens, differences: _Differences, unexplained: _TokenMask, limit: float) -> _Explained:
    part = unexplained & (scored.depth == 0)
    if _only(part, differences, unexplained, limit):
        yield "first tokens", "the first token of each completion", part


def _versions(scored: ScoredTokens, differences: _Differences, unexplained: _TokenMask, limit: float) -> _Explained:
    """Pattern: in some versions most completions are off, in another version nearly none is."""
    shares: dict[int, float] = {}
    for code in np.unique(scored.version[unexplained]).tolist():
        part = unexplained & (scored.version == code)
        shares[code] = _share_off(scored, differences, part, limit) if _is_off(part, differences, limit) else 0.0
    if min(shares.values(), default=1.0) > _FEW:
        return
    for code, share in shares.items():
        if share >= _MOST:
            version = scored.versions[code]
            name = "unknown version" if version is None else f"version {version}"
            yield "other weights", name, unexplained & (scored.version == code)


def _shifted(scored: ScoredTokens, differences: _Differences, unexplained: _TokenMask, limit: float) -> _Explained:
    """Pattern: the first completions of rows agree and all later ones are off; or all tokens from a position on are.

    The position is in the row, or in the completion.
    """
    is_off = _completions_off(scored, differences, unexplained, limit)
    by_row: dict[int, list[int]] = {}
    for number in is_off:
        by_row.setdefault(scored.completions[number].row, []).append(number)
    shifted: list[list[int]] = []
    for numbers in by_row.values():
        first = next((place for place, number in enumerate(numbers) if is_off[number]), None)
        behind = [] if first is None else numbers[first:]
        if first and sum(is_off[number] for number in behind) >= _MOST * len(behind):
            shifted.append(behind)
    explained = sum(is_off[number] for behind in shifted for number in behind)
    # The last completions of few rows alone are rather of another call.
    could_be = sum(len(numbers) > 1 for numbers in by_row.values())
    is_clear = any(len(behind) > 1 for behind in shifted) or len(shifted) > _FEW * could_be
    if shifted and is_clear and explained >= (1 - _FEW) * sum(is_off.values()):
        numbers = [number for behind in shifted for number in behind]
        position = min(scored.completions[number].start for number in numbers)
        part = unexplained & np.isin(scored.completion, numbers)
        if _is_misread(scored, differences, part, unexplained & ~part):
            yield "shifted ids", f"after an initial agreement, from position {position} of a history on", part
        return
    # Some completions begin with tokens of which any weights are sure, so only large differences after them count.
    of_history = _first_place_off(scored.position, differences, unexplained, limit, 10 * limit)
    of_completion = _first_place_off(scored.depth, differences, unexplained, limit, max(_LOST, 10 * limit))
    if of_completion is not None and (of_history is None or of_completion.gain > of_history.gain):
        part, where = scored.depth >= of_completion.place, f"from position {of_completion.place} of each completion on"
    elif of_history is not None:
        part, where = scored.position >= of_history.place, f"from position {of_history.place} of a history on"
    else:
        return
    part = unexplained & part
    is_misread = _is_misread(scored, differences, part, unexplained & ~part)
    if is_misread and _share_off(scored, differences, part, limit) >= _MOST:
        yield "shifted ids", where, part


def _is_misread(scored: ScoredTokens, differences: _Differences, part: _TokenMask, rest: _TokenMask) -> bool:
    """Whether a part is off as after other ids, and the rest agrees although other weights would show there, too."""
    return float(differences.plain[part].mean()) > _MISREAD and _would_show(scored, differences, part, rest)


def _would_show(scored: ScoredTokens, differences: _Differences, part: _TokenMask, rest: _TokenMask) -> bool:
    """Whether the rest would be off, too, if other weights were the cause for the part.

    A change of the logits moves a logprob in proportion to 1 - p: tokens with p near 1 agree with any weights.
    """
    unsure = -np.expm1(np.minimum(scored.recorded, 0.0))
    expected = differences.plain[part].mean() * unsure[rest].mean() / max(unsure[part].mean(), 1e-9)
    return bool(differences.plain[rest].mean() < _FEW * expected)


class _PlaceOff(NamedTuple):
    """The place from which tokens are off, and by how much more than before it."""

    place: int
    gain: float


def _first_place_off(
    places: NDArray[np.int32], differences: _Differences, unexplained: _TokenMask, limit: float, least: float
) -> _PlaceOff | None:
    """The place before which tokens agree, and from which they are off by more than `least`; None without such a place.

    Shape of `places`: (tokens,).
    """
    order = np.argsort(places[unexplained], kind="stable")
    ordered = places[unexplained][order]
    sums = np.concatenate([[0.0], np.cumsum(differences.plain[unexplained][order])])
    cuts = np.flatnonzero(np.diff(ordered)) + 1  # between two places
    if not len(cuts):
        return None
    before = sums[cuts] / cuts
    behind = (sums[-1] - sums[cuts]) / (len(ordered) - cuts)
    gains = np.where((before <= limit) & (behind > least), behind - before, -np.inf)
    best = int(gains.argmax())
    return _PlaceOff(int(ordered[cuts[best]]), float(gains[best])) if np.isfinite(gains[best]) else None


def _some_completions(
    scored: ScoredTokens, differences: _Differences, unexplained: _TokenMask, limit: float
) -> _Explained:
    """Pattern: few completions are off, by far more than the others."""
    is_off = _completions_off(scored, differences, unexplained, limit)
    numbers = [number for number, off in is_off.items() if off]
    part = unexplained & np.isin(scored.completion, numbers)
    rest = unexplained & ~part
    if numbers and len(numbers) < _MOST * len(is_off) and not _is_off(rest, differences, limit):
        rollouts = sorted({scored.completions[number].rollout_id for number in numbers})
        shown = ", ".join(rollouts[:3]) + (f" and {len(rollouts) - 3} more" if len(rollouts) > 3 else "")
        if float(differences.plain[part].mean()) > 10 * limit and _would_show(scored, differences, part, rest):
            yield "some completions", f"{len(numbers)} completions of {shown}", part


def _noise(scored: ScoredTokens, differences: _Differences, unexplained: _TokenMask, limit: float) -> _Explained:
    if not _is_off(unexplained, differences, limit):
        return
    sizes = differences.plain[unexplained]
    order = np.argsort(scored.position[unexplained], kind="stable")
    third = max(len(order) // 3, 1)
    first, last = sizes[order[:third]].mean(), sizes[order[-third:]].mean()
    grows = 1.5 * first < last < _GROWTH * first
    has_no_direction = abs(differences.signed[unexplained].mean()) < 0.25 * sizes.mean()
    if sizes.mean() < _NOISE and grows and has_no_direction:
        yield "numeric noise", "all tokens, later ones more", unexplained.copy()


def _all(scored: ScoredTokens, differences: _Differences, unexplained: _TokenMask, limit: float) -> _Explained:
    """Pattern: all remaining tokens together are off."""
    del scored
    if _is_off(unexplained, differences, limit):
        is_lost = differences.plain[unexplained].mean() > _LOST
        yield "another model" if is_lost else "other weights", "all tokens alike", unexplained.copy()


_PATTERNS: Final[tuple[_Pattern, ...]] = (
    *(_tempered, _constrained, _first_tokens, _versions, _shifted, _some_completions, _noise, _all),
)


def _completions_off(
    scored: ScoredTokens, differences: _Differences, part: _TokenMask, limit: float
) -> dict[int, bool]:
    """For each completion of a part, whether its mean difference is above the limit."""
    count = len(scored.completions)
    tokens = np.bincount(scored.completion[part], minlength=count)
    sums = np.bincount(scored.completion[part], weights=differences.plain[part], minlength=count)
    return {number: bool(sums[number] > limit * tokens[number]) for number in np.flatnonzero(tokens).tolist()}


def _share_off(scored: ScoredTokens, differences: _Differences, part: _TokenMask, limit: float) -> float:
    are_off = _completions_off(scored, differences, part, limit)
    return sum(are_off.values()) / len(are_off)
