"""SpoolWriter: appends lines to the files of one process.

Invariant: what `write` took is in the file when it returns (the file system has it, also when the process is killed),
or it is counted as dropped. A line is written whole or taken back. Nothing here raises for what the disk does.
"""

import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from art_otel.spool.line import SpooledLine

logger = logging.getLogger(__name__)

SUFFIX: Final = ".otlp.jsonl"
_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_LONGEST_WAIT: Final = 5.0
"""Seconds that a line waits for another thread whose write hangs."""
_PAUSE: Final = 1.0
"""Seconds between two tries to write to a disk that refused, and between two looks whether the file is still there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpoolCounts:
    """What became of the lines given to one process's spool."""

    written: int = 0
    dropped: int = 0
    bytes: int = 0


class SpoolWriter:
    """Appends lines to files in `folder`, a new file every `max_file_bytes`.

    A line that the disk refuses is dropped and counted; so are those of the second after it, then the disk is asked
    again.
    """

    def __init__(self, folder: Path, *, max_file_bytes: int = 64 << 20) -> None:
        self.folder = folder
        self._max_file_bytes = max_file_bytes
        self._file: int | None = None
        self._path = folder
        self._size = 0
        self._looked_at = 0.0
        self._refused_at: float | None = None
        self._start_anew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    @property
    def counts(self) -> SpoolCounts:
        """Since this process began (a forked child counts anew)."""
        return SpoolCounts(written=self._written, dropped=self._dropped, bytes=self._bytes)

    def write(self, line: bytes) -> SpooledLine | None:
        """Append a line and say where it stands; None when it was dropped."""
        if not self._lock.acquire(timeout=_LONGEST_WAIT):
            self._dropped += 1
            return None
        try:
            written = self._try(line)
        finally:
            self._lock.release()
        if written is None:
            self._dropped += 1
        else:
            self._written += 1
            self._bytes += len(line)
        return written

    def flush(self, timeout: float | None = None) -> bool:
        """Whether everything given so far is on the disk itself: no line was dropped, and the disk said so in time."""
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
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
        if self._lock.acquire(timeout=_LONGEST_WAIT):
            self._close()
            self._lock.release()

    def _try(self, line: bytes) -> SpooledLine | None:
        now = time.monotonic()
        if self._refused_at is not None and now - self._refused_at < _PAUSE:
            return None
        try:
            if now - self._looked_at >= _PAUSE:
                self._looked_at = now
                self._leave_removed()
            written = self._append(line)
        except OSError as error:
            self._close()
            if self._refused_at is None:
                logger.warning("art-otel: spans are lost, the spool in %s cannot be written: %s", self.folder, error)
            self._refused_at = time.monotonic()
            return None
        if self._refused_at is not None:
            logger.warning("art-otel: the spool in %s can be written again, %d lost", self.folder, self._dropped)
            self._refused_at = None
        return written

    def _append(self, line: bytes) -> SpooledLine:
        if self._size and self._size + len(line) > self._max_file_bytes:
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
        self.folder.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)  # its own mode is not for parents
        self.folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        name = f"{time.time_ns()}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
        self._path = self.folder.absolute() / name
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _MODE)
        self._size = 0
        return self._file

    def _leave_removed(self) -> None:
        """Go on in a new file where somebody removed this one: what would be written to it is lost."""
        if self._file is not None and not self._path.exists():
            self._close()
            logger.warning("art-otel: a file of the spool in %s was removed with what was in it", self.folder)

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
        """Also after a fork: the file is the parent's, and the lock may be held by a thread that is not here."""
        self._lock = threading.Lock()
        self._close(of_parent=True)
        self._written = self._dropped = self._bytes = 0
