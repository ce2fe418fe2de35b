"""Arranging: the order of sequences, which of them share a batch, and a batch as arrays.

    packed=True, max_tokens=8          segment_ids
    row 0   A A A B B B B .            1 1 1 2 2 2 2 0        `.` is padding
    row 1   C C C C C . . .            3 3 3 3 3 0 0 0

Invariant: the order depends on the number of chunks and the options only. Batches have every sequence once, in this
order; only within a packed batch may a short sequence be in an earlier row. Every token is in exactly one place; every
other place is padding: `pad_token_id`, segment 0, mask False, temperature and top-p 1, weight version and experts -1,
the rest 0. Every rank gives the same number of batches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from types import TracebackType
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from art_otel.data.columns import Ints
from art_otel.data.decisions import Overflow
from art_otel.data.preferences import SpillFile
from art_otel.data.sequences import PlannedSequence, TokenSequence
from art_otel.data.token_facts import UNKNOWN, stacked_experts, stacked_masks

PackedRows: TypeAlias = list[list[PlannedSequence]]

KeepTogether: TypeAlias = Literal["rollout", "group"]
"""The sequences of one rollout, or of one group, are in one batch."""

Unit: TypeAlias = Sequence[PlannedSequence]
"""Sequences that must be in one batch: a single one, or all of a rollout or group that is kept together."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Batch:
    """Arrays to train on, as attributes and by name: `batch.input_ids` is `batch["input_ids"]`.

    For each position in a row, shape (rows, width):

    - `input_ids`: int32.
    - `loss_mask`: bool, True for sampled tokens to train on.
    - `logprobs`: float32, the policy's when it sampled; 0.0 where nothing was sampled, NaN if nobody recorded it.
    - `temperature`, `top_p`: float32, what a trained token was sampled with; NaN if its request does not say, 1.0 where
      nothing is trained.
    - `advantages`: float32, 0.0 outside the mask; None if they were not requested.
    - `token_rewards`: float32, 0.0 where none were given; None if they were not requested.
    - `segment_ids`: int32, s for a token of sequence s - 1, 0 for padding.
    - `position_ids`: int32, from 0 in each sequence.
    - `weight_versions`: int64, the number of the version that sampled a trained token; -1 if there is none.
    - `rollout_weights`: float32, 1 / the trained tokens of the rollout in all its sequences; 0.0 outside the mask. They
      sum to 1 over a rollout, so that each counts alike, however many tokens and sequences it has.

    The arrays that `token_facts` requests, otherwise None:

    - `routed_experts`: int32, shape (rows, width, layers, experts), -1 if unknown.
    - `sampling_mask_counts`: int32, shape (rows, width), how many ids each trained token could have been; 0 if unknown.
    - `sampling_mask_ids`: int32, all these ids, in the order of the positions.

    For each sequence, shape (sequences,):

    - `rewards`: float64, the reward of the sequence's last trained completion, NaN if unknown.
    - `group_ids`, `policy_version`, `rollout_ids`: text, None if unknown.
    - `samplings`: tuples of `Sampling`, all that the request of each trained completion says of sampling.
    - `retokenized`: bool, True if the ids are not the server's.
    """

    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    temperature: NDArray[np.float32]
    top_p: NDArray[np.float32]
    advantages: NDArray[np.float32] | None
    token_rewards: NDArray[np.float32] | None
    segment_ids: NDArray[np.int32]
    position_ids: NDArray[np.int32]
    rewards: NDArray[np.float64]
    group_ids: NDArray[np.object_]
    policy_version: NDArray[np.object_]
    rollout_ids: NDArray[np.object_]
    samplings: NDArray[np.object_]
    retokenized: NDArray[np.bool_]
    weight_versions: NDArray[np.int64]
    rollout_weights: NDArray[np.float32]
    routed_experts: NDArray[np.int32] | None = None
    sampling_mask_counts: NDArray[np.int32] | None = None
    sampling_mask_ids: NDArray[np.int32] | None = None

    def __repr__(self) -> str:
        rows, width = self.input_ids.shape
        return f"<Batch {rows} x {width} tokens, {int(self.loss_mask.sum())} trained, {len(self.rewards)} sequences>"

    def __getitem__(self, name: str) -> "NDArray[np.generic] | None":
        """The array of this name. Raises KeyError."""
        if name not in self.__slots__:
            raise KeyError(f"{name!r}: a batch has {', '.join(self.__slots__)}")
        return getattr(self, name)

    def arrays(self) -> "dict[str, NDArray[np.generic]]":
        """All arrays by name, without those that are None."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: array for name, array in named.items() if array is not None}

    def without_loss(self) -> "Batch":
        """The same tokens with nothing to train on, for a rank that has no batch while other ranks still have one."""
        zeros = np.zeros(self.input_ids.shape, np.float32)
        return replace(
            self,
            loss_mask=np.zeros(self.input_ids.shape, np.bool_),
            logprobs=np.nan_to_num(self.logprobs, nan=0.0),
            temperature=np.ones(self.input_ids.shape, np.float32),
            top_p=np.ones(self.input_ids.shape, np.float32),
            rollout_weights=zeros,
            advantages=None if self.advantages is None else zeros,
            token_rewards=None if self.token_rewards is None else zeros,
        )


Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShuffleOrder:
    """The options of the order. A window is `shuffle_buffer` chunks, which are in memory and shuffled together.

    `worker` is (index, count): each of several workers reads every `count`-th trajectory, so that the shares are equal
    even in a small dataset. `bucket` is how many sequences of similar length follow each other, to share a batch; None
    for any length. With `keep_together` the sequences of a rollout or group follow each other.
    """

    seed: Annotated[int, Meta(ge=0)] | None = None
    epoch: Annotated[int, Meta(ge=0)] = 0
    shuffle_buffer: Annotated[int, Meta(ge=1)] = 4
    worker: tuple[int, int] = (0, 1)
    bucket: int | None = None
    keep_together: KeepTogether | None = None

    def windows(self, chunks: Sequence[Item]) -> list[tuple[Item, ...]]:
        """The chunks of each window, in the order of reading."""
        ordered, size = self.shuffled(chunks, 0), self.shuffle_buffer
        return [tuple(ordered[start : start + size]) for start in range(0, len(chunks), size)]

    def share(self, numbers: range) -> range:
        """The trajectories of this worker among consecutive ones."""
        index, count = self.worker
        return numbers[(index - numbers.start) % count :: count]

    def arranged(self, units: Iterable[Unit], number: int) -> Iterable[Unit]:
        """The units of a window in their order: shuffled; with a `bucket` sorted by length, whole buckets shuffled."""
        if self.seed is None and self.bucket is None:
            return units  # still an iterator, so that not all of a window must be in memory
        shuffled = self.shuffled(list(units), number)
        if self.bucket is None:
            return shuffled
        by_length = sorted(shuffled, key=lambda unit: sum(map(len, unit)))
        # The units that do not fill a bucket come last, else every later batch would mix two buckets.
        rest = len(by_length) % self.bucket
        buckets = [by_length[start : start + self.bucket] for start in range(rest, len(by_length), self.bucket)]
        return [unit for bucket in (*self.shuffled(buckets, number), by_length[:rest]) for unit in bucket]

    def shuffled(self, items: Sequence[Item], number: int) -> list[Item]:
        """The items in an order that depends on seed, epoch and `number`; unchanged without a seed."""
        if self.seed is None:
            return list(items)
        return [
            items[index] for index in np.random.default_rng([self.seed, self.epoch, number]).permutation(len(items))
        ]


class WaitingGroups:
    """Sequences that wait for the other members of their group, which are in later windows.

    A dataset is in the order of rollout ids, so the members of a group may be anywhere. All sequences of a group are
    given together in the window of its last member; until then they are in a file on disk, not in memory. Use this
    object as a context manager, which removes the file.

    `last_windows` has the number of the window in which each group ends, `groups` the group of each trajectory.
    """

    def __init__(self, last_windows: Mapping[int, int], groups: Ints) -> None:
        self._last_windows = last_windows
        self._groups = groups
        self._spilled = SpillFile[list[PlannedSequence]]()
        self._count = 0
        self._waiting: dict[int, list[int]] = {}

    def __enter__(self) -> Self:
        """The groups themselves."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the file with the waiting sequences."""
        self._spilled.__exit__(kind, error, at)

    def whole(self, window: int, built: Iterable[tuple[int, Sequence[PlannedSequence]]]) -> list[list[PlannedSequence]]:
        """The sequences of each group that ends in this window; the sequences of other groups are kept.

        `built` has the number and the sequences of each trajectory in the window.
        """
        by_group: dict[int, list[PlannedSequence]] = {}
        for number, sequences in built:
            by_group.setdefault(int(self._groups[number]), []).extend(sequences)
        units: list[list[PlannedSequence]] = []
        for group, sequences in by_group.items():
            if self._last_windows[group] == window:
                earlier = [one for place in self._waiting.pop(group, ()) for one in self._spilled[place]]
                units.append([*earlier, *sequences])
            else:
                self._spilled[self._count] = list(sequences)
                self._waiting.setdefault(group, []).append(self._count)
                self._count += 1
        return [unit for unit in units if unit]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How sequences become batches, and which batches a rank gives: options of `art_otel.batches` with these names.

    Batches are dealt out in rounds of `world_size`, one for each rank:

        world_size=2     round 0: batch 0, batch 1     round 1: batch 2, and for rank 1 batch 2 without loss
                                                       (with drop_last no rank gives a batch of round 1)
    """

    batch_size: Annotated[int, Meta(ge=1)]
    max_tokens: Annotated[int, Meta(ge=1)] | None
    overflow: Overflow
    packed: bool
    pad_token_id: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
    rank: Annotated[int, Meta(ge=0)]
    world_size: Annotated[int, Meta(ge=1)]
    drop_last: bool
    token_facts: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raise ValueError for packed rows without a width, and for a rank that does not exist."""
        if self.rank >= self.world_size:
            raise ValueError(f"rank={self.rank}: with this world_size, ranks are 0 to {self.world_size - 1}")
        if self.packed and self.max_tokens is None:
            raise ValueError("packed=True needs max_tokens, the width of a row")

    def rounds(self, units: Iterable[Unit]) -> Iterator[list[PackedRows]]:
        """The rows of each round's batches, one batch per rank. The last round may have fewer batches."""
        if self.packed and self.max_tokens is not None:
            rows = packed(units, self.batch_size, self.max_tokens)
        else:
            rows = padded(units, self.batch_size)
        while batches := list(islice(rows, self.world_size)):
            yield batches

    def is_dropped(self, batches: list[PackedRows], keep_together: KeepTogether | None) -> bool:
        """Whether `drop_last` drops a round: it has fewer batches than ranks, or its last batch is not full."""
        # With `keep_together` any batch may have fewer rows, not only the last one.
        lacks_rows = keep_together is None and len(batches[-1]) < self.batch_size
        return self.drop_last and (len(batches) < self.world_size or lacks_rows)

    def batch(self, batches: list[PackedRows]) -> Batch:
        """This rank's batch of a round; if the round has none for it, the last batch with nothing to train on."""
        rows = [[one.built for one in row if one.built is not None] for row in self.own(batches)]
        batch = self._collate(rows)
        return batch if self.rank < len(batches) else batch.without_loss()

    def own(self, batches: list[PackedRows]) -> PackedRows:
        """The rows of a round that this rank collates."""
        return batches[min(self.rank, len(batches) - 1)]

    def padding(self, rows: PackedRows) -> int:
        """How many places of a batch have no token."""
        sizes = [sum(map(len, row)) for row in rows]
        width = self.max_tokens if self.packed and self.max_tokens is not None else max(sizes)
        return width * len(rows) - sum(sizes)

    def _collate(self, rows: Sequence[Sequence[TokenSequence]]) -> Batch:
        return collate(
            rows,
            width=self.max_tokens if self.packed else None,
            pad_token_id=self.pad_token_id,
            token_facts=self.token_facts,
        )


def padded(units: Iterable[Unit], batch_size: int) -> Iterator[PackedRows]:
    """Make batches of one sequence per row, at most `batch_size` rows each.

    A unit that does not fit begins the next batch; a unit of more than `batch_size` sequences is a batch of its own.
    """
    rows: PackedRows = []
    for unit in units:
        if rows and len(rows) + len(unit) > batch_size:
            yield rows
            rows = []
        rows += [[sequence] for sequence in unit]
        if len(rows) >= batch_size:
            yield rows
            rows = []
    if rows:
        yield rows


def packed(units: Iterable[Unit], batch_size: int, max_tokens: int) -> Iterator[PackedRows]:
    """Make batches of rows of at most `max_tokens`: each sequence goes into the first row with room (first fit).

    A unit that needs more than `batch_size` rows is a batch of its own.
    """
    rows: PackedRows = []
    free_tokens: list[int] = []
    for unit in units:
        places, free = _first_fit(unit, free_tokens, max_tokens)
        if rows and len(free) > batch_size:
            yield rows
            rows = []
            places, free = _first_fit(unit, (), max_tokens)
        free_tokens = free
        rows += [[] for _ in range(len(free) - len(rows))]
        for sequence, row in zip(unit, places, strict=True):
            rows[row].append(sequence)
    if rows:
        yield rows


def _first_fit(unit: Unit, free_tokens: Sequence[int], max_tokens: int) -> tuple[list[int], list[int]]:
    """The row of each sequence, and the tokens that are then free in all rows, with new rows at the end."""
    free, places = list(free_tokens), list[int]()
    for size in map(len, unit):
        row = next((row for row, tokens in enumerate(free) if tokens >= size), len(free))
        if row == len(free):
            free.append(max_tokens)
        free[row] -= size
        places.append(row)
    return places, free


def collate(
    rows: Sequence[Sequence[TokenSequence]],
    *,
    width: int | None = None,
    pad_token_id: int = 0,
    token_facts: frozenset[str] = frozenset(),
) -> Batch:
    """Make the arrays of a batch. The sequences of a row follow each other; `width` defaults to the longest row."""
    sequences = [sequence for row in rows for sequence in row]
    longest = max((sum(map(len, row)) for row in rows), default=0)
    shape = (len(rows), longest if width is None else width)
    input_ids = np.full(shape, pad_token_id, np.int32)
    loss_mask, logprobs = np.zeros(shape, np.bool_), np.zeros(shape, np.float32)
    temperature, top_p = np.ones(shape, np.float32), np.ones(shape, np.float32)
    versions, weights = np.full(shape, UNKNOWN, np.int64), np.zeros(shape, np.float32)
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
            temperature[where], top_p[where] = sequence.temperature, sequence.top_p
            versions[where] = sequence.weight_versions
            weights[where] = sequence.loss_mask / sequence.rollout_tokens  # sums to 1 over all sequences of a rollout
            segment_ids[where] = number
            position_ids[where] = positions[:size]
            if advantages is not None and sequence.advantages is not None:
                advantages[where] = sequence.advantages
            if token_rewards is not None and sequence.token_rewards is not None:
                token_rewards[where] = sequence.token_rewards
    experts = counts = mask_ids = None
    if "routed_experts" in token_facts:
        experts = stacked_experts([[(len(one), one.routed_experts) for one in row] for row in rows], shape)
    if "sampling_mask" in token_facts:
        counts, mask_ids = stacked_masks([[(len(one), one.sampling_mask) for one in row] for row in rows], shape)
    return Batch(
        input_ids=input_ids,
        loss_mask=loss_mask,
        logprobs=logprobs,
        temperature=temperature,
        top_p=top_p,
        advantages=advantages,
        token_rewards=token_rewards,
        segment_ids=segment_ids,
        position_ids=position_ids,
        rewards=np.array([np.nan if one.reward is None else one.reward for one in sequences], np.float64),
        group_ids=_objects([one.group_id for one in sequences]),
        policy_version=_objects([one.policy_version for one in sequences]),
        rollout_ids=_objects([one.rollout_id for one in sequences]),
        samplings=_objects([one.samplings for one in sequences]),
        retokenized=np.array([one.retokenized for one in sequences], np.bool_),
        weight_versions=versions,
        rollout_weights=weights,
        routed_experts=experts,
        sampling_mask_counts=counts,
        sampling_mask_ids=mask_ids,
    )


def _objects(values: Sequence[object]) -> NDArray[np.object_]:
    objects = np.empty(len(values), np.object_)
    for position, value in enumerate(values):  # np.array would make tuples of equal length a second dimension
        objects[position] = value
    return objects
