"""Tokens: token histories as rows of `sft` and `grpo`.

Invariant: the tokens under the mask of a row (labels that are not -100, `env_mask` 1) are those under the mask of the
sequence. A sequence without a row is counted with the reason.

Sources: `SFTTrainer` on a dataset with `input_ids` and `labels`; `rollout_func` of `GRPOTrainer` (TRL 1.16).
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from art_otel.exporting import ExportStats, NoOptions, ParquetFile, Row, TokenSequence

NOT_TRAINED: Final = -100
"""The label of a token that is not trained."""

NO_PROMPT: Final = "no prompt tokens before the first trained completion"
ONLY_FIRST: Final = "only the first token is sampled, which a causal model is not trained on"
FIRST: Final = "the first token is sampled, which a causal model is not trained on"
END_CUT: Final = "tokens behind the last trained completion cut"


def encode_sft(items: Iterator[TokenSequence], _config: NoOptions, stats: ExportStats) -> Iterator[Row]:
    """Yield a row for each sequence: `input_ids`, and `labels`, which are -100 for what is not trained."""
    for sequence in items:
        if not sequence.loss_mask[1:].any():
            stats.skipped[ONLY_FIRST] += 1
            continue
        if sequence.loss_mask[0]:
            stats.changed[FIRST] += 1
        yield {
            "input_ids": sequence.input_ids.tolist(),
            "labels": np.where(sequence.loss_mask, sequence.input_ids, NOT_TRAINED).tolist(),
            **_origin(sequence),
        }


def encode_grpo(items: Iterator[TokenSequence], _config: NoOptions, stats: ExportStats) -> Iterator[Row]:
    """Yield a row for each sequence that has a prompt, with the fields that a `rollout_func` returns."""
    for sequence in items:
        row = grpo_row(sequence)
        if row is None:
            stats.skipped[NO_PROMPT] += 1
            continue
        if len(sequence) > sequence.completions[-1].end:
            stats.changed[END_CUT] += 1
        yield row


def grpo_row(sequence: TokenSequence) -> Row | None:
    """The row of a sequence, None if no prompt stands before its first trained completion.

    The completion is all from the first trained completion to the end of the last one. `completion_ids`, `env_mask` (1
    if trained) and `logprobs` have one length. A logprob is 0.0 if the token was not sampled, and None if a trained
    token has none.
    """
    start, end = sequence.completions[0].start, sequence.completions[-1].end
    if start == 0:
        return None
    return {
        "prompt_ids": sequence.input_ids[:start].tolist(),
        "completion_ids": sequence.input_ids[start:end].tolist(),
        "env_mask": sequence.loss_mask[start:end].astype(int).tolist(),
        "logprobs": [None if math.isnan(logprob) else logprob for logprob in sequence.logprobs[start:end].tolist()],
        **_origin(sequence),
        "training_step": sequence.training_step,
        "gathering": sequence.gathering,
    }


def _origin(sequence: TokenSequence) -> Row:
    return {
        "rollout_id": sequence.rollout_id,
        "group_id": sequence.group_id,
        "reward": sequence.reward,
        "policy_version": sequence.policy_version,
    }


_ORIGIN: Final = [
    ("rollout_id", pa.string()),
    ("group_id", pa.string()),
    ("reward", pa.float64()),
    ("policy_version", pa.string()),
]

SFT: Final = ParquetFile(pa.schema([("input_ids", pa.list_(pa.int32())), ("labels", pa.list_(pa.int32())), *_ORIGIN]))
GRPO: Final = ParquetFile(
    pa.schema(
        [
            ("prompt_ids", pa.list_(pa.int32())),
            ("completion_ids", pa.list_(pa.int32())),
            ("env_mask", pa.list_(pa.int8())),
            ("logprobs", pa.list_(pa.float32())),
            *_ORIGIN,
            ("training_step", pa.int64()),
            ("gathering", pa.string()),
        ]
    )
)
