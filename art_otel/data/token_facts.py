"""Token facts: arrays with facts of each token besides its id, and how each token was sampled.

    input_ids          1  2 11 12
    weight_versions   -1 -1  7  8      the weights were updated while the completion was sampled

Invariant: an array has one entry per token. An unknown value, or one of a token that was not sampled, is -1 (or has no
ids), never a possible value. A sampling parameter that the request does not have is unknown, because a server's
defaults are not recorded; such a token counts as sampled from the policy's own distribution.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from art_otel.calls import TOKEN_FACTS, RoutedExperts, TokenIds
from art_otel.data.model_names import version_number
from art_otel.errors import UsageError
from art_otel.sampling import Sampling
from art_otel.trajectories import CompletionSpan, Trajectory, version_of

TokenFact: TypeAlias = Literal["routed_experts", "sampling_mask"]
UNKNOWN: Final = -1


def token_facts_of(names: str | Iterable[str]) -> frozenset[str]:
    """The names of the requested token facts. Raises UsageError for an unknown name."""
    asked = frozenset((names,) if isinstance(names, str) else names)
    if unknown := asked - set(TOKEN_FACTS):
        raise UsageError(f"token_facts: there is no {min(unknown)!r}; use {' or '.join(TOKEN_FACTS)}")
    return asked


def weight_versions(trajectory: Trajectory, trained: Sequence[CompletionSpan], size: int) -> NDArray[np.int64]:
    """The number of the version that sampled each trained token, -1 elsewhere. Shape: (tokens,)."""
    versions = np.full(size, UNKNOWN, np.int64)
    for span in trained:
        turn = trajectory.turns[span.turn]
        number = version_number(version_of(trajectory, trajectory.calls[turn.call]))
        versions[span.start : span.end] = UNKNOWN if number is None else number
        if turn.token_ids is None or len(turn.token_ids) < span.end - span.start:  # these ids were made here
            continue
        for one in turn.weight_versions or ():
            number = version_number(one.version)
            end = min(span.start + one.end, span.end)
            versions[span.start + one.start : end] = UNKNOWN if number is None else number
    return versions


def routed_experts(trajectory: Trajectory, spans: Sequence[CompletionSpan], size: int) -> NDArray[np.int32] | None:
    """The experts of each token, -1 if unknown. Shape: (tokens, layers, experts); None if no completion has any.

    If two turns have a token's experts, those of the earlier turn count.
    """
    known = [(span.end - 1, one) for span in spans if (one := trajectory.turns[span.turn].routed_experts) is not None]
    if not known:
        return None
    shape = known[0][1].layers, known[0][1].experts
    rows = np.full((size, *shape), UNKNOWN, np.int32)
    for end, one in reversed(known):  # the earlier turns last, so that their experts stay
        if (one.layers, one.experts) == shape and end > 0:
            last = one.last(end)
            rows[end - len(last) : end] = _array(last)
    return rows


def _array(experts: RoutedExperts) -> NDArray[np.int32]:
    numbers = np.frombuffer(experts.data, f"<u{experts.width}").astype(np.int32)
    return numbers.reshape(len(experts), experts.layers, experts.experts)


def sampling_mask(trajectory: Trajectory, trained: Sequence[CompletionSpan], size: int) -> tuple[TokenIds, ...] | None:
    """The ids that each trained token could have been, empty if unknown. Shape: (tokens,); None if nothing is known."""
    masks = [TokenIds()] * size
    is_known = False
    for span in trained:
        its_masks = trajectory.turns[span.turn].sampling_mask
        if its_masks is not None and len(its_masks) == span.end - span.start:
            masks[span.start : span.end] = its_masks
            is_known = True
    return tuple(masks) if is_known else None


def stacked_experts(
    rows: Sequence[Sequence[tuple[int, NDArray[np.int32] | None]]], shape: tuple[int, int]
) -> NDArray[np.int32]:
    """Put the experts of sequences, given with the sequences' lengths, into rows.

    Shape: (rows, width, layers, experts).
    """
    known = [experts for row in rows for _, experts in row if experts is not None]
    layers, experts_a_token = known[0].shape[1:] if known else (0, 0)
    stacked = np.full((*shape, layers, experts_a_token), UNKNOWN, np.int32)
    for number, row in enumerate(rows):
        end = 0
        for size, experts in row:
            if experts is not None and experts.shape[1:] == (layers, experts_a_token):
                stacked[number, end : end + size] = experts
            end += size
    return stacked


def stacked_masks(
    rows: Sequence[Sequence[tuple[int, tuple[TokenIds, ...] | None]]], shape: tuple[int, int]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """How many ids each place could have been, shape (rows, width), and all these ids, place after place."""
    counts = np.zeros(shape, np.int32)
    ids: list[bytes] = []
    for number, row in enumerate(rows):
        end = 0
        for size, masks in row:
            if masks is not None:
                counts[number, end : end + size] = [len(mask) for mask in masks]
                ids += [mask.data for mask in masks]
            end += size
    return counts, np.frombuffer(b"".join(ids), "<i4").astype(np.int32)


def of_each_token(
    name: Literal["temperature", "top_p"],
    completions: Iterable[CompletionSpan],
    samplings: Iterable[Sampling],
    size: int,
) -> NDArray[np.float32]:
    """The temperature or top-p of each token of a completion, NaN if its request has none. Shape: (tokens,)."""
    values = np.ones(size, np.float32)  # 1.0 for other tokens: trainers divide all logits by it, and it changes nothing
    for span, one in zip(completions, samplings, strict=True):
        value: float | None = getattr(one, name)
        values[span.start : span.end] = np.nan if value is None else value
    return values
