"""Progress: a bar over rollouts, on a terminal only."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from art_otel.trajectories import Trajectory


class RolloutProgress:
    """Counts finished trajectories on a bar; without a bar it shows nothing."""

    def __init__(self, bar: "Progress | None" = None, task: "TaskID | None" = None) -> None:
        self._bar = bar
        self._task = task
        self._failed = 0
        self._rewards: list[float] = []

    def advance(self, trajectory: "Trajectory") -> None:
        """Count one more finished trajectory."""
        self._failed += trajectory.status != "ok"
        if trajectory.reward is not None:
            self._rewards.append(trajectory.reward)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, summary=self._summary())

    def _summary(self) -> str:
        failed = [f"{self._failed} failed"] if self._failed else []
        mean = [f"reward {sum(self._rewards) / len(self._rewards):.3g}"] if self._rewards else []
        return " · ".join([*failed, *mean])


@contextmanager
def show_progress(total: int, *, enabled: bool) -> Generator[RolloutProgress]:
    """Show a bar on standard error while the block runs, if that is a terminal."""
    if not enabled or not sys.stderr.isatty():
        yield RolloutProgress()
        return
    from rich.console import Console  # noqa: PLC0415 # loaded only where somebody watches
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("rollouts"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[summary]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield RolloutProgress(bar, bar.add_task("rollouts", total=total, summary=""))
