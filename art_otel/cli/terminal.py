"""Terminal: how a verb writes to a terminal: texts, tables, counts in words, and a bar over the bytes read.

Invariant: what is printed of a dump holds no control character but newline and tab, and nothing that turns or hides
what is beside it, so nothing in a dump can drive a terminal. Memory and the time to a table's first line do not depend
on how many rows there are, and every cell stands whole in its line.
"""

import io
import json
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_CONTROLS: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **dict.fromkeys(range(128, 160), "�"),
    0x061C: "�",
    **dict.fromkeys([0xAD, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x206A), 0xFEFF], "�"),
    **dict.fromkeys(range(0xE0000, 0xE0080), "�"),
}
"""Unicode's control pictures; one character for one, so that styles keep their place. What has no picture ends lines,
has no width, or changes the direction of text. What joins letters and emoji stays: texts need it."""

_LOOKED_AT: Final = 200
"""The first rows, which decide how wide the columns are."""

_WIDEST: Final = 48
_GAP: Final = "  "
_ONE_LINE: Final = {ord("\n"): "\u240a", ord("\t"): "\u2409"}


def printable(text: str) -> str:
    """The text with every control character replaced by a picture of it."""
    return text.translate(_CONTROLS)


def printable_json(value: object) -> str:
    """JSON in ASCII without control characters: the same value in every encoding, for a program or a terminal."""
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")


def forgive_streams() -> None:
    """Write what the terminal's encoding does not have as an escape instead of raising UnicodeEncodeError.

    Where there is no stdout or stderr (`art-otel … >&-`), what is said goes nowhere.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 # as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """The number and its noun: `1 file`, `2,000 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def by_reason(counts: Mapping[str, int], verb: str) -> str:
    """The sum of the counts, what became of them, and each with its reason: `3 ignored (a: 1, b: 2)`."""
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts.items())
    return f"{sum(counts.values()):,} {verb}" + (f" ({reasons})" if reasons else "")


def table_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of rows that have equally many cells."""
    from rich.cells import cell_len  # noqa: PLC0415 # loads for a verb that needs it

    cleaned = ([printable(cell).translate(_ONE_LINE) for cell in row] for row in rows)
    first = list(islice(cleaned, _LOOKED_AT))
    widths = [min(_WIDEST, max(map(cell_len, column))) for column in zip(*first, strict=True)]
    for row in chain(first, cleaned):
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield _GAP.join(padded).rstrip() + "\n"


class ByteProgress:
    """Moves a bar by the bytes read; without a bar it stays silent."""

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
