"""Groups: trajectories in memory as the groups that ART trains on. Needs ART.

Invariant: they are those that `art-otel export` would write and `read_groups` read.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from art_otel import batches
from art_otel.exporting import ExportStats, ScoredTrajectory
from art_otel.trajectories import Trajectory, TrajectoryGroup
from art_otel_art.config import TrajectoriesConfig
from art_otel_art.encode import encode_trajectories
from art_otel_art.read import make_group

logger = logging.getLogger(__name__)


def art_groups(
    trajectories: Iterable[TrajectoryGroup] | Iterable[Trajectory],
    *,
    allow_incomplete: bool | Iterable[str] = False,
    tool_calls: Literal["keep", "drop"] = "keep",
) -> list[Any]:
    """Give trajectories as `art.TrajectoryGroup`s, which `backend.train` takes.

    Members of one group id and training step are a group. A rollout that failed is an exception of its group; what ART
    cannot train on is left out, with a warning that names the reasons. `allow_incomplete` and `tool_calls` are those of
    `art-otel export`. Raises ImportError without ART.
    """
    stats = ExportStats()
    selected = batches(trajectories, advantage=None, allow_incomplete=allow_incomplete, status=None)
    items = (
        ScoredTrajectory(trajectory=trajectory, turn_rewards=rewards) for trajectory, rewards in selected.trajectories()
    )
    config = TrajectoriesConfig(tool_calls=tool_calls)
    groups = [
        make_group(msgspec.json.decode(msgspec.json.encode(record)))
        for record in encode_trajectories(items, config, stats)
    ]
    _warn(Counter(selected.report.trajectories_skipped) + stats.trajectories_skipped)
    return groups


def _warn(skipped: Counter[str]) -> None:
    if skipped:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in skipped.items())
        logger.warning("art-otel: %d trajectories are not given to ART (%s)", skipped.total(), reasons)
