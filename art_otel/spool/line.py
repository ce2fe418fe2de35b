"""SpooledLine: where a line stands on the disk, so that memory need not hold it.

Invariant: a line that this process wrote can be read as long as somebody holds it, whatever becomes of the file's name.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from weakref import finalize

logger = logging.getLogger(__name__)


class LineFile(Protocol):
    """A file that lines stand in."""

    def read(self, offset: int, size: int) -> bytes:
        """Give so many bytes, fewer at its end. Raises OSError."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SpooledLine:
    """A line of `size` bytes at `offset` of a file."""

    file: LineFile
    offset: int
    size: int

    def read(self) -> bytes:
        """Give the bytes that were written. Raises OSError where the disk does not have them any more."""
        line = self.file.read(self.offset, self.size)
        if len(line) < self.size:
            raise OSError(f"{self.file} was cut")
        return line


class WrittenFile:
    """A file that this process writes to; it is closed when nobody holds it or a line of it any more.

    `path` is None for a file without a name, whose bytes are gone with it.
    """

    def __init__(self, descriptor: int, path: Path | None) -> None:
        self.descriptor = descriptor
        self.path = path
        finalize(self, _close, descriptor).atexit = False  # what ends at exit is still written

    def read(self, offset: int, size: int) -> bytes:
        """As LineFile."""
        return os.pread(self.descriptor, size, offset)

    def __str__(self) -> str:
        return "a temporary file" if self.path is None else str(self.path)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that other processes write to; it is open only while it is read, for there may be many."""

    path: Path

    def read(self, offset: int, size: int) -> bytes:
        """As LineFile."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def __str__(self) -> str:
        return str(self.path)


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError as error:
        logger.warning("art-otel: a file of the spool cannot be closed: %s", error)
