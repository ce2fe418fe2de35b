"""Tasks: the first and the last. Inputs become records in the slots of their traces, and those trajectories in a part.

    read_split  inputs of a split  -> a shuffle file
    assemble    partitions         -> a part file

Invariant: every record that is read is in the slot of its trace, or counted because it belongs to no trace. Rewards for
a span of another trace are copied to that trace's slot; what names a rollout id is copied once to the region of that
id. Partitions are assembled one after the other, so memory holds the trajectories of one of them; the rows of each are
in the order of their rollout ids.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.engines.plan import Job, Partition, PartitionRecords, Placement, Round, groups_of
from art_otel.engines.shuffle import (
    NOTHING,
    RESPONSE_REGIONS,
    ROLLOUT_REGIONS,
    Arrival,
    Membership,
    Shards,
    ShuffleCatalog,
    Shuffled,
    ShuffleWriter,
    region_of,
)
from art_otel.errors import SourceError, WorkerError
from art_otel.sources import FileStats, Input, Prefetcher, format_named, read_file, stored_ranges
from art_otel.sources.format import Record
from art_otel.spans import LogRecord, Quarantined, Span, list_quarantined
from art_otel.store import Part
from art_otel.trajectories import (
    AssemblyStats,
    ExternalReward,
    Trajectory,
    build_trajectories,
    declared_id,
    external_rewards,
)

if TYPE_CHECKING:
    from art_otel.engines.decisions import Decisions

_NOW: Final = (1 << 63) - 1
"""When a file was changed of which nobody knows it."""


class ReadTask(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs to read. In a round the arrivals of traces are written too."""

    inputs: tuple[Input, ...]
    job: Job


class ReadSummary(msgspec.Struct, kw_only=True):
    """What read tasks found, one or several.

    `quarantined` and `quarantined_logs` count the records of which nothing could be kept, by reason; `quarantine` lists
    the first of all. `shuffled` is what one task wrote.
    """

    files: list[FileStats] = msgspec.field(default_factory=list[FileStats])
    quarantined: Counter[str] = msgspec.field(default_factory=Counter[str])
    quarantined_logs: Counter[str] = msgspec.field(default_factory=Counter[str])
    quarantine: list[Quarantined] = msgspec.field(default_factory=list[Quarantined])
    shuffled: Shuffled = NOTHING

    @property
    def spans(self) -> int:
        """The spans that were read."""
        return sum(file.spans for file in self.files)

    @property
    def logs(self) -> int:
        """The log records of spans that were read."""
        return sum(file.log_records for file in self.files)

    def is_intact(self) -> bool:
        """Whether what it names is there as it was written, and no file is worth another try."""
        return self.shuffled.is_intact() and all(file.error is None for file in self.files)

    def count(self, quarantined: Quarantined) -> None:
        """Count and list what could not be read."""
        if not quarantined.partial:
            counts = self.quarantined_logs if quarantined.kind == "log" else self.quarantined
            counts[quarantined.reason] += 1
        list_quarantined(self.quarantine, (quarantined,))

    def add(self, summary: "ReadSummary") -> None:
        """Add what the next task found; a file that several tasks read is one again."""
        for file in summary.files:
            if self.files and self.files[-1].path == file.path:
                self.files[-1].add(file)
            else:
                self.files.append(file)
        self.quarantined += summary.quarantined
        self.quarantined_logs += summary.quarantined_logs
        list_quarantined(self.quarantine, summary.quarantine)

    def require_something(self) -> None:
        """Leave an earlier dataset alone when no source could be read at all. Raises SourceError."""
        errors = [file.error for file in self.files if file.error is not None]
        if errors and len(errors) == len(self.files) and not self.spans:
            raise SourceError("; ".join(dict.fromkeys(errors)))


def read_split(task: ReadTask) -> ReadSummary:
    """Read the inputs of a split. A file that cannot be read says so in its account, and the next is read."""
    summary = ReadSummary()
    split = _Split(task.job, summary)
    job = task.job
    chosen = None if job.format is None else format_named(job.format)
    stored = stored_ranges(task.inputs)
    with Prefetcher(stored) if stored else nullcontext() as prefetcher:
        for source in task.inputs:
            account = FileStats(path=source.name, note=source.note)
            summary.files.append(account)
            records = read_file(
                source, account, limits=job.limits, format=chosen, scrub=job.scrub, prefetcher=prefetcher
            )
            try:
                split.take(records, source.mtime_ns)
            except SourceError as error:
                account.error = str(error)
    if job.round is not None:
        split.write_arrivals(job.round)
    summary.shuffled = split.writer.finish()
    return summary


def unread_split(task: ReadTask, error: WorkerError) -> ReadSummary:
    """What stands for a split that ends whoever reads it: none of its files is read."""
    return ReadSummary(
        files=[FileStats(path=source.name, error=f"{source.name}: not read: {error}") for source in task.inputs]
    )


class _Arrived:
    """What came of a trace, and when a file with it was changed last; 0 where nothing but rewards for it came."""

    __slots__ = ("changed", "logs", "spans")

    def __init__(self) -> None:
        self.changed = self.spans = self.logs = 0


class _Split:
    """The records of a split on their way into its shuffle file."""

    def __init__(self, job: Job, summary: ReadSummary) -> None:
        self.writer = ShuffleWriter(job.scratch, job.sizes.slots)
        self._summary = summary
        self._memberships: set[tuple[str, str]] = set()
        self._arrivals: dict[str, _Arrived] = defaultdict(_Arrived)
        self._notes_arrivals = job.round is not None

    def take(self, records: Iterable[Record], mtime_ns: int | None) -> None:
        add = self.writer.add
        if self._notes_arrivals:
            records = self._noted(records, mtime_ns)
        for record in records:
            if isinstance(record, Quarantined):
                self._summary.count(record)
                if record.trace_id is not None:
                    add(record)
                continue
            for reward in external_rewards(record):
                self._take_reward(reward)
            if isinstance(record, Span) and (rollout_id := declared_id(record)) is not None:
                self._take_membership(rollout_id, record.trace_id)
            if record.span_id:  # what is of no span is in its file's account
                add(record)

    def _take_reward(self, reward: ExternalReward) -> None:
        address = reward.address
        if reward.trace_id:
            self.writer.add(reward)
            if self._notes_arrivals:
                self._arrivals.setdefault(reward.trace_id, _Arrived())
        elif address.rollout_id is not None:
            self.writer.put(region_of(address.rollout_id, ROLLOUT_REGIONS), reward)
        elif address.response_id is not None:
            self.writer.put(region_of(address.response_id, RESPONSE_REGIONS), reward)
        else:  # it names nothing and stands in no trace
            self.writer.add(reward)

    def _take_membership(self, rollout_id: str, trace_id: str) -> None:
        if (pair := (rollout_id, trace_id)) not in self._memberships:
            self._memberships.add(pair)
            self.writer.put(region_of(rollout_id, ROLLOUT_REGIONS), Membership(*pair))

    def _noted(self, records: Iterable[Record], mtime_ns: int | None) -> Iterator[Record]:
        """The records, with what came of each trace and when noted."""
        for record in records:
            if record.trace_id is not None:
                arrived = self._arrivals[record.trace_id]
                arrived.changed = _NOW if mtime_ns is None else max(arrived.changed, mtime_ns)
                if record.span_id:
                    arrived.spans += isinstance(record, Span)
                    arrived.logs += isinstance(record, LogRecord)
            yield record

    def write_arrivals(self, round_: Round) -> None:
        for trace_id, arrived in self._arrivals.items():
            changed = min(arrived.changed, round_.now)
            self.writer.add(Arrival(trace_id, round_.number, changed, arrived.spans, arrived.logs))


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
