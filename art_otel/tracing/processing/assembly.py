"""Assembly: the trajectory of one rollout from its lines, wherever they are held.

Invariant: the lines are those that the spool holds, read by the reader of dumps, so live and dump give the same. A line
that cannot be read again costs itself and is logged; the trajectory then says what is missing.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from art_otel.spool import SpooledLine

if TYPE_CHECKING:
    from art_otel.trajectories import Trajectory

logger = logging.getLogger(__name__)

NAME: Final = "live"


def assemble(rollout_id: str, lines: Sequence[bytes | SpooledLine]) -> "Trajectory | None":
    """Build the rollout's trajectory. The lines may be those of rollouts around it too."""
    from art_otel.sources import FileStats, Limits, Reading, read_lines_of  # noqa: PLC0415 # only who asks reads
    from art_otel.spans import Quarantined, Span  # noqa: PLC0415
    from art_otel.trajectories import SpanGroup, build_trajectories  # noqa: PLC0415

    reading = Reading(path=NAME, limits=Limits(), stats=FileStats())
    records = list(read_lines_of(_texts(rollout_id, lines), reading))
    group = SpanGroup(
        spans=[record for record in records if isinstance(record, Span)],
        quarantine=[record for record in records if isinstance(record, Quarantined)],
    )
    trajectories = build_trajectories(group).trajectories
    return next((trajectory for trajectory in trajectories if trajectory.rollout_id == rollout_id), None)


def _texts(rollout_id: str, lines: Sequence[bytes | SpooledLine]) -> Iterator[bytes]:
    lost = 0
    for line in lines:
        try:
            yield line if isinstance(line, bytes) else line.read()
        except OSError:
            lost += 1
    if lost:
        logger.warning("art-otel: %d of %d lines of rollout %s left the spool", lost, len(lines), rollout_id)
