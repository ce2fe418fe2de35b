"""Datums: token histories as tinker-cookbook's `trajectory_to_data` makes them.

Invariant: the lists of a record have one length, one less than the tokens of its history: position i asks for token
i + 1. The mask is 1.0 exactly where that token was sampled, is trained here and has a logprob; elsewhere logprobs and
advantages are 0.0.

Source: `tinker_cookbook.rl.data_processing` and `supervised.common` of tinker-cookbook 0.6.1.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from art_otel.exporting import ExportStats, TokenSequence, scored
from art_otel_tinker.config import DatumsConfig

JsonObject: TypeAlias = dict[str, Any]

NOTHING_LEFT: Final = "sequences that train nothing"
FIRST: Final = "first tokens of sequences not trained, because tinker has nothing to sample them from"


def encode_datums(items: Iterator[TokenSequence], _: DatumsConfig, stats: ExportStats) -> Iterator[JsonObject]:
    """A record a sequence. Numbers are those of its arrays, float32 as the shortest double that is equal."""
    for sequence in items:
        trained = scored(sequence, stats)
        if trained is None or not trained.loss_mask[1:].any():
            stats.skipped[NOTHING_LEFT] += 1
            continue
        if trained.loss_mask[0]:
            stats.changed[FIRST] += 1
        yield _record(trained)


def _record(sequence: TokenSequence) -> JsonObject:
    ids = sequence.input_ids.tolist()
    record: JsonObject = {
        "model_input": ids[:-1],
        "target_tokens": ids[1:],
        "logprobs": np.where(sequence.loss_mask, sequence.logprobs, 0.0)[1:].tolist(),
        "mask": sequence.loss_mask[1:].astype(np.float32).tolist(),
        "rollout_id": sequence.rollout_id,
        "group_id": sequence.group_id,
        "reward": sequence.reward,
        "policy_version": sequence.policy_version,
    }
    if sequence.advantages is not None:
        record["advantages"] = sequence.advantages[1:].tolist()
    return record
