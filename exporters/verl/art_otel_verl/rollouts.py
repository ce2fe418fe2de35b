"""Rollouts: token histories as rows of `rollouts`, and the rows of a file read back as verl's DataProto.

Invariant: `responses`, `response_mask`, `rollout_log_probs`, `rm_scores` and `advantages` of a row have one length. The
tokens under the mask are the trained completions of the history, and a response begins and ends with one of them. In a
DataProto all prompts end at one column, and all responses begin at the next: prompts are padded on the left and
responses on the right, as verl pads them.

    data = load_rollouts("out/verl-rollouts.parquet")

`load_rollouts` needs verl, which art-otel-verl itself does not depend on. Source: `AgentLoopOutput` and `DataProto` of
verl 0.9.1.
"""

# verl and torch are not installed where the types are checked, and pyarrow ships no types.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta
from numpy.typing import NDArray

from art_otel.errors import UsageError
from art_otel.exporting import (
    ExportStats,
    ParquetFile,
    RewardAt,
    Row,
    ScoredTrajectory,
    TokenSequence,
    group_name,
    rollout_name,
    sequences_of,
)

NO_PROMPT: Final = "no prompt tokens before the first trained completion"
END_CUT: Final = "tokens behind the last trained completion cut"

ROLLOUTS: Final = ParquetFile(
    pa.schema(
        [
            ("prompts", pa.list_(pa.int32())),
            ("responses", pa.list_(pa.int32())),
            ("response_mask", pa.list_(pa.int8())),
            ("rollout_log_probs", pa.list_(pa.float32())),
            ("rm_scores", pa.list_(pa.float32())),
            ("advantages", pa.list_(pa.float32())),
            ("uid", pa.string()),
            ("rollout_id", pa.string()),
            ("policy_version", pa.string()),
        ]
    )
)
_OPTIONAL: Final = ("rollout_log_probs", "rm_scores", "advantages")
_NAMES: Final = ("uid", "rollout_id", "policy_version")


@dataclass(frozen=True, kw_only=True, slots=True)
class VerlRolloutsConfig:
    """Options of `rollouts`."""

    reward_at: RewardAt = "end"
    token_rewards: Annotated[
        str | None, Meta(description="the name of a reward that was given to spans of tokens, to add to rm_scores")
    ] = None


def encode_rollouts(items: Iterator[ScoredTrajectory], config: VerlRolloutsConfig, stats: ExportStats) -> Iterator[Row]:
    """Yield a row for each token history that trains something."""
    for item in items:
        key = item.trajectory.group_key
        uid = rollout_name(item.trajectory) if key is None else group_name(key)  # verl compares the rows of one uid
        sequences = sequences_of(item, stats, token_rewards=config.token_rewards)
        kept = [sequence for sequence in sequences if sequence.completions[0].start > 0]
        if len(kept) < len(sequences):
            stats.skipped[NO_PROMPT] += len(sequences) - len(kept)
            if not kept:
                stats.trajectories_skipped[NO_PROMPT] += 1
        for sequence in kept:
            if len(sequence) > sequence.completions[-1].end:
                stats.changed[END_CUT] += 1
            yield _row(sequence, config, uid)


def _row(sequence: TokenSequence, config: VerlRolloutsConfig, uid: str) -> Row:
    start, end = sequence.completions[0].start, sequence.completions[-1].end
    logprobs, scores = sequence.logprobs[start:end], _scores(sequence, config)
    return {
        "prompts": sequence.input_ids[:start],
        "responses": sequence.input_ids[start:end],
        "response_mask": sequence.loss_mask[start:end].astype(np.int8),
        "rollout_log_probs": None if np.isnan(logprobs).any() else logprobs,
        "rm_scores": None if scores is None else scores[start:end],
        "advantages": None if sequence.advantages is None else sequence.advantages[start:end],
        "uid": uid,
        "rollout_id": sequence.rollout_id,
        "policy_version": sequence.policy_version,
    }


def _scores(sequence: TokenSequence, config: VerlRolloutsConfig) -> NDArray[np.float64] | None:
    """The reward of each token, None if a reward is unknown. Shape: (tokens,)."""
    rewarded = range(len(sequence.completions)) if config.reward_at == "completions" else [-1]
    scores = np.zeros(len(sequence)) if sequence.token_rewards is None else sequence.token_rewards.astype(np.float64)
    for position in rewarded:
        reward = sequence.rewards[position]
        if reward is None:
            return None
        scores[sequence.completions[position].end - 1] += reward
    return scores


def load_rollouts(
    path: str | Path, *, prompt_length: int | None = None, response_length: int | None = None, pad_token_id: int = 0
) -> Any:  # noqa: ANN401 # verl's DataProto
    """The rows of a file of the format `rollouts` as a `verl.DataProto`.

    Its tensors are those of `pad_rollouts`. `uid`, `rollout_id` and `policy_version` are arrays of objects. Raises
    ImportError without verl. Raises UsageError for rows that are longer than the lengths, for a file without rows, and
    for a file of another format.
    """
    try:
        import torch  # noqa: PLC0415 # not installed where rows are only written
        from verl import DataProto  # noqa: PLC0415 # as torch
    except ImportError as missing:
        raise ImportError(
            "art_otel_verl.rollouts.load_rollouts needs verl: install it as verl's documentation says"
        ) from missing
    table = pq.read_table(path)
    if lacking := [name for name in ROLLOUTS.schema.names if name not in table.column_names]:
        raise UsageError(
            f"{path}: has no {', '.join(lacking)}; give a file of `art-otel export --to verl --format rollouts`"
        )
    rows = table.to_pylist()
    arrays = pad_rollouts(rows, prompt_length=prompt_length, response_length=response_length, pad_token_id=pad_token_id)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return DataProto.from_dict(tensors=tensors, non_tensors={name: [row[name] for row in rows] for name in _NAMES})


def pad_rollouts(
    rows: Sequence[Row], *, prompt_length: int | None = None, response_length: int | None = None, pad_token_id: int = 0
) -> dict[str, NDArray[Any]]:
    """The arrays of a DataProto by verl's names, int64 and float32.

    `prompts` has shape (rows, prompt_length). `responses`, `response_mask`, `rollout_log_probs`, `rm_scores` and
    `advantages` have (rows, response_length), the last three only if every row has them. `input_ids`, `attention_mask`
    and `position_ids` are as wide as both. A length that is not given is that of the longest row. Raises UsageError for
    a row that is longer, and if there are no rows.
    """
    if not rows:
        raise UsageError("rollouts: none given, but a DataProto needs at least one row")
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
        raise UsageError(f"{name}={length}: a row has {longest} tokens; give a larger length, or leave such rows out")
    return longest if length is None else length
