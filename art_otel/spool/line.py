"""SpooledLine: where a line stands, mostly on the disk, so that memory need not hold it; NewLines: what a spool got.

Invariant: a line that this process wrote can be read as long as somebody holds it, whatever becomes of the file's name.
Of lines that other processes write, each is given once, whole: one that is still being written is left for the next
time, and a file that is removed meanwhile gives what was read of it.
"""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple, Protocol
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

    def cut(self, sizes: Sequence[int]) -> "list[SpooledLine]":
        """Where the lines of these sizes stand that were written as one."""
        return [
            SpooledLine(file=self.file, offset=offset, size=size)
            for offset, size in zip(accumulate(sizes, initial=self.offset), sizes, strict=False)
        ]


class WrittenFile:
    """A file that this process writes to; it is closed when nobody holds it or a line of it any more."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self.path = path
        finalize(self, _close, descriptor).atexit = False  # what ends at exit is still written

    def read(self, offset: int, size: int) -> bytes:
        """As LineFile."""
        return os.pread(self.descriptor, size, offset)

    def __str__(self) -> str:
        return str(self.path)


class HeldText:
    """A line that only memory has, as a file of its own."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def read(self, offset: int, size: int) -> bytes:
        """As LineFile."""
        return self._text[offset : offset + size]

    def __str__(self) -> str:
        return "memory"


class RecentLines:
    """The lines that were read last, up to `max_bytes` of them: most are asked for soon again, each a wait less."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._texts: OrderedDict[tuple[Path, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, path: Path, offset: int, text: bytes) -> None:
        """Hold a line, and let go of the oldest."""
        with self._lock:
            self._texts[path, offset] = text
            self._bytes += len(text)
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._texts.popitem(last=False)[1])

    def get(self, path: Path, offset: int) -> bytes | None:
        """The line that begins there; None where it is not held."""
        return self._texts.get((path, offset))


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that other processes write to; it is open only while it is read, for there may be many."""

    path: Path
    recent: RecentLines | None = field(default=None, compare=False, repr=False)

    def read(self, offset: int, size: int) -> bytes:
        """As LineFile."""
        text = None if self.recent is None else self.recent.get(self.path, offset)
        if text is not None and len(text) == size:
            return text
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


SUFFIX: Final = ".otlp.jsonl"
_RECENT_BYTES: Final = 16 << 20


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
        self._recent = RecentLines(_RECENT_BYTES)

    def take(self) -> Iterator[NewLine]:
        """Give what is new, file by file; what is given counts as taken. Raises OSError for what cannot be read."""
        for path in spool_files(self._folder):
            for line in lines_of(path, self.read.get(path, 0), self._recent):
                self.read[path] = line.location.offset + line.location.size
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
