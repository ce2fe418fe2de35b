"""Padding: rows of rollouts as the arrays of a DataProto.

Invariant: prompts end and responses begin at one column, so that prompts are padded on the left and responses on the
right, as verl does.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from art_otel.errors import UsageError
from art_otel_verl.rollouts import Row

_OPTIONAL: Final = ("rollout_log_probs", "rm_scores", "advantages")


def pad_rollouts(
    rows: Sequence[Row], *, prompt_length: int | None = None, response_length: int | None = None, pad_token_id: int = 0
) -> dict[str, NDArray[Any]]:
    """The arrays, int64 and float32, by verl's names.

    `prompts` has shape (rows, prompt_length), `responses`, `response_mask`, `rollout_log_probs`, `rm_scores` and
    `advantages` (rows, response_length), `input_ids`, `attention_mask` and `position_ids` the sum of both widths, each
    as long as the longest where not given. The last three of the responses are there only if every row has them. Raises
    UsageError for a row that is longer, and for no rows.
    """
    if not rows:
        raise UsageError("rollouts: there are none, and a DataProto has at least one")
    before = _width([row["prompts"] for row in rows], prompt_length, "prompt_length")
    behind = _width([row["responses"] for row in rows], response_length, "response_length")
    prompts, responses = (np.full((len(rows), width), pad_token_id, np.int64) for width in (before, behind))
    attention = np.zeros((len(rows), before + behind), np.int64)
    mask = np.zeros((len(rows), behind), np.int64)
    optional = {name: np.zeros((len(rows), behind), np.float32) for name in _OPTIONAL if all(row[name] for row in rows)}
    for row_number, row in enumerate(rows):
        start, size = before - len(row["prompts"]), len(row["responses"])
        prompts[row_number, start:] = row["prompts"]
        responses[row_number, :size] = row["responses"]
        attention[row_number, start : before + size] = 1
        mask[row_number, :size] = row["response_mask"]
        for name, array in optional.items():
            array[row_number, :size] = row[name]
    return {
        "prompts": prompts,
        "responses": responses,
        "response_mask": mask,
        "input_ids": np.concatenate([prompts, responses], axis=1),
        "attention_mask": attention,
        "position_ids": np.maximum(attention.cumsum(axis=1) - 1, 0),
        **optional,
    }


def _width(parts: Sequence[Sequence[int]], length: int | None, name: str) -> int:
    longest = max(map(len, parts))
    if length is not None and longest > length:
        raise UsageError(f"{name}={length}: a row has {longest} tokens; allow more, or leave such rows out")
    return longest if length is None else length
