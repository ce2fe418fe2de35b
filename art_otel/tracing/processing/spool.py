"""Spool: ended spans on disk, a line each, so that a crash costs nothing that had ended.

Invariant: what `write` took is in the file when it returns (the file system has it, also when the process is killed),
or it is counted as dropped. A line is written whole or taken back. A file that somebody removes is noticed within a
second of writing and at its end; what was written to it after that moves to a new one. Files belong to one process, are
0600 and are themselves a dump that `art-otel convert` reads. Nothing here raises for what the disk does.
"""

import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from art_otel.tracing.processing.stored_line import SpooledLine

logger = logging.getLogger(__name__)

SUFFIX: Final = ".otlp.jsonl"
_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_PAUSE: Final = 0.05
_REST: Final = 1.0
"""Seconds between two tries once a disk has kept a write waiting for longer than it may."""
_LOOK: Final = 1.0
"""Seconds between two looks whether the file is still in its folder: a look costs half a write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpoolCounts:
    """What became of the lines given to one process's spool."""

    written: int
    dropped: int
    bytes: int


class Spool:
    """Appends lines to files below `folder`, a new file every `max_file_bytes`.

    A write waits up to `patience` seconds for a disk that refuses; then the line is dropped and counted, and further
    lines are dropped at once until the disk takes one again (it is asked every second).
    """

    def __init__(self, folder: Path, *, max_file_bytes: int = 64 << 20, patience: float = 5.0) -> None:
        self.folder = folder
        self._max_file_bytes = max_file_bytes
        self._patience = patience
        self._lock = threading.Lock()
        self._file: int | None = None
        self._path = folder
        self._size = 0
        self._seen = 0
        """How much of the file was written when it was last seen in its folder."""
        self._looked_at = 0.0
        self._counts_links = True
        self._was_removed = False
        self._written = self._dropped = self._bytes = 0
        self._refused_at: float | None = None
        self._pid = os.getpid()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    @property
    def counts(self) -> SpoolCounts:
        """Since this process began (a forked child counts anew)."""
        return SpoolCounts(written=self._written, dropped=self._dropped, bytes=self._bytes)

    def write(self, line: bytes) -> SpooledLine | None:
        """Append a line and say where it stands; None when it was dropped."""
        lock = self._lock
        if not lock.acquire(timeout=self._patience + _REST):  # another thread hangs in its own write
            self._dropped += 1
            return None
        try:
            written = self._try(line)
            if written is None:
                self._dropped += 1
            else:
                self._written += 1
                self._bytes += len(line)
            return written
        finally:
            lock.release()

    def flush(self, timeout: float | None = None) -> bool:
        """Whether everything given so far is on the disk itself: no line was dropped, and the disk said so in time."""
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
            self._leave_removed()
            if self._file is not None:
                os.fsync(self._file)
        except OSError as error:
            logger.warning("art-otel: the spool in %s cannot be flushed: %s", self.folder, error)
            return False
        finally:
            self._lock.release()
        return self._dropped == 0

    def close(self) -> None:
        """Close the file; a later write opens another. A file that another thread hangs in is left to the process."""
        if self._lock.acquire(timeout=self._patience + _REST):
            try:
                self._leave_removed(at_end=True)
            except OSError as error:
                logger.warning("art-otel: spans are lost, the spool in %s cannot be written: %s", self.folder, error)
            finally:
                self._close()
                self._lock.release()

    def _try(self, line: bytes) -> SpooledLine | None:
        """Append, trying again while the patience lasts."""
        now = time.monotonic()
        if self._refused_at is not None and now - self._refused_at < _REST:
            return None
        waits = self._refused_at is None
        deadline = now + self._patience
        while True:
            try:
                if now - self._looked_at >= _LOOK:
                    self._looked_at = now
                    self._leave_removed()
                written = self._append(line)
            except OSError as error:
                self._close()
                if waits and time.monotonic() < deadline:
                    time.sleep(_PAUSE)
                    continue
                if self._refused_at is None:
                    logger.warning(
                        "art-otel: spans are lost, the spool in %s cannot be written: %s", self.folder, error
                    )
                self._refused_at = time.monotonic()
                return None
            if self._refused_at is not None:
                logger.warning("art-otel: the spool in %s can be written again, %d lost", self.folder, self._dropped)
                self._refused_at = None
            return written

    def _append(self, line: bytes) -> SpooledLine:
        if self._size and self._size + len(line) > self._max_file_bytes:
            self._leave_removed()
            self._close()
        file = self._open() if self._file is None else self._file
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError:
            os.ftruncate(file, self._size)
            raise
        written = SpooledLine(path=self._path, offset=self._size, size=len(line))
        self._size += len(line)
        return written

    def _open(self) -> int:
        self.folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        name = f"{time.time_ns()}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
        self._path = self.folder.absolute() / name
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, _MODE)
        self._size = self._seen = 0
        self._counts_links = os.fstat(self._file).st_nlink > 0  # some file systems of a network never do
        if self._was_removed:
            logger.warning(
                "art-otel: a file of the spool in %s was removed; the next spans go to a new one", self.folder
            )
            self._was_removed = False
        return self._file

    def _leave_removed(self, *, at_end: bool = False) -> None:
        """Leave a file that somebody removed, with the lines that were written after that."""
        file = self._file
        if file is None or not self._counts_links:
            return
        about = os.fstat(file)
        if about.st_nlink:
            self._seen = self._size
            return
        # Removing changes the first time only, writing both; in one tick of the clock nobody knows which was last.
        rest = b"" if about.st_ctime_ns > about.st_mtime_ns else _tail(file, self._seen, self._size)
        self._was_removed = True
        self._close()
        if rest and at_end:  # who removes a folder at the end wants it gone
            self._lose(rest)
            logger.warning("art-otel: the spool in %s was removed, and the last spans with it", self.folder)
            return
        try:
            if rest:
                self._append(rest)
        except OSError:
            self._lose(rest)
            raise

    def _lose(self, lines: bytes) -> None:
        """Count lines that were written as dropped."""
        lost = lines.count(b"\n")
        self._written -= lost
        self._dropped += lost
        self._bytes -= len(lines)

    def _close(self, *, of_parent: bool = False) -> None:
        """Close the file; one that nothing could be written to goes, if it is this process's."""
        if self._file is not None:
            try:
                os.close(self._file)
                if not self._size and not of_parent:
                    self._path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("art-otel: a file of the spool in %s: %s", self.folder, error)
            self._file = None
            self._size = 0

    def _start_anew(self) -> None:
        """After a fork: the file is the parent's, and the lock may be held by a thread that is not here."""
        self._lock = threading.Lock()
        self._close(of_parent=True)
        self._written = self._dropped = self._bytes = 0


def _tail(file: int, start: int, end: int) -> bytes:
    """What stands between two places of a file. Writing appends, so that it does not mind where reading was."""
    os.lseek(file, start, os.SEEK_SET)
    pieces: list[bytes] = []
    while start < end and (piece := os.read(file, end - start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)
