"""NewLines: what a spool got since the last look.

Invariant: every line is given once, whole. One that is still being written is left for the next time, and a file that
is removed meanwhile gives what was read of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from art_otel.spool.line import FoundFile, SpooledLine
from art_otel.spool.writer import SUFFIX


class NewLine(NamedTuple):
    """A line, and where it stands."""

    text: bytes
    place: SpooledLine


class NewLines:
    """Looks at the files below `folder`, of one run or of all, which traced processes go on writing to."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._read: dict[Path, int] = {}

    def take(self) -> Iterator[NewLine]:
        """Give what is new, file by file; what is given counts as taken. Raises OSError for what cannot be read."""
        for path in sorted(self._folder.rglob(f"*{SUFFIX}")):
            yield from self._rest_of(path)

    def _rest_of(self, path: Path) -> Iterator[NewLine]:
        file = FoundFile(path)
        try:
            lines = path.open("rb")
        except FileNotFoundError:  # an old run, removed since the folder was listed
            return
        with lines:
            lines.seek(self._read.get(path, 0))
            for text in lines:
                if not text.endswith(b"\n"):
                    return
                offset = self._read.get(path, 0)
                self._read[path] = offset + len(text)
                yield NewLine(text, SpooledLine(file=file, offset=offset, size=len(text)))
