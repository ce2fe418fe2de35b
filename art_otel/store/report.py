"""ConversionReport: the honest account of a conversion, written as `_report.json`.

Invariant: spans read + again = used + ignored (by reason) + duplicate + quarantined (by reason) + waiting, calls =
completed + failed, and rewards given = delivered + undeliverable (by reason). Every number is a count of what really
happened; nothing is estimated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec


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

    `lacks` says what its format cannot carry, `error` why it could not be read, `note` what a reader should know.
    """

    path: str
    format: str | None
    compression: str | None
    bytes: int
    spans: int
    logs: int
    damaged: int
    lacks: Sequence[str] = ()
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
