"""Assemble: the last task. The records of some partitions become trajectories in one part file.

Invariant: partitions are assembled one after the other, so memory holds the trajectories of one of them; the rows of
each are in the order of their rollout ids.
"""

import hashlib
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.engines.partitions import PartitionRecords, groups_of
from art_otel.engines.plan import Job, Partition, Placement
from art_otel.engines.shuffle import NOTHING, Shards, ShuffleCatalog, Shuffled, ShuffleWriter
from art_otel.store import Part
from art_otel.trajectories import AssemblyStats, Trajectory, build_trajectories

if TYPE_CHECKING:
    from art_otel.engines.decisions import Decisions


class AssembleTask(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that become the part of this `number`.

    `files` hold what was read, the rewards that were delivered, and what came from other slots, as `placement` says. In
    a round only what it touches is assembled, and what it decides is written to a shuffle file.
    """

    number: int
    partitions: tuple[Partition, ...]
    files: ShuffleCatalog
    placement: Placement
    job: Job


class AssembledPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that waits in the scratch folder, under `location`, and the account of what became of the records.

    `outcomes` says what became of each trace in a round, `superseded` which rows no longer count, by the name of their
    part, and `open_since` when something last came of what waits in a slot.
    """

    part: Part
    location: str
    stats: AssemblyStats
    outcomes: Shuffled = NOTHING
    superseded: tuple[tuple[str, int], ...] = ()
    open_since: dict[int, int] = {}

    def is_intact(self) -> bool:
        """Whether the part is there as it was written."""
        if storage.size_of(self.location) != self.part.bytes or not self.outcomes.is_intact():
            return False
        return hashlib.sha256(storage.read(self.location)).hexdigest() == self.part.sha256


def assemble(task: AssembleTask) -> AssembledPart:
    """Assemble the partitions into a part."""
    from art_otel.store.part_writer import write_part  # noqa: PLC0415 # loads pyarrow, which no other task needs

    stats = AssemblyStats()
    location = storage.join(task.job.scratch, f"part-{uuid4().hex}")
    decisions = _decisions_of(task)
    with storage.staged(location) as path:
        trajectories = _trajectories(task, stats, decisions)
        part = write_part(trajectories, path, task.number, with_traces=task.job.rollout_traces)
    if decisions is None:
        return AssembledPart(part=part, location=location, stats=stats)
    writer = ShuffleWriter(task.job.scratch, task.job.sizes.slots)
    for outcome in decisions.outcomes(part.name):
        writer.add(outcome)
    return AssembledPart(
        part=part,
        location=location,
        stats=stats,
        outcomes=writer.finish(),
        superseded=tuple((row.part, row.row) for row in decisions.superseded),
        open_since=decisions.open_since,
    )


def _decisions_of(task: AssembleTask) -> "Decisions | None":
    if task.job.round is None:
        return None
    from art_otel.engines.decisions import Decisions  # noqa: PLC0415 # only rounds need it

    return Decisions(task.job.round, task.job.sizes.slots, with_traces=task.job.rollout_traces)


def _trajectories(task: AssembleTask, stats: AssemblyStats, decisions: "Decisions | None") -> Iterator[Trajectory]:
    regions = [slot for partition in task.partitions for slot in partition.slots]
    shards = Shards(task.files.files_with(regions), regions)
    representatives = task.placement.representatives(regions)
    row = 0
    for partition in task.partitions:
        trajectories: list[Trajectory] = []
        where = PartitionRecords(partition, shards, representatives, task.job.sizes)
        if decisions is None:
            for group in groups_of(where, task.job.limits, stats):
                trajectories += build_trajectories(group.records, task.job.rollout_spans, stats).trajectories
        else:
            for group in groups_of(where, task.job.limits, stats, decisions.is_wanted):
                trajectories += decisions.trajectories(group, task.job.rollout_spans, stats)
        trajectories.sort(key=attrgetter("order"))
        for trajectory in trajectories:
            if decisions is not None:
                decisions.place(trajectory, row)
            row += 1
            yield trajectory
