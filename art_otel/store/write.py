"""Writing: row groups to the files of a dataset.

Invariant: the files' bytes follow from the trajectories and their order alone, whichever way their row groups came.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, tee
from operator import attrgetter
from pathlib import Path
from typing import Final, cast

import msgspec
import pyarrow as pa

from art_otel.errors import UsageError
from art_otel.store.dataset import Dataset
from art_otel.store.encode import encode_batches, weighed_row
from art_otel.store.encoded_group import EncodedGroup, encode_group
from art_otel.store.grouping import BatchT, FileLimits, RowGroupPlan, gather, plan_groups, rows_of
from art_otel.trajectories import Trajectory

FILE_LIMITS: Final = FileLimits()


class WriteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: how many trajectories, into which files, in order."""

    trajectories: int
    files: tuple[Path, ...]


def write_trajectories(
    trajectories: Iterable[Trajectory], path: str | Path, *, limits: FileLimits = FILE_LIMITS
) -> WriteSummary:
    """Write trajectories, in `Trajectory.order`, into a folder as `part-*.parquet` or into one `*.parquet` file.

    A dataset that was there before is replaced when everything is written; what art-otel did not write never is. A list
    or tuple may come in any order; an iterator is written as it comes, with memory of about two row groups, and has to
    be sorted. Raises UsageError when it is not, for what is no trajectory and where the path cannot be a dataset or
    holds files of others, StoreError for a trajectory no column can hold, OSError for what the disk refuses.
    """
    found = _checked(trajectories)
    if isinstance(trajectories, Sequence):
        found = sorted(found, key=attrgetter("order"))
    rows = chain.from_iterable(rows_of(batch, _Here(batch)) for batch in encode_batches(map(weighed_row, found)))
    return write_groups(plan_groups(rows, limits), _encode_here, path, limits)


def _checked(trajectories: object) -> Iterator[Trajectory]:
    for one in cast(Iterable[object], trajectories) if isinstance(trajectories, Iterable) else [trajectories]:
        if not isinstance(one, Trajectory):
            raise UsageError(f"{one!r:.100}: give trajectories, as read_trajectories has them, or a group's own")
        yield one


def write_groups(
    plans: Iterator[RowGroupPlan[BatchT]],
    encode: Callable[[Iterable[RowGroupPlan[BatchT]]], Iterable[EncodedGroup]],
    path: str | Path,
    limits: FileLimits,
) -> WriteSummary:
    """Write row groups as `encode` makes them, in order."""
    count = part_rows = part_bytes = 0
    with Dataset(path) as dataset:
        planned, ahead = tee(plans)
        for plan, group in zip(planned, encode(ahead), strict=True):
            if part_rows and (part_rows + plan.rows > limits.part_rows or part_bytes + plan.weight > limits.part_bytes):
                dataset.end_part()
                part_rows = part_bytes = 0
            dataset.write(group)
            count += plan.rows
            part_rows += plan.rows
            part_bytes += plan.weight
        return WriteSummary(trajectories=count, files=dataset.commit())


class _Here(msgspec.Struct, frozen=True, eq=False):
    """A batch in memory."""

    batch: pa.RecordBatch


def _encode_here(plans: Iterable[RowGroupPlan[_Here]]) -> Iterator[EncodedGroup]:
    return (encode_group(gather(plan, attrgetter("batch"))) for plan in plans)
