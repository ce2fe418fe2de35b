"""Datums: token histories as tinker-cookbook's `trajectory_to_data` makes them.

Invariant: the lists of a record have one length, one less than the tokens of its history: position i asks for token
i + 1. The mask is 1.0 exactly where that token was sampled, is trained here and has a logprob; elsewhere logprobs and
advantages are 0.0.

Source: `tinker_cookbook.rl.data_processing` and `supervised.common` of tinker-cookbook 0.6.1.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from art_otel.exporting import ExportStats, TokenSequence
from art_otel_tinker.config import DatumsConfig

JsonObject: TypeAlias = dict[str, Any]

NO_LOGPROBS: Final = "completions without logprobs"
NOTHING_LEFT: Final = "sequences that train nothing"
FIRST: Final = "first tokens of sequences not trained, because tinker has nothing to sample them from"


def encode_datums(items: Iterator[TokenSequence], _: DatumsConfig, stats: ExportStats) -> Iterator[JsonObject]:
    """A record a sequence. Numbers are those of its arrays, float32 as the shortest double that is equal."""
    for sequence in items:
        mask = _trainable(sequence, stats)
        if not mask[1:].any():
            stats.skipped[NOTHING_LEFT] += 1
            continue
        if mask[0]:
            stats.changed[FIRST] += 1
        yield _record(sequence, mask)


def _trainable(sequence: TokenSequence, stats: ExportStats) -> NDArray[np.bool_]:
    """The loss mask without the completions that tinker could not train. Shape: (tokens,)."""
    mask = sequence.loss_mask.copy()
    for span in sequence.completions:
        if np.isnan(sequence.logprobs[span.start : span.end]).any():
            stats.skipped[NO_LOGPROBS] += 1
            mask[span.start : span.end] = False
    return mask


def _record(sequence: TokenSequence, mask: NDArray[np.bool_]) -> JsonObject:
    ids = sequence.input_ids.tolist()
    record: JsonObject = {
        "model_input": ids[:-1],
        "target_tokens": ids[1:],
        "logprobs": np.where(mask, sequence.logprobs, 0.0)[1:].tolist(),
        "mask": mask[1:].astype(np.float32).tolist(),
        "rollout_id": sequence.rollout_id,
        "group_id": sequence.group_id,
        "reward": sequence.reward,
        "policy_version": sequence.policy_version,
    }
    if sequence.advantages is not None:
        record["advantages"] = np.where(mask, sequence.advantages, 0.0)[1:].tolist()
    return record
