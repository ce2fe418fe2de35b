"""NewLines: what a spool got since the last look.

Invariant: every line is given once, whole. One that is still being written is left for the next time.
"""

from collections.abc import Iterator
from pathlib import Path

from art_otel.spool.writer import SUFFIX


class NewLines:
    """Looks at the files below `folder`, of one run or of all, which traced processes go on writing to."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._read: dict[Path, int] = {}

    def take(self) -> Iterator[bytes]:
        """Give what is new, file by file; what is given counts as taken."""
        for path in sorted(self._folder.rglob(f"*{SUFFIX}")):
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = start + len(whole) + len(newline)
            yield from (whole + newline).splitlines(keepends=True)
