"""Report: what `_report.json` says: which parts are the dataset, and what became of all that was read.

Invariant: a folder's dataset is what the manifest in its `_report.json` names, and nothing else in it. Replacing that
one file replaces the dataset. A pending file names the parts that a commit brings and takes away, before it does.

Of what was read the sums hold: spans read + again = used + ignored (by reason) + duplicate + quarantined (by reason) +
waiting, calls = completed + failed, and rewards given = delivered + undeliverable (by reason). Every number is a count
of what really happened; nothing is estimated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from art_otel import storage
from art_otel.errors import StoreError

REPORT_NAME: Final = "_report.json"

PLAN_PREFIX: Final = "_plan-"
"""How the names of files begin that hold what was planned of a dataset (`data.stored_plan`)."""

SCHEMA_VERSION: Final = 4
"""The version of the schema: it goes up with every change to what a reader must know."""

VERSION_KEY: Final = b"art_otel.schema"
"""The key under which files carry the version."""


class Bounds(NamedTuple):
    """The least and the greatest of some numbers."""

    least: int
    greatest: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part file: its name, its content, and what a reader can tell of its rows without opening it.

    Bounds are None where no row has a number. `splits` are all that occur, None for rows without one. `group_rows` are
    the rows of each row group.
    """

    name: str
    rows: int
    group_rows: tuple[int, ...]
    bytes: int
    sha256: str
    started_at: Bounds | None
    training_step: Bounds | None
    splits: tuple[str | None, ...]

    @property
    def number(self) -> int:
        """The number in its name."""
        return int(self.name.split("-")[1])


class RowKey(NamedTuple):
    """What a row is known by: what `Trajectory.order` says of it, and its revision.

    `part` is the number of the part that it was written to. Where that was compacted, the row is in a later one.
    """

    rollout_id: str
    attempt: int
    trace_id: str
    revision: int
    part: int


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many bytes of an input are in a dataset: the first ones of what has this path or URL.

    An object in a store is known by its `etag`; None where the store says none. A file of this machine is known by the
    hashes of the first and of the last bytes that were read, `head` and `tail`. `mtime_ns` is when it was changed.
    """

    name: str
    bytes: int
    head: str | None = None
    tail: str | None = None
    etag: str | None = None
    mtime_ns: int | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset: its parts in order, the number of the commit that made it, and the run that committed it.

    `superseded` are the rows that no longer count, by the name of their part: a later row is their next revision, or
    their rollout turned out to be a part of another. `ledger` says what of each input is in it.
    `kept` names the files of ours that hold what later conversions need of these inputs.
    """

    schema_version: int
    generation: int
    run: str
    parts: tuple[Part, ...]
    superseded: dict[str, tuple[int, ...]] = {}
    ledger: tuple[LedgerEntry, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows count."""
        return sum(part.rows for part in self.parts) - sum(map(len, self.superseded.values()))

    @property
    def next_number(self) -> int:
        """The number of the next part."""
        return max((part.number for part in self.parts), default=-1) + 1

    @property
    def names(self) -> frozenset[str]:
        """The names of its files."""
        return frozenset((*(part.name for part in self.parts), *self.kept))


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit brings and takes away. `written_at` is in nanoseconds since the epoch.

    What it takes away stays for `linger` nanoseconds at least, as others may read it.
    """

    run: str
    written_at: int
    linger: int = 0
    parts: tuple[str, ...]
    previous: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of all files that it is about."""
        return frozenset((*self.parts, *self.previous))


def part_name(number: int, sha256: str) -> str:
    """The name of the part of this number and content."""
    return f"part-{number:05d}-{sha256[:8]}.parquet"


def is_part_name(name: str) -> bool:
    """Whether a file has a name that those who read parts by a glob take for a part's."""
    return name.startswith("part-") and name.endswith(".parquet")


def pending_name(run: str) -> str:
    """The name of the pending file of a run."""
    return f"_pending-{run}.json"


def read_manifest(folder: str) -> Manifest | None:
    """The manifest of a folder (a path or URL). None where there is none of ours. Raises StoreError for a newer one."""
    location = storage.join(folder, REPORT_NAME)
    if storage.size_of(location) is None:
        return None
    try:
        manifest = msgspec.json.decode(storage.read(location), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if manifest.schema_version > SCHEMA_VERSION:
        raise StoreError(
            f"{storage.shown(location)}: has schema version {manifest.schema_version}, this art-otel reads"
            f" {SCHEMA_VERSION}; upgrade it"
        )
    return manifest


class _Hints(msgspec.Struct, frozen=True):
    """The part of `_report.json` that says what to do when little or nothing came out."""

    hints: tuple[str, ...] = ()


def read_hints(folder: str) -> tuple[str, ...]:
    """The hints of the last conversion into a folder (a path or URL); none if it has no report that can be read."""
    location = storage.join(folder, REPORT_NAME)
    if storage.size_of(location) is None:
        return ()
    try:
        return msgspec.json.decode(storage.read(location), type=_Hints).hints
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanCounts:
    """Where the spans went. A damaged line or message of unknown content counts as one span read and quarantined.

    In an incremental conversion `again` are spans that an earlier one read, assembled again with what came of their
    rollouts, and `waiting` those of rollouts that are not given yet.
    """

    read: int = 0
    again: int = 0
    used: int = 0
    waiting: int = 0
    duplicate: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict[str, int])
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCounts:
    """Where the log records went. `without_span`: their span is not in the sources, or they name none.

    `again` were read by an earlier conversion, as with spans.
    """

    read: int = 0
    again: int = 0
    joined: int = 0
    duplicate: int = 0
    without_span: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardCounts:
    """What became of the rewards, each counted once for each thing that it is for."""

    given: int = 0
    delivered: int = 0
    undeliverable: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class CallCounts:
    """The LLM calls. `without_content` are completed calls of which neither prompt nor completion was captured."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    without_content: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrajectoryCounts:
    """The trajectories; `incomplete` counts trajectories by reason (one may have several)."""

    total: int = 0
    complete: int = 0
    incomplete: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantineEntry:
    """One quarantined piece by name: where it stands, why it was set aside."""

    reason: str
    path: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileReport:
    """One input file.

    `not_in_format` says what its format cannot carry, `error` why it could not be read, `note` what a reader should
    know.
    """

    path: str
    format: str | None
    compression: str | None
    bytes: int
    spans: int
    logs: int
    damaged: int
    not_in_format: Sequence[str] = ()
    note: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionReport:
    """Everything a conversion can say about itself.

    `quarantine` lists at most the first 1,000 pieces; `hints` say what to do when little or nothing came out.
    """

    spans: SpanCounts = field(default_factory=SpanCounts)
    logs: LogCounts = field(default_factory=LogCounts)
    rewards: RewardCounts = field(default_factory=RewardCounts)
    calls: CallCounts = field(default_factory=CallCounts)
    trajectories: TrajectoryCounts = field(default_factory=TrajectoryCounts)
    files: Sequence[FileReport] = ()
    hints: Sequence[str] = ()
    quarantine: Sequence[QuarantineEntry] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return msgspec.to_builtins(self)

    @property
    def unread(self) -> list[FileReport]:
        """The files that could not be read."""
        return [file for file in self.files if file.error is not None]
