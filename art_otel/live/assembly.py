"""Assembly: the trajectories of rollouts from their lines.

Invariant: the spool's lines are read by the reader of dumps, so live and dump give equal trajectories. A line that can
no longer be read (its file was deleted) is logged and loses only its own spans; the trajectory says what is missing.
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
"""The place of a line in the spool, or the line itself where the disk refused it."""


def assemble(
    lines: Iterable[Line], rollout_spans: Sequence[str] = (), rollout_attributes: Sequence[str] = ()
) -> "tuple[Trajectory, ...]":
    """Build the trajectories of all lines; `rollout_spans` and `rollout_attributes` are as in `build_trajectories`."""
    from art_otel.trajectories import build_trajectories  # noqa: PLC0415 # only who asks loads the trajectories

    group = _group(read_records(lines))
    return build_trajectories(group, rollout_spans, rollout_attributes=rollout_attributes).trajectories


def by_rollout_id(trajectories: "Sequence[Trajectory]") -> "dict[str, Trajectory]":
    """The trajectories by rollout id; where several attempts have one id, the first of them."""
    return {trajectory.rollout_id: trajectory for trajectory in reversed(trajectories)}


def read_records(lines: Iterable[Line]) -> "list[Record]":
    """The spans, log records and quarantined records of the lines."""
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
            # Collected, so that a deleted file gives one warning and not one for each of its lines.
            lost.append(error)
    if lost:
        logger.warning(
            "art-otel: %d lines are missing from the spool, so trajectories lack spans: %s", len(lost), lost[0]
        )
