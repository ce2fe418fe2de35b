"""Batch: sequences collated into rows, as numpy arrays.

Invariant: every token of every sequence stands in exactly one place, in order, and every other place is padding:
segment 0, mask False, all else 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from art_otel.data.sequences.sequence import TokenSequence


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Batch:
    """Arrays, as attributes and by name: `batch.input_ids` is `batch["input_ids"]`.

    A place in a row, shape (rows, width): `input_ids` int32; `loss_mask` bool, True for sampled tokens to train on;
    `logprobs` float32, the policy's when it sampled, 0.0 where nothing was sampled and NaN where nobody recorded them;
    `advantages` float32, 0.0 outside of the mask, and `token_rewards` float32, 0.0 where none were given, both None
    where nobody asked for them; `segment_ids` int32, s for a token of sequence s - 1, 0 for padding; `position_ids`
    int32, from 0 in each sequence.

    A sequence, shape (sequences,): `rewards` float64, that of the sequence's last trained completion, NaN where
    unknown; `group_ids`, `policy_version`, `rollout_ids` hold text, None where unknown; `retokenized` bool, True where
    the ids are not the server's.
    """

    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    advantages: NDArray[np.float32] | None
    token_rewards: NDArray[np.float32] | None
    segment_ids: NDArray[np.int32]
    position_ids: NDArray[np.int32]
    rewards: NDArray[np.float64]
    group_ids: NDArray[np.object_]
    policy_version: NDArray[np.object_]
    rollout_ids: NDArray[np.object_]
    retokenized: NDArray[np.bool_]

    def __repr__(self) -> str:
        rows, width = self.input_ids.shape
        return f"<Batch {rows} x {width} tokens, {int(self.loss_mask.sum())} trained, {len(self.rewards)} sequences>"

    def __getitem__(self, name: str) -> "NDArray[np.generic] | None":
        """The array of this name. Raises KeyError."""
        if name not in self.__slots__:
            raise KeyError(f"{name!r}: a batch has {', '.join(self.__slots__)}")
        return getattr(self, name)

    def arrays(self) -> "dict[str, NDArray[np.generic]]":
        """All arrays by name, those that are None left out."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: array for name, array in named.items() if array is not None}

    def without_loss(self) -> "Batch":
        """The same tokens with nothing to train on: what a rank gives while others still have a batch."""
        zeros = np.zeros(self.input_ids.shape, np.float32)
        return replace(
            self,
            loss_mask=np.zeros(self.input_ids.shape, np.bool_),
            logprobs=np.nan_to_num(self.logprobs, nan=0.0),
            advantages=None if self.advantages is None else zeros,
            token_rewards=None if self.token_rewards is None else zeros,
        )


def collate(rows: Sequence[Sequence[TokenSequence]], *, width: int | None = None, pad_token_id: int = 0) -> Batch:
    """Collate sequences, each row's one after the other. Without `width` it is that of the longest row."""
    sequences = [sequence for row in rows for sequence in row]
    longest = max((sum(map(len, row)) for row in rows), default=0)
    shape = (len(rows), longest if width is None else width)
    input_ids = np.full(shape, pad_token_id, np.int32)
    loss_mask, logprobs = np.zeros(shape, np.bool_), np.zeros(shape, np.float32)
    segment_ids, position_ids = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    positions = np.arange(max(map(len, sequences), default=0), dtype=np.int32)
    advantages = None if any(one.advantages is None for one in sequences) else np.zeros(shape, np.float32)
    token_rewards = None if any(one.token_rewards is None for one in sequences) else np.zeros(shape, np.float32)
    number = 0
    for row, members in enumerate(rows):
        end = 0
        for sequence in members:
            number += 1
            size = len(sequence)
            where = (row, slice(end, end + size))
            end += size
            input_ids[where] = sequence.input_ids
            loss_mask[where] = sequence.loss_mask
            logprobs[where] = sequence.logprobs
            segment_ids[where] = number
            position_ids[where] = positions[:size]
            if advantages is not None and sequence.advantages is not None:
                advantages[where] = sequence.advantages
            if token_rewards is not None and sequence.token_rewards is not None:
                token_rewards[where] = sequence.token_rewards
    return Batch(
        input_ids=input_ids,
        loss_mask=loss_mask,
        logprobs=logprobs,
        advantages=advantages,
        token_rewards=token_rewards,
        segment_ids=segment_ids,
        position_ids=position_ids,
        rewards=np.array([np.nan if one.reward is None else one.reward for one in sequences], np.float64),
        group_ids=_texts([one.group_id for one in sequences]),
        policy_version=_texts([one.policy_version for one in sequences]),
        rollout_ids=_texts([one.rollout_id for one in sequences]),
        retokenized=np.array([one.retokenized for one in sequences], np.bool_),
    )


def _texts(values: Sequence[str | None]) -> NDArray[np.object_]:
    texts = np.empty(len(values), np.object_)
    texts[:] = values
    return texts
