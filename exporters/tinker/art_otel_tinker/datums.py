"""Datums: token histories as tinker-cookbook's `trajectory_to_data` makes them, written and read.

Invariant: the lists of a record have one length, one less than the tokens of its history: position i asks for token
i + 1. The mask is 1.0 exactly where that token was sampled, is trained here and has a logprob; elsewhere logprobs and
advantages are 0.0. Read back, an input of the loss is float32 and the target tokens are int64, as
`assemble_training_data` has them.

Source: `tinker_cookbook.rl.data_processing` and `supervised.common` of tinker-cookbook 0.6.1.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from art_otel.exporting import ExportStats, JsonObject, NoOptions, TokenSequence, scored

NOTHING_LEFT: Final = "sequences that train nothing"
FIRST: Final = "first tokens of sequences, not trained because no token stands before them"

_INPUTS: Final = ("target_tokens", "logprobs", "advantages", "mask")
"""The fields of a record that become inputs of tinker's loss."""


def encode_datums(items: Iterator[TokenSequence], _: NoOptions, stats: ExportStats) -> Iterator[JsonObject]:
    """Yield a record for each sequence that still trains something after tinker's shift."""
    for sequence in items:
        trained = scored(sequence, stats)
        if trained is None or not trained.loss_mask[1:].any():
            stats.skipped[NOTHING_LEFT] += 1
            continue
        if trained.loss_mask[0]:
            stats.changed[FIRST] += 1
        yield _record(trained)


def _record(sequence: TokenSequence) -> JsonObject:
    """Shift a sequence by one token. A float32 is written as the shortest double that is equal to it."""
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


def read_datums(path: str | Path) -> Iterator[Any]:
    """Read the records of a file as `tinker.Datum`. Raises ImportError without tinker, ValueError for another file."""
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                datum = _datum(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}:{number}: {error!r}; give a file of `art-otel export --to tinker --format datums`"
                ) from error
            yield datum


def _datum(record: JsonObject) -> Any:  # noqa: ANN401 # tinker's class
    tinker: Any = import_module("tinker")  # installed only where one trains
    inputs = {
        name: tinker.TensorData(
            data=record[name], dtype="int64" if name == "target_tokens" else "float32", shape=[len(record[name])]
        )
        for name in _INPUTS
        if name in record
    }
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(record["model_input"]), loss_fn_inputs=inputs)
