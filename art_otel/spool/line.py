"""SpooledLine: where a line stands on the disk, so that memory need not hold it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class SpooledLine:
    """A line of `size` bytes at `offset` of a file."""

    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """Give the bytes that were written. Raises OSError where the disk does not have them any more."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            line = file.read(self.size)
        if len(line) < self.size:
            raise OSError(f"{self.path} was cut")
        return line
