"""Log: trajectories in the files of ART's run folder.

Invariant: a file holds what belongs to its split and step, and nothing else; its columns are ART's first, then ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from art_otel.errors import UsageError
from art_otel.exporting import ExportStats, ScoredTrajectory, SpillFile, check_place, unrewarded
from art_otel.runlog import checked_name
from art_otel.store import check_replaceable, write_trajectories
from art_otel.trajectories import Trajectory
from art_otel_art.config import LogConfig

NO_SPLIT: Final = "trajectories without a split put into the one of the options"
NO_STEP: Final = "trajectories without a training step put into the one of the options"


class Logged(NamedTuple):
    """A trajectory, and which file it belongs to."""

    split: str
    step: int
    trajectory: Trajectory


def encode_log(items: Iterator[ScoredTrajectory], config: LogConfig, stats: ExportStats) -> Iterator[Logged]:
    """Every trajectory that has a usable reward, and whose split can be a folder."""
    for item in items:
        trajectory = item.trajectory
        split, step = trajectory.split, trajectory.training_step
        reason = _reason_against(trajectory)
        if reason is not None:
            stats.trajectories_skipped[reason] += 1
            continue
        stats.changed[NO_SPLIT] += split is None
        stats.changed[NO_STEP] += step is None
        # What a gathered rollout returned lives in its process only.
        kept = replace(trajectory, result=None)
        yield Logged(config.split if split is None else split, config.step if step is None else step, kept)


def _reason_against(trajectory: Trajectory) -> str | None:
    reason = unrewarded(trajectory)
    if reason is not None:
        return reason
    if trajectory.training_step is not None and trajectory.training_step < 0:
        return "a training step below 0"
    try:
        checked_name("split", "train" if trajectory.split is None else trajectory.split)
    except UsageError:
        return "a split that cannot be a folder"
    return None


@dataclass(frozen=True, slots=True)
class LogFolder:
    """`trajectories/{split}/{step:04d}.parquet` below a folder. Trajectories wait on disk for those of their file."""

    suffix: str = ""

    def write(self, records: Iterator[Logged], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the files, replacing those of the same split and step. Raises UsageError before it replaces any."""
        files: dict[Path, list[tuple[tuple[str, int, str], int]]] = {}
        count = 0
        with SpillFile[Trajectory]() as spilled:
            for record in records:
                spilled[count] = record.trajectory
                path = out / "trajectories" / checked_name("split", record.split) / f"{record.step:04d}.parquet"
                files.setdefault(path, []).append((record.trajectory.order, count))
                count += 1
            for path in files:
                check_place(path)
            check_replaceable(files)
            for path, members in files.items():
                write_trajectories((spilled[number] for _, number in sorted(members)), path)
        return count, tuple(files)
