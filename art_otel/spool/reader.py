"""NewLines: what a spool got since the last look.

Invariant: every line is given once, whole. One that is still being written is left for the next time, and a file that
is removed meanwhile gives what was read of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from art_otel.spool.line import FoundFile, RecentLines, SpooledLine
from art_otel.spool.writer import SUFFIX

_RECENT_BYTES: Final = 16 << 20


class NewLine(NamedTuple):
    """The text of a line, and its location in the spool."""

    text: bytes
    location: SpooledLine


class NewLines:
    """Looks at the files below `folder`, of one run or of all, which traced processes go on writing to."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._read: dict[Path, int] = {}
        self._recent = RecentLines(_RECENT_BYTES)

    def take(self) -> Iterator[NewLine]:
        """Give what is new, file by file; what is given counts as taken. Raises OSError for what cannot be read."""
        for path in spool_files(self._folder):
            for line in lines_of(path, self._read.get(path, 0), self._recent):
                self._read[path] = line.location.offset + line.location.size
                yield line


def spool_files(folder: Path) -> list[Path]:
    """The files below `folder`, of one run or of all, the oldest first."""
    return sorted(folder.rglob(f"*{SUFFIX}"))


def lines_of(path: Path, offset: int = 0, recent: RecentLines | None = None) -> Iterator[NewLine]:
    """Read the whole lines of a file from an offset on; none if the file was removed. Raises OSError."""
    file = FoundFile(path, recent)
    try:
        end = path.stat().st_size  # what is written meanwhile waits, or the look might never end
        if end <= offset:
            return
        lines = path.open("rb")
    except FileNotFoundError:  # an old run, removed since the folder was listed
        return
    with lines:
        lines.seek(offset)
        while offset < end and (text := lines.readline()).endswith(b"\n"):
            location = SpooledLine(file=file, offset=offset, size=len(text))
            if recent is not None:
                recent.keep(path, offset, text)
            yield NewLine(text, location)
            offset += len(text)
