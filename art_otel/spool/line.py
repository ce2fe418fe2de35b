"""SpooledLine: the place of a line on the disk, held in memory instead of the line. NewLines: the new lines of a spool.

Invariant: a line that this process wrote can be read as long as its SpooledLine lives, even if the file is deleted,
because the file stays open. Lines of other processes are returned once each, and only whole: a line that is still being
written comes with the next look. If a file is removed while it is read, its other lines are missing and nothing raises.
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
    """A file of the spool, or a stand-in for one."""

    def read(self, offset: int, size: int) -> bytes:
        """The `size` bytes at `offset`, fewer where the file ends before. Raises OSError."""
        ...

    def hand_out(self, size: int) -> None:
        """Note that the app got a trajectory with `size` bytes more of this file. Only `WrittenFile` counts them."""


class SpooledLine(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a line in the spool: `size` bytes, with the newline, at `offset` of `file`."""

    file: LineFile
    offset: int
    size: int

    def read(self) -> bytes:
        """The bytes of the line. Raises OSError where the disk does not have all of them any more."""
        line = self.file.read(self.offset, self.size)
        if len(line) < self.size:
            raise OSError(f"{self.file} was cut")
        return line

    def cut(self, sizes: Sequence[int]) -> "list[SpooledLine]":
        """The places of several lines that were written as this one, given the size of each in bytes."""
        return [
            SpooledLine(file=self.file, offset=offset, size=size)
            for offset, size in zip(accumulate(sizes, initial=self.offset), sizes, strict=False)
        ]


class WrittenFile(LineFile):
    """A file that this process writes to. It stays open as long as the writer or any of its lines refers to it.

    After `leave`, once the app has got trajectories with all its bytes (`hand_out`), the file is noted as taken. Only
    files that are noted may be removed as old (`remove_old_runs`).
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self.path = path
        self.size = 0
        self._handed_out = 0
        self._is_left = False
        finalize(self, _close, descriptor).atexit = False  # spans that end in other exit handlers are still written

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at `offset`, read from the open file. Raises OSError."""
        return os.pread(self.descriptor, size, offset)

    def hand_out(self, size: int) -> None:
        """Count bytes whose trajectory the app has got; after the last one, note the file as taken."""
        self._handed_out += size
        self._note()

    def leave(self) -> None:
        """Say that nothing more will be written to the file."""
        self._is_left = True
        self._note()

    def _note(self) -> None:
        if self._is_left and self.size and self._handed_out >= self.size:
            note_taken({self.path: self.size})

    def __str__(self) -> str:
        return str(self.path)


class HeldText(LineFile):
    """A line that only memory has, in the place of a file: its SpooledLine keeps the text alive."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def read(self, offset: int, size: int) -> bytes:
        """The bytes of the text from `offset` on."""
        return self._text[offset : offset + size]

    def __str__(self) -> str:
        return "memory"


@dataclass(frozen=True, slots=True)
class FoundFile(LineFile):
    """A file that another process writes.

    It is opened for each read only: there may be more files than a process may have open.
    """

    path: Path

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at `offset`. Raises OSError, also where the file was removed."""
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
    """The text of a line, with its newline, and its location in the spool."""

    text: bytes
    location: SpooledLine


class NewLines:
    """The new lines of the files below `folder` (a run, or a spool with all runs), while processes write to them."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.read: dict[Path, int] = {}
        """How many bytes of each file were read."""

    def take(self) -> Iterator[NewLine]:
        """Iterate over the new lines, file by file. A line that was returned is not returned again. Raises OSError."""
        for path in spool_files(self._folder):
            for line in lines_of(path, self.read.get(path, 0)):
                self.read[path] = line.location.offset + line.location.size
                yield line


def spool_files(folder: Path) -> list[Path]:
    """The spool files below `folder` (a run, or a spool with all runs), the oldest first."""
    return sorted(folder.rglob(f"*{SUFFIX}"))


def lines_of(path: Path, offset: int = 0) -> Iterator[NewLine]:
    """Iterate over the whole lines of a file from an offset on; none if the file was removed. Raises OSError."""
    file = FoundFile(path)
    try:
        end = path.stat().st_size  # lines that are written meanwhile wait for the next look: this one must end
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
