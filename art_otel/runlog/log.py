"""RunLog: the record of a training run, step by step, as ART keeps it.

Invariant: a row in history.jsonl says what a log call knew, and the Parquet file of a split and step holds its latest
batch: logging it again adds a row and replaces the file, as in ART, and says so as a warning. ART's own reader can
always read it: what has no reward is in another file. What is wrong with the arguments is found before anything is
written.
"""

import logging
import math
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import SupportsFloat, SupportsIndex, cast

from art_otel.errors import UsageError
from art_otel.runlog.folder import RunFolder, checked_name, checked_step
from art_otel.runlog.history import HistoryRow, append_row, means_by_step, read_rows, step_of
from art_otel.runlog.metrics import as_numbers, batch_metrics, prefixed, unknown_metrics
from art_otel.runlog.reports import make_reports, send
from art_otel.store.commit import check_replaceable
from art_otel.store.write import write_trajectories
from art_otel.trajectories import GroupKey, Trajectory, TrajectoryGroup, with_later_rewards

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEntry:
    """What one call of `log` wrote. You may await it; this returns the same entry.

    `file` is the Parquet file, or None if only metrics were logged. `unrewarded` is the file with the trajectories
    without a finite reward, or None if all have one. `metrics` are the metrics of the row, by full name. `skipped`
    names metrics that were NaN or infinite. A metric of the call is then not in the row; a metric of a trajectory is
    not in the file, and counts in no mean.
    """

    split: str
    step: int
    file: Path | None
    unrewarded: Path | None = None
    metrics: Mapping[str, float] = field(hash=False)  # asyncio.gather hashes what it awaits
    skipped: tuple[str, ...] = ()

    def __await__(self) -> Generator[None, None, "LogEntry"]:
        yield from ()
        return self


class CurrentStep(int):
    """A step, which may be awaited and then gives its number, as `get_step` of ART's models."""

    def __await__(self) -> Generator[None, None, int]:
        yield from ()
        return int(self)


class RunLog:
    """Writes and reads `{base_path}/{project}/models/{model}`: history.jsonl, and trajectories by split and step.

    `project`, `model` and `base_path` default to `project`, `model` and `dir` of `art_otel.configure()`; otherwise to
    ART_OTEL_PROJECT, ART_OTEL_MODEL and ART_OTEL_DIR (or `.art`). `report_metrics` has some of `"wandb"`, `"mlflow"`
    and `"tensorboard"`. `[]` is none; None is W&B if WANDB_API_KEY is set. Metrics also become gauges of OpenTelemetry.
    Raises UsageError for names that cannot be folders, and for a named client that is not installed.
    """

    def __init__(
        self,
        project: str | None = None,
        model: str | None = None,
        base_path: str | Path | None = None,
        report_metrics: Sequence[str] | None = None,
    ) -> None:
        self.folder = RunFolder(project, model, base_path)
        self._reports = make_reports(self.folder, report_metrics)
        self._began = time.monotonic()

    def log(
        self,
        trajectories: Iterable[Trajectory] | Iterable[TrajectoryGroup] | None = None,
        split: str = "val",
        step: SupportsIndex | None = None,
        metrics: Mapping[str, SupportsFloat | None] | None = None,
    ) -> LogEntry:
        """Log a batch, metrics, or both, for a split and a step (default: `get_step()`).

        Trajectories without a TrajectoryGroup are grouped by their `group_id`; a trajectory without one is a group of
        its own. If names are equal, `metrics` count more than the batch's. Everything is written when the call returns.
        `await log.log(...)` does the same, for code written for ART. Raises UsageError for invalid arguments,
        StoreError and OSError as `write_trajectories` does.
        """
        if trajectories is None and metrics is None:
            raise UsageError("log: nothing to log; give trajectories, metrics or both")
        checked_name("split", split)
        groups = None if trajectories is None else _grouped(trajectories)
        from_batch = {} if groups is None else batch_metrics(groups, split)
        unknown = {} if groups is None else prefixed(unknown_metrics(groups), split)
        named = prefixed({**from_batch, **as_numbers(metrics or {})}, split)
        explicit_step = None if step is None else checked_step(step)
        with self.folder.alone():
            at = int(self.get_step()) if explicit_step is None else explicit_step
            file, unrewarded = (None, None) if groups is None else self._write(groups, split, at)
            row = {**named, "training_step": at, "time/wall_clock_sec": time.monotonic() - self._began}
            finite = {name: value for name, value in row.items() if math.isfinite(value)}
            append_row(self.folder.history, {**finite, "step": at, "recorded_at": datetime.now(UTC).isoformat()})
        send(self._reports, finite)
        return LogEntry(
            split=split,
            step=at,
            file=file,
            unrewarded=unrewarded,
            metrics={name: value for name, value in named.items() if name in finite},
            skipped=tuple(dict.fromkeys([*(name for name in named if name not in finite), *unknown])),
        )

    def history(self) -> tuple[HistoryRow, ...]:
        """The rows of history.jsonl, in the order of logging. A damaged line is left out with a warning."""
        return tuple(read_rows(self.folder.history))

    def get_step(self) -> CurrentStep:
        """Return the current step: the highest in `checkpoints/`, as ART does; otherwise the highest logged step, or 0.

        It is an int; `await log.get_step()` returns the same, for code written for ART.
        """
        checkpoint = self.folder.last_checkpoint()
        if checkpoint is not None:
            return CurrentStep(checkpoint)
        logged = (step for row in read_rows(self.folder.history) if (step := step_of(row)) is not None)
        return CurrentStep(max(logged, default=0))

    def best_step(self, metric: str = "val/reward") -> int | None:
        """The step with the highest mean of the metric over its rows, the latest if several are equal; or None."""
        means = means_by_step(read_rows(self.folder.history), metric)
        return max(means, key=lambda step: (means[step], step), default=None)

    def steps_to_keep(self, metric: str = "val/reward") -> tuple[int, ...]:
        """The steps whose checkpoints ART's `delete_checkpoints` keeps, in order: the current and the best step."""
        best = self.best_step(metric)
        return tuple(sorted({int(self.get_step())} | (set() if best is None else {best})))

    def _write(self, groups: Sequence[TrajectoryGroup], split: str, step: int) -> tuple[Path, Path | None]:
        """The file of the batch, and that of what has no reward."""
        file, aside = self.folder.trajectories(split, step), self.folder.unrewarded(split, step)
        check_replaceable((file, aside))
        again = file.exists()
        batch = [one for group in groups for one in group]
        unrewarded = [one for one in batch if not _is_rewarded(one)]
        write_trajectories([one for one in batch if _is_rewarded(one)], file)
        if unrewarded:
            write_trajectories(unrewarded, aside)
        else:
            aside.unlink(missing_ok=True)
        if again:
            logger.warning("%s: logged again; this batch replaces the earlier one", file)
        return file, aside if unrewarded else None


def _is_rewarded(trajectory: Trajectory) -> bool:
    return trajectory.reward is not None and math.isfinite(trajectory.reward)


def _grouped(trajectories: object) -> list[TrajectoryGroup]:
    """The batch, or a single member of one, as groups in the order of their first members."""
    items = list(cast(Iterable[object], trajectories)) if isinstance(trajectories, Iterable) else [trajectories]
    groups = [item for item in items if isinstance(item, TrajectoryGroup)]
    singles = [with_later_rewards(cast(Trajectory, item)) for item in items if isinstance(item, Trajectory)]
    if items and len(items) not in (len(groups), len(singles)):
        kinds = ", ".join(sorted({type(item).__name__ for item in items}))
        raise UsageError(f"trajectories: {kinds}; give trajectories or groups of them, not both")
    return [_with_ids(group) for group in groups] if groups else _by_group_id(singles)


def _with_ids(group: TrajectoryGroup) -> TrajectoryGroup:
    """The group; members without a group id get its own, so that the Parquet file says who belongs together."""
    rewarded = map(with_later_rewards, group.trajectories)
    members = [one if one.group_id is not None else replace(one, group_id=group.group_id) for one in rewarded]
    return replace(group, trajectories=members)


def _by_group_id(trajectories: Iterable[Trajectory]) -> list[TrajectoryGroup]:
    members: dict[GroupKey | tuple[str, int, str], list[Trajectory]] = {}
    for trajectory in trajectories:
        members.setdefault(trajectory.group_key or trajectory.order, []).append(trajectory)
    return [
        TrajectoryGroup(group_id=key.group_id if isinstance(key, GroupKey) else "", trajectories=grouped)
        for key, grouped in members.items()
    ]
