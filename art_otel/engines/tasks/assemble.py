"""Assemble: the last task. The records of some partitions become trajectories in one part file.

Invariant: partitions are assembled one after the other, so memory holds the trajectories of one of them; the rows of
each are in the order of their rollout ids.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.engines.partitions import Partition, PartitionRecords, groups_of
from art_otel.engines.placement import Placement
from art_otel.engines.shards import Shards, ShuffleCatalog
from art_otel.engines.sizes import Sizes
from art_otel.sources import Limits
from art_otel.store import Part
from art_otel.trajectories import AssemblyStats, Trajectory, build_trajectories


class AssembleTask(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that become the part of this `number`.

    `files` are those that were read and the rewards that were delivered, `rerouted` those that hold what came from
    other slots, as `placement` says.
    """

    number: int
    partitions: tuple[Partition, ...]
    files: ShuffleCatalog
    rerouted: ShuffleCatalog
    placement: Placement
    rollout_spans: tuple[str, ...]
    rollout_traces: bool = False
    limits: Limits
    sizes: Sizes
    scratch: str


class AssembledPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that waits in the scratch folder, under `location`, and the account of what became of the records."""

    part: Part
    location: str
    stats: AssemblyStats

    def is_intact(self) -> bool:
        """Whether the part is there as it was written."""
        if storage.size_of(self.location) != self.part.bytes:
            return False
        return hashlib.sha256(storage.read(self.location)).hexdigest() == self.part.sha256


def assemble(task: AssembleTask) -> AssembledPart:
    """Assemble the partitions into a part."""
    from art_otel.store.part_writer import write_part  # noqa: PLC0415 # loads pyarrow, which no other task needs

    stats = AssemblyStats()
    name = f"part-{uuid4().hex}"
    location = storage.join(task.scratch, name)
    path = Path(tempfile.gettempdir(), name) if storage.is_url(task.scratch) else Path(location)
    part = write_part(_trajectories(task, stats), path, task.number, with_traces=task.rollout_traces)
    if storage.is_url(task.scratch):
        storage.move(str(path), location)
    return AssembledPart(part=part, location=location, stats=stats)


def _trajectories(task: AssembleTask, stats: AssemblyStats) -> Iterator[Trajectory]:
    regions = [slot for partition in task.partitions for slot in partition.slots]
    direct = Shards(task.files.files_with(regions), regions)
    rerouted = Shards(task.rerouted.files_with(regions), regions)
    representatives = task.placement.representatives(regions)
    for partition in task.partitions:
        trajectories: list[Trajectory] = []
        where = PartitionRecords(partition, direct, rerouted, representatives, task.sizes)
        for group in groups_of(where, task.limits, stats):
            trajectories += build_trajectories(group, task.rollout_spans, stats).trajectories
        trajectories.sort(key=attrgetter("order"))
        yield from trajectories
