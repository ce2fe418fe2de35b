"""What batches teach, in plain values: each completion with what stood before it and what it is worth."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import art_otel
from art_otel.data import Batch


class Learnt(NamedTuple):
    """A run of trained tokens: `before` are the ids of its sequence up to there, `worth` the advantage of each."""

    rollout: str
    before: tuple[int, ...]
    ids: tuple[int, ...]
    worth: tuple[float, ...]


def as_given(rewards) -> np.ndarray:
    """An advantage that is the reward itself."""
    return np.array(rewards, np.float64)


def learn(source, **options) -> list[Learnt]:
    """Everything that batches teach, in any order; their report must agree."""
    batches = art_otel.batches(source, **{"advantage": as_given, **options})
    found = [learnt for batch in batches for learnt in of_batch(batch)]
    assert sum(len(learnt.ids) for learnt in found) == batches.report.trained_tokens
    return sorted(found)


def of_batch(batch: Batch) -> Iterator[Learnt]:
    """The runs of trained tokens in a batch of a sequence a row."""
    for row, rollout in enumerate(batch.rollout_ids):
        ids, mask = batch.input_ids[row], batch.loss_mask[row]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
        for start, end in edges.reshape(-1, 2).tolist():
            before, sampled = (tuple(piece.tolist()) for piece in (ids[:start], ids[start:end]))
            yield Learnt(rollout, before, sampled, tuple(batch.advantages[row, start:end].tolist()))
