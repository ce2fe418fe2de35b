"""SpooledLine: where a line stands, mostly on the disk, so that memory need not hold it; NewLines: what a spool got.

Invariant: a line that this process wrote can be read as long as somebody holds it, whatever becomes of the file's name.
Of lines that other processes write, each is given once, whole: one that is still being written is left for the next
time, and a file that is removed meanwhile gives what was read of it.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Protocol
from weakref import finalize

import msgspec

from art_otel.spool.runs import SUFFIX, note_taken

logger = logging.getLogger(__name__)


class LineFile(Protocol):
    """A file that lines stand in."""

    def read(self, offset: int, size: int) -> bytes:
        """Give so many bytes, fewer at its end. Raises OSError."""
        ...

    def hand_out(self, size: int) -> None:
        """Note that so many bytes more are in a trajectory that the app has; a file of this process counts them."""


class SpooledLine(msgspec.Struct, frozen=True, kw_only=True):
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

    def cut(self, sizes: Sequence[int]) -> "list[SpooledLine]":
        """Where the lines of these sizes stand that were written as one."""
        return [
            SpooledLine(file=self.file, offset=offset, size=size)
            for offset, size in zip(accumulate(sizes, initial=self.offset), sizes, strict=False)
        ]


class WrittenFile(LineFile):
    """A file that this process writes to; it is closed when nobody holds it or a line of it any more.

    Once it is left, and the app has the trajectories of all its lines, that is noted, so that old runs may go.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self.path = path
        self.size = 0
        self._handed_out = 0
        self._is_left = False
        finalize(self, _close, descriptor).atexit = False  # what ends at exit is still written

    def read(self, offset: int, size: int) -> bytes:
        """As LineFile."""
        return os.pread(self.descriptor, size, offset)

    def hand_out(self, size: int) -> None:
        """As LineFile."""
        self._handed_out += size
        self._note()

    def leave(self) -> None:
        """Nothing more is written to it."""
        self._is_left = True
        self._note()

    def _note(self) -> None:
        if self._is_left and self.size and self._handed_out >= self.size:
            note_taken({self.path: self.size})

    def __str__(self) -> str:
        return str(self.path)


class HeldText(LineFile):
    """A line that only memory has, as a file of its own."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def read(self, offset: int, size: int) -> bytes:
        """As LineFile."""
        return self._text[offset : offset + size]

    def __str__(self) -> str:
        return "memory"


@dataclass(frozen=True, slots=True)
class FoundFile(LineFile):
    """A file that other processes write to; it is open only while it is read, for there may be many."""

    path: Path

    def read(self, offset: int, size: int) -> bytes:
        """As LineFile."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def __str__(self) -> str:
        return str(self.path)


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError as error:
        logger.warning("art-otel: a file of the spool cannot be closed: %s", error)


class NewLine(NamedTuple):
    """The text of a line, and its location in the spool."""

    text: bytes
    location: SpooledLine


class NewLines:
    """Looks at the files below `folder`, of one run or of all, which traced processes go on writing to."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.read: dict[Path, int] = {}
        """How far each file was read."""

    def take(self) -> Iterator[NewLine]:
        """Give what is new, file by file; what is given counts as taken. Raises OSError for what cannot be read."""
        for path in spool_files(self._folder):
            for line in lines_of(path, self.read.get(path, 0)):
                self.read[path] = line.location.offset + line.location.size
                yield line


def spool_files(folder: Path) -> list[Path]:
    """The files below `folder`, of one run or of all, the oldest first."""
    return sorted(folder.rglob(f"*{SUFFIX}"))


def lines_of(path: Path, offset: int = 0) -> Iterator[NewLine]:
    """Read the whole lines of a file from an offset on; none if the file was removed. Raises OSError."""
    file = FoundFile(path)
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
            yield NewLine(text, location)
            offset += len(text)
