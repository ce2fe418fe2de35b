"""Duplicates: recordings of a rollout that is read from another dataset.

Invariant: of the datasets that hold a rollout (a `Trajectory.order`) it is read from one: the first that has it
complete, else the first that has it. What one dataset holds several times stays as it is, for these are several runs of
a rollout that nobody numbered (`attempt`); of such the dataset with the most complete ones is read.

Datasets whose rollout ids lie apart cannot hold the same rollouts: the statistics of their files say so, and nothing is
read. Of others only keys are read, and about 60 bytes are held for each until duplicates are found.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from art_otel.store import RowGroup, read_keys


def find_duplicates(groups: Sequence[RowGroup]) -> dict[RowGroup, bytes]:
    """Which rows of row groups are duplicates: a byte a row, 1 for a duplicate. A group without any is not in it.

    Raises StoreError for a file that has to be read and cannot be.
    """
    overlapping = _overlapping(groups)
    if not overlapping:
        return {}
    ends = np.cumsum([group.rows for group in overlapping])
    marks = np.split(_duplicates(overlapping), ends[:-1])
    return {group: own.tobytes() for group, own in zip(overlapping, marks, strict=True) if own.any()}


def _overlapping(groups: Sequence[RowGroup]) -> list[RowGroup]:
    """The row groups that may hold a rollout which another dataset has too, in their order."""
    together: list[list[int]] = []  # places of row groups; the ids of each list lie apart from those of all others
    end = b""
    for (first, last), place in sorted((group.id_bounds, place) for place, group in enumerate(groups) if group.rows):
        if not together or first > end:
            together.append([])
        together[-1].append(place)
        end = max(end, last)
    of_several = (places for places in together if len({groups[place].dataset for place in places}) > 1)
    return [groups[place] for place in sorted(chain.from_iterable(of_several))]


def _duplicates(groups: Sequence[RowGroup]) -> NDArray[np.bool_]:
    """Which trajectories are duplicates. Shape: (trajectories of the groups,)."""
    high, low, datasets, complete = _read(groups)
    order = np.lexsort((datasets, low, high))
    rollouts = _runs(high[order], low[order])
    copies = _runs(rollouts, datasets[order])  # a rollout in a dataset; the datasets of a rollout are in their order
    begins = np.flatnonzero(np.diff(copies, prepend=-1))
    rollout_of = rollouts[begins]
    best_first = np.lexsort((-np.add.reduceat(complete[order], begins, dtype=np.int32), rollout_of))
    left_out = np.ones(len(begins), np.bool_)
    left_out[best_first[np.flatnonzero(np.diff(rollout_of, prepend=-1))]] = False
    found = np.empty(len(order), np.bool_)
    found[order] = left_out[copies]
    return found


def _runs(*columns: NDArray[np.unsignedinteger | np.signedinteger]) -> NDArray[np.int32]:
    """Numbers of runs of equal rows, from 0 on. Shape: that of each column, (rows,)."""
    changes = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.cumsum(changes, dtype=np.int32)


def _read(
    groups: Sequence[RowGroup],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int32], NDArray[np.bool_]]:
    """Of each trajectory the two halves of its key's digest, the number of its dataset, and whether it is complete."""
    digests, complete = bytearray(), bytearray()
    for keys in read_keys(groups):
        complete += bytes(key.complete for key in keys)
        digests += b"".join(blake2b(repr(key.order).encode(), digest_size=16).digest() for key in keys)
    halves = np.frombuffer(digests, np.uint64)
    number_of = {name: number for number, name in enumerate(dict.fromkeys(group.dataset for group in groups))}
    numbers = np.array([number_of[group.dataset] for group in groups], np.int32)
    datasets = np.repeat(numbers, [group.rows for group in groups])
    return halves[::2], halves[1::2], datasets, np.frombuffer(complete, np.bool_)
