"""StoredLine: a line that is read from the disk when it is needed, so that memory need not hold it.

Invariant: `read` gives the very bytes that were written, or raises OSError where the disk has them no more.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class StoredLine(Protocol):
    """A line that a spool took."""

    def read(self) -> bytes:
        """The line. Raises OSError where it cannot be read."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SpooledLine:
    """A line at `offset` of a file of the spool."""

    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """As StoredLine."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            line = file.read(self.size)
        if len(line) < self.size:
            raise OSError(f"{self.path} was cut")
        return line
