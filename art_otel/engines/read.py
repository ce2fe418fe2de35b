"""Read: read the inputs of a conversion, and write their records into the slots of their traces.

    read_split   inputs of a split  -> a shuffle file

    span of trace a, rollout r1, reward for span of trace b
        -> the span in the slot of a; membership (r1, a) in the region of r1; a copy of the reward in the slot of b

Invariant: every record that is read is in the slot of its trace, or counted because it has no trace. Each pair of
rollout id and trace is written once per split. The ledger records which bytes of each input are in the dataset.
"""

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.engines.referenced_content import ContentReader
from art_otel.engines.run import Job, Round
from art_otel.engines.shuffle import (
    NOTHING,
    ROLLOUT_REGIONS,
    Arrival,
    Membership,
    Shuffled,
    ShuffleWriter,
    region_of,
    region_of_response,
)
from art_otel.errors import SourceError, WorkerError
from art_otel.sources import FileStats, InputFile, Prefetcher, format_named, read_file, stored_ranges
from art_otel.sources.files.inputs import WHAT_READS_IT, has_own_name, is_dataset_file, open_unbuffered, stored_input
from art_otel.sources.format import Record
from art_otel.spans import LogRecord, Quarantined, Span, list_quarantined
from art_otel.spool import note_taken
from art_otel.store.report import LedgerEntry, is_part_name
from art_otel.trajectories import ExternalReward, declared_id, external_rewards, joined_id, plain_id

if TYPE_CHECKING:
    from art_otel.store import ConversionReport

_NOW: Final = (1 << 63) - 1
"""The modification time of a file whose time is unknown: it counts as changed at the time of the round."""


MARK_BYTES: Final = 1_000
"""How many bytes at the beginning and at the end of the read part identify a file."""

_BLOCK: Final = 1 << 16


class Unread(NamedTuple):
    """An input to read, and its new entry in the ledger; None for a pipe, whose earlier content cannot be compared."""

    source: InputFile
    entry: LedgerEntry | None = None


def all_of(inputs: Iterable[InputFile]) -> list[Unread]:
    """All inputs, to be read as a whole."""
    return [Unread(source, entry_of(source, source.size or 0)) for source in inputs]


def without_dataset(inputs: Sequence[InputFile], out: str) -> list[InputFile]:
    """The inputs without the files of the dataset `out` itself. Raises SourceError if no others are left."""
    if storage.is_url(out):
        others = [source for source in inputs if not _is_of_stored_dataset(source, out)]
    else:
        folder = Path(os.path.realpath(out))
        others = [source for source in inputs if not _is_of_dataset(source, folder)]
    if inputs and not others:
        raise SourceError(f"{inputs[0].name}: {WHAT_READS_IT}")
    return others


def _is_of_dataset(source: InputFile, folder: Path) -> bool:
    if source.path is None:
        return False
    path = Path(os.path.realpath(source.path))
    return path.parent == folder and is_dataset_file(path)


def _is_of_stored_dataset(source: InputFile, out: str) -> bool:
    """Whether an object is a file of the dataset, by folder and name: `store.commit` allows no other parts there."""
    if source.stored is None:
        return False
    folder, _, name = source.stored.path.rpartition("/")
    return folder == storage.located(out)[1] and (is_part_name(name) or has_own_name(name))


def changed_since(since: int | None, inputs: Sequence[InputFile]) -> list[InputFile]:
    """The inputs that were changed at `since` (ns) or later, and those whose time is unknown."""
    return [one for one in inputs if since is None or one.mtime_ns is None or one.mtime_ns >= since]


def ledger_after(
    ledger: Iterable[LedgerEntry], inputs: Iterable[Unread], report: "ConversionReport"
) -> tuple[LedgerEntry, ...]:
    """The ledger after these inputs were read.

    An input that could not be read, or that changed while it was read, gets no new entry.
    """
    failed = {file.path for file in report.unread}
    entries = {entry.name: entry for entry in ledger}
    for source, entry in inputs:
        if entry is not None and source.name not in failed and entry_of(source, entry.bytes) == entry:
            entries.pop(entry.name, None)  # so that the ledger is in the order of reading
            entries[entry.name] = entry
    return tuple(entries.values())


def note_spools(inputs: Iterable[Unread], ledger: Iterable[LedgerEntry]) -> None:
    """Note in local spools which of their bytes are in a dataset now, so that old runs may be deleted."""
    entries = set(ledger)
    note_taken(
        {one.source.path: one.entry.bytes for one in inputs if one.source.path and one.entry and one.entry in entries}
    )


def entry_of(source: InputFile, end: int) -> LedgerEntry | None:
    """The ledger entry of an input that was read up to byte `end`; None if the input cannot be recognized later."""
    name = name_of(source)
    if name is None or not end:
        return None
    if source.stored is not None:
        etag = source.stored.etag
        return LedgerEntry(name=name, bytes=end, etag=etag, mtime_ns=None if etag else source.mtime_ns)
    marks = marks_of(source.path, end) if source.path is not None else None
    return marks and LedgerEntry(name=name, bytes=end, head=marks[0], tail=marks[1], mtime_ns=source.mtime_ns)


def marks_of(path: Path, end: int) -> tuple[str, str] | None:
    """Hashes of the first bytes of a file and of the last ones before `end`; None if the file is shorter."""
    head, tail = read_bytes(path, 0, min(end, MARK_BYTES)), read_bytes(path, max(0, end - MARK_BYTES), end)
    return (mark(head), mark(tail)) if len(tail) == min(end, MARK_BYTES) else None


def mark(data: bytes) -> str:
    """Hash the bytes that identify a file."""
    return blake2b(data, digest_size=12).hexdigest()


def read_bytes(path: Path, start: int, end: int) -> bytes:
    """Bytes of a file, fewer if it is shorter; none if it cannot be opened (the later reading reports the error)."""
    with suppress(OSError), path.open("rb", buffering=0) as file:
        file.seek(start)
        return file.read(end - start) or b""
    return b""


def name_of(source: InputFile) -> str | None:
    """The name of an input in the ledger; None for a pipe."""
    if source.stored is not None:
        return source.stored.name
    if source.path is None or source.size is None:
        return None
    return os.fsencode(os.path.realpath(source.path)).decode(errors="backslashreplace")  # a name need not be text


class ReadTask(msgspec.Struct, frozen=True, kw_only=True):
    """Read these inputs. In an incremental round the arrivals of traces are written, too."""

    inputs: tuple[InputFile, ...]
    job: Job


class ReadSummary(msgspec.Struct, kw_only=True):
    """The counts of one or several read tasks.

    `quarantined` and `quarantined_logs` count the records that were lost whole, by reason; `quarantine` lists the first
    of all losses. `shuffled` is the output of one task.
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

    def count(self, quarantined: Quarantined) -> None:
        """Count and list a record or value that could not be read."""
        if not quarantined.partial:
            counts = self.quarantined_logs if quarantined.kind == "log" else self.quarantined
            counts[quarantined.reason] += 1
        list_quarantined(self.quarantine, (quarantined,))

    def add(self, summary: "ReadSummary") -> None:
        """Add the counts of the next task. The parts of a file that several tasks read become one file again."""
        for file in summary.files:
            if self.files and self.files[-1].path == file.path:
                self.files[-1].add(file)
            else:
                self.files.append(file)
        self.quarantined += summary.quarantined
        self.quarantined_logs += summary.quarantined_logs
        list_quarantined(self.quarantine, summary.quarantine)

    def require_something(self) -> None:
        """Raise SourceError if no source could be read at all, so that an earlier dataset is not replaced."""
        errors = [file.error for file in self.files if file.error is not None]
        if errors and len(errors) == len(self.files) and not self.spans:
            raise SourceError("; ".join(dict.fromkeys(errors)))


def read_split(task: ReadTask) -> ReadSummary:
    """Read the inputs of a split. The error of a file that cannot be read is noted, and the next file is read."""
    summary = ReadSummary()
    split = _Split(task.job, summary)
    job = task.job
    chosen = None if job.format is None else format_named(job.format)
    content = ContentReader(job.content, job.limits.max_message_bytes)
    stored = stored_ranges(task.inputs)
    with Prefetcher(stored) if stored else nullcontext() as prefetcher:
        for source in task.inputs:
            account = FileStats(path=source.name, note=source.note)
            summary.files.append(account)
            records = read_file(
                source, account, limits=job.limits, format=chosen, secrets=job.secrets, prefetcher=prefetcher
            )
            try:
                split.take(content.resolved(records, source, account), source.mtime_ns)
            except SourceError as error:
                account.error = str(error)
    if job.round is not None:
        split.write_arrivals(job.round)
    summary.shuffled = split.writer.finish()
    return summary


def unread_split(task: ReadTask, error: WorkerError) -> ReadSummary:
    """The summary of a split whose readers all died: none of its files is read."""
    return ReadSummary(
        files=[FileStats(path=source.name, error=f"{source.name}: not read: {error}") for source in task.inputs]
    )


class _Arrived:
    """Counts of a trace's records, and the last change of a file with them (ns); 0 if only rewards for it came."""

    __slots__ = ("changed", "logs", "spans")

    def __init__(self) -> None:
        self.changed = self.spans = self.logs = 0


class _Split:
    """Puts the records of a split into its shuffle file."""

    def __init__(self, job: Job, summary: ReadSummary) -> None:
        self.writer = ShuffleWriter(job.scratch, job.sizes.slots, bundle=job.sizes.bundle, is_small=job.sizes.is_small)
        self._summary = summary
        self._memberships: set[tuple[str, str]] = set()
        self._arrivals: dict[str, _Arrived] = defaultdict(_Arrived)
        self._notes_arrivals = job.round is not None
        self._rollout_attributes = job.rollout_attributes

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
            if isinstance(record, Span):
                for rollout_id in (declared_id(record), joined_id(record, self._rollout_attributes)):
                    if rollout_id is not None:
                        self._take_membership(rollout_id, record.trace_id)
            if record.span_id:  # log records without a span are counted by their file
                add(record)

    def _take_reward(self, reward: ExternalReward) -> None:
        address = reward.address
        if reward.trace_id:
            self.writer.add(reward)
            # So that the round assembles the target's trace again, although none of its own records came.
            if self._notes_arrivals:
                self._arrivals.setdefault(reward.trace_id, _Arrived())
        elif address.rollout_id is not None:
            self.writer.put(region_of(plain_id(address.rollout_id), ROLLOUT_REGIONS), reward)
        elif address.response_id is not None:
            self.writer.put(region_of_response(address.response_id), reward)
        else:  # without any target and trace: undeliverable, counted in the slot of the empty trace id
            self.writer.add(reward)

    def _take_membership(self, rollout_id: str, trace_id: str) -> None:
        if (pair := (plain_id(rollout_id), trace_id)) not in self._memberships:
            self._memberships.add(pair)
            self.writer.put(region_of(pair[0], ROLLOUT_REGIONS), Membership(*pair))

    def _noted(self, records: Iterable[Record], mtime_ns: int | None) -> Iterator[Record]:
        """Pass records on, and note the arrivals of each trace."""
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


def as_file(source: InputFile, folder: str) -> InputFile:
    """The input; standard input and pipes are copied to a file in this folder, because splits are read by position.

    Raises SourceError if it cannot be read.
    """
    if source.stored is not None or (source.path is not None and not _is_pipe(source.path)):
        return source
    location = storage.join(folder, f"input-{uuid4().hex}")
    with storage.staged(location) as path, open_unbuffered(source) as pipe, path.open("wb") as target:
        while block := _next_block(pipe, source.name):
            target.write(block)
    if storage.is_url(location):
        return stored_input(location, source.name)
    return msgspec.structs.replace(source, path=Path(location), size=storage.size_of(location))


def _next_block(pipe: FileIO, name: str) -> bytes | None:
    try:
        return pipe.read(_BLOCK)
    except OSError as error:
        raise SourceError(f"{name}: cannot be read: {error}") from error


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:  # reading it says why
        return False
