"""Report: the content of `_report.json`: the manifest of a dataset's parts, and counts of all that was read.

Invariant: a folder's dataset is exactly the parts that the manifest in its `_report.json` names. Replacing this one
file replaces the dataset. Before a commit, a pending file names the parts that it adds and removes.

These sums hold; nothing is estimated:

    spans read + again = used + ignored (by reason) + duplicate + quarantined (by reason) + waiting
    calls              = completed + failed
    rewards given      = delivered + undeliverable (by reason)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from art_otel import storage
from art_otel.errors import StoreError

REPORT_NAME: Final = "_report.json"

PLAN_PREFIX: Final = "_plan-"
"""The prefix of files with a stored plan of a dataset (`data.stored_plan`)."""

SCHEMA_VERSION: Final = 4
"""The version of the schema. It is increased with every change that a reader must know of."""

VERSION_KEY: Final = b"art_otel.schema"
"""The metadata key with the schema's version in a file."""


class Bounds(NamedTuple):
    """The least and the greatest of some numbers."""

    least: int
    greatest: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part file: its name, size and digest, and facts of its rows, so that readers need not open it for these.

    Bounds are None if no row has such a number. `splits` are all splits in it, None for rows without one. `group_rows`
    has the number of rows of each row group.
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
    """The key of a row: its `Trajectory.order` and its revision.

    `part` is the number of the part that the row was written to. After a compaction the row is in a later part.
    """

    rollout_id: str
    attempt: int
    trace_id: str
    revision: int
    part: int


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many bytes of an input, from its beginning, are in a dataset; `name` is the input's path or URL.

    An object in a store is identified by its `etag` (None if the store has none), a local file by hashes of the first
    and the last bytes that were read (`head`, `tail`). `mtime_ns` is the time of its last change.
    """

    name: str
    bytes: int
    head: str | None = None
    tail: str | None = None
    etag: str | None = None
    mtime_ns: int | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset: its parts in order, the number of the commit that made it, and the run that committed it.

    `superseded` are rows that are no longer valid, by the name of their part: a later row is their next revision, or
    their rollout belongs to another one. `ledger` says how much of each input is in the dataset. `kept` names the files
    with records that later incremental conversions need.
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
        """How many rows are valid."""
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
    """The files that a commit adds and removes. `written_at` is in nanoseconds since the epoch.

    Removed files stay for at least `linger` nanoseconds, because others may still read them.
    """

    run: str
    written_at: int
    linger: int = 0
    parts: tuple[str, ...]
    previous: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of all added and removed files."""
        return frozenset((*self.parts, *self.previous))


def part_name(number: int, sha256: str) -> str:
    """The name of a part with this number and content."""
    return f"part-{number:05d}-{sha256[:8]}.parquet"


def is_part_name(name: str) -> bool:
    """Whether a file's name matches the glob by which readers find parts."""
    return name.startswith("part-") and name.endswith(".parquet")


def pending_name(run: str) -> str:
    """The name of the pending file of a run."""
    return f"_pending-{run}.json"


def read_manifest(folder: str) -> Manifest | None:
    """The manifest of a folder (a path or URL); None if it has none of ours. Raises StoreError for a newer schema."""
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
    """The part of `_report.json` with advice for an empty or small result."""

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
    """What became of the spans. A damaged line or message of unknown content counts as one span, read and quarantined.

    In an incremental conversion `again` counts spans of earlier conversions that were assembled again with new ones,
    and `waiting` spans of rollouts that are not written yet.
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
    """What became of the log records. `without_span`: their span is not in the sources, or they name none.

    `again` counts log records of earlier conversions, as in `SpanCounts`.
    """

    read: int = 0
    again: int = 0
    joined: int = 0
    duplicate: int = 0
    without_span: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardCounts:
    """What became of the rewards. Each is counted once per target."""

    given: int = 0
    delivered: int = 0
    undeliverable: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class CallCounts:
    """The LLM calls. `without_content` counts completed calls without a captured prompt and completion."""

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
    """One quarantined piece: its place and the reason."""

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
    """All counts of a conversion.

    `quarantine` lists at most the first 1,000 pieces; `hints` have advice for an empty or small result.
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
