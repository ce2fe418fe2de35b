"""Assembly: the trajectories of rollouts from their lines, wherever they are held.

Invariant: the lines are those that the spool holds, read by the reader of dumps, so live and dump give the same. A line
that cannot be read again costs itself and is logged; the trajectory then says what is missing.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from art_otel.spool import SpooledLine

if TYPE_CHECKING:
    from art_otel.spans import LogRecord, Quarantined, Span
    from art_otel.trajectories import Trajectory

logger = logging.getLogger(__name__)

NAME: Final = "live"


def assemble(rollout_id: str, lines: Sequence[bytes | SpooledLine]) -> "dict[str, Trajectory]":
    """Build the trajectories of the lines, by their rollout ids. `rollout_id` is named where a line is lost."""
    from art_otel.spans import Quarantined, Span  # noqa: PLC0415 # only who asks reads

    records = _read(rollout_id, lines)
    return build(
        [record for record in records if isinstance(record, Span)],
        [record for record in records if isinstance(record, Quarantined)],
    )


def build(spans: "Sequence[Span]", quarantine: "Sequence[Quarantined]" = ()) -> "dict[str, Trajectory]":
    """Build the trajectories of the spans, by their rollout ids."""
    from art_otel.trajectories import SpanGroup, build_trajectories  # noqa: PLC0415 # as above

    trajectories = build_trajectories(SpanGroup(spans=spans, quarantine=quarantine)).trajectories
    return {trajectory.rollout_id: trajectory for trajectory in reversed(trajectories)}


def read_lines(rollout_id: str, lines: Sequence[bytes | SpooledLine]) -> "list[Span]":
    """The spans of the lines."""
    from art_otel.spans import Span  # noqa: PLC0415 # as above

    return [record for record in _read(rollout_id, lines) if isinstance(record, Span)]


def _read(rollout_id: str, lines: Sequence[bytes | SpooledLine]) -> "list[Span | LogRecord | Quarantined]":
    from art_otel.sources import FileStats, Limits, Reading, read_lines_of  # noqa: PLC0415 # as above

    reading = Reading(path=NAME, limits=Limits(), stats=FileStats())
    return list(read_lines_of(_texts(rollout_id, lines), reading))


def _texts(rollout_id: str, lines: Sequence[bytes | SpooledLine]) -> Iterator[bytes]:
    lost = 0
    for line in lines:
        try:
            yield line if isinstance(line, bytes) else line.read()
        except OSError:
            lost += 1
    if lost:
        logger.warning("art-otel: %d of %d lines of rollout %s left the spool", lost, len(lines), rollout_id)
