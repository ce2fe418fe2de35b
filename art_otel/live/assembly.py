"""Assembly: the trajectories of rollouts from their lines.

Invariant: the lines are those that the spool holds, read by the reader of dumps, so live and dump give the same. A line
that cannot be read again costs itself and is logged; the trajectory then says what is missing.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from art_otel.spool import SpooledLine

if TYPE_CHECKING:
    from art_otel.sources import Record
    from art_otel.spans import Span
    from art_otel.trajectories import SpanGroup, Trajectory

logger = logging.getLogger(__name__)

NAME: Final = "live"

Line: TypeAlias = SpooledLine | bytes
"""Where a line stands; the line itself where the disk refused it."""


def assemble(
    lines: Iterable[Line], rollout_spans: Sequence[str] = (), rollout_attributes: Sequence[str] = ()
) -> "tuple[Trajectory, ...]":
    """Build the trajectories of the lines, with the rules of `build_trajectories` for what is a rollout."""
    from art_otel.trajectories import build_trajectories  # noqa: PLC0415 # only who asks loads the trajectories

    group = _group(read_records(lines))
    return build_trajectories(group, rollout_spans, rollout_attributes=rollout_attributes).trajectories


def by_rollout_id(trajectories: "Sequence[Trajectory]") -> "dict[str, Trajectory]":
    """The trajectories by their rollout ids, of several runs of one id the first."""
    return {trajectory.rollout_id: trajectory for trajectory in reversed(trajectories)}


def read_records(lines: Iterable[Line]) -> "list[Record]":
    """The records of the lines."""
    from art_otel.sources import FileStats, Limits, Reading, read_lines_of  # noqa: PLC0415 # as above

    reading = Reading(path=NAME, limits=Limits(), stats=FileStats())
    return list(read_lines_of(_texts(lines), reading))


def read_spans(lines: Iterable[Line]) -> "list[Span]":
    """The spans of the lines."""
    from art_otel.spans import Span  # noqa: PLC0415 # as above

    return [record for record in read_records(lines) if isinstance(record, Span)]


def _group(records: "Sequence[Record]") -> "SpanGroup":
    from art_otel.spans import LogRecord, Quarantined, Span  # noqa: PLC0415 # as above
    from art_otel.trajectories import SpanGroup  # noqa: PLC0415 # as above

    spans: list[Span] = []
    logs: list[LogRecord] = []
    quarantine: list[Quarantined] = []
    for record in records:
        if isinstance(record, Span):
            spans.append(record)
        elif isinstance(record, LogRecord):
            logs.append(record)
        else:
            quarantine.append(record)
    return SpanGroup(spans=spans, logs=logs, quarantine=quarantine)


def _texts(lines: Iterable[Line]) -> Iterator[bytes]:
    lost: list[OSError] = []
    for line in lines:
        try:
            yield line if isinstance(line, bytes) else line.read()
        except OSError as error:
            lost.append(error)
    if lost:
        logger.warning(
            "art-otel: %d lines are missing from the spool, so trajectories lack spans: %s", len(lost), lost[0]
        )
