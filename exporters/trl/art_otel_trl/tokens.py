"""Tokens: token histories as rows of `sft` and `grpo`.

Invariant: the tokens under the mask of a row (labels that are not -100, `env_mask` 1) are those of the sequence.

Sources: `SFTTrainer` on a dataset with `input_ids` and `labels`; `rollout_func` of `GRPOTrainer` (TRL 1.16).
"""

import math
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from art_otel.exporting import ExportStats, TokenSequence
from art_otel_trl.config import GrpoConfig, SftConfig

Row: TypeAlias = dict[str, Any]

NOT_TRAINED: Final = -100
"""The label of a token that is not trained."""

NO_PROMPT: Final = "no prompt tokens before the first trained completion"
ONLY_FIRST: Final = "only the first token is sampled, and no causal model is trained on it"
FIRST: Final = "the first token is sampled, and no causal model is trained on it"
END_CUT: Final = "tokens behind the last trained completion cut"


def encode_sft(items: Iterator[TokenSequence], _config: SftConfig, stats: ExportStats) -> Iterator[Row]:
    """A row a sequence: `input_ids`, and `labels` which are -100 where nothing is trained."""
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


def encode_grpo(items: Iterator[TokenSequence], _config: GrpoConfig, stats: ExportStats) -> Iterator[Row]:
    """A row a sequence, as `rollout_func` returns it; sequences that begin with a completion are left out."""
    for sequence in items:
        row = grpo_row(sequence)
        if row is None:
            stats.skipped[NO_PROMPT] += 1
            continue
        if len(sequence) > sequence.completions[-1].end:
            stats.changed[END_CUT] += 1
        yield row


def grpo_row(sequence: TokenSequence) -> Row | None:
    """The prompt ends before the first trained completion, the completion with the last. None without a prompt.

    `completion_ids`, `env_mask` (1 where trained) and `logprobs` have one length. A logprob is None where a trained
    token has none, 0.0 where nothing was sampled.
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
    }


def _origin(sequence: TokenSequence) -> Row:
    return {
        "rollout_id": sequence.rollout_id,
        "group_id": sequence.group_id,
        "reward": sequence.reward,
        "policy_version": sequence.policy_version,
    }
