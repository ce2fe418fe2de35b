"""Progress: a bar over the bytes read, on a terminal only."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ByteProgress:
    """Told the total once and each step of bytes; without a bar it stays silent."""

    def __init__(self, bar: "Progress | None") -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def start(self, total: int | None) -> None:
        """Begin; `total` is None when a source does not say how long it is."""
        if self._bar is not None:
            self._task = self._bar.add_task("reading", total=total)

    def advance(self, count: int) -> None:
        """Count bytes read."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, count)


@contextmanager
def show_progress(*, enabled: bool) -> Generator[ByteProgress]:
    """Show a bar on standard error while the block runs."""
    if not enabled:
        yield ByteProgress(None)
        return
    from rich.console import Console  # noqa: PLC0415 # loaded only where somebody watches
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield ByteProgress(bar)
