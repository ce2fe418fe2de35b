"""SpoolWriter appends lines to the files of one process; MemorySpool keeps them in memory.

Invariant: when `write` returns, the line is in the file (the file system has it, even if the process is killed now), or
the line is counted as dropped. Half a line is taken back. A faulty or full disk never raises.
"""

import contextlib
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from art_otel.forks import after_fork
from art_otel.spool.line import HeldText, SpooledLine, WrittenFile
from art_otel.spool.runs import SUFFIX

logger = logging.getLogger(__name__)

_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_LONGEST_WAIT: Final = 5.0
"""Seconds that a line waits for another thread whose write hangs."""
_LOST: Final = ("spans are lost", "lines were lost")
_REFUSED: Final = ("exports are refused, and their senders will send them again", "exports were refused")
"""Two texts for the log: while the disk refuses, and once it takes lines again (behind the number of lines)."""
_PAUSE: Final = 1.0
"""Seconds between two tries to write to a disk that refused, and between two looks whether the file is still there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpoolCounts:
    """How many lines of one process were written and how many dropped; `bytes` is the size of those written."""

    written: int = 0
    dropped: int = 0
    bytes: int = 0


class Spool(Protocol):
    """Takes the lines of one process: a `SpoolWriter` or a `MemorySpool`."""

    @property
    def counts(self) -> SpoolCounts:
        """The counts since this process began (a forked child begins at 0)."""
        ...

    def write(self, line: bytes) -> SpooledLine | None:
        """Take a line, with its newline, and return where it stands; None if the line was dropped."""
        ...

    def flush(self, timeout: float | None = None) -> bool:
        """Write everything to the disk itself, within `timeout` seconds; False if that failed or a line was dropped."""
        ...

    def close(self) -> None:
        """Close the open file. A later `write` works and opens another."""
        ...


class MemorySpool:
    """Keeps each line in memory as long as its SpooledLine lives; no line reaches a disk."""

    def __init__(self) -> None:
        self._start_anew()
        after_fork(self._start_anew)

    @property
    def counts(self) -> SpoolCounts:
        """The written lines; a few too few where threads wrote at the same time, since there is no lock."""
        return SpoolCounts(written=self._written, bytes=self._bytes)

    def write(self, line: bytes) -> SpooledLine:
        """Take a line: the returned place of the line holds its text."""
        self._written += 1
        self._bytes += len(line)
        return SpooledLine(file=HeldText(line), offset=0, size=len(line))

    def flush(self, timeout: float | None = None) -> bool:  # noqa: ARG002 # there is nothing to wait for
        """True: there is no disk that could lack a line."""
        return True

    def close(self) -> None:
        """Nothing is open."""

    def _start_anew(self) -> None:
        self._written = self._bytes = 0


class SpoolWriter:
    """Appends lines to files in `folder`, a new file every `max_file_bytes`. Any thread may use it.

    A line that the disk refuses is dropped and counted. After a refusal the lines of one second are dropped without a
    try, so that a failing disk does not slow the app down. `sent_again` says that senders repeat what was dropped (as
    to a receiver): the log then says so, instead of that spans are lost.
    """

    def __init__(self, folder: Path, *, max_file_bytes: int = 64 << 20, sent_again: bool = False) -> None:
        self.folder = folder
        self._max_file_bytes = max_file_bytes
        self._costs, self._cost = _REFUSED if sent_again else _LOST
        self._file: WrittenFile | None = None
        self._unsynced: list[Path] = []
        self._looked_at = 0.0
        self._refused_at: float | None = None
        self._start_anew()
        after_fork(self._start_anew)

    @property
    def counts(self) -> SpoolCounts:
        """The counts since this process began (a forked child begins at 0)."""
        return SpoolCounts(written=self._written, dropped=self._dropped, bytes=self._bytes)

    def write(self, line: bytes) -> SpooledLine | None:
        """Append a line, with its newline, and return where it stands; None if the line was dropped."""
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
        """Sync to the disk itself, within `timeout` seconds; False if that failed or if any line was dropped so far."""
        return self.sync(timeout) and self._dropped == 0

    def sync(self, timeout: float | None = None) -> bool:
        """Sync all written lines to the disk itself (fsync); False if that failed or took longer than `timeout`."""
        seconds = -1 if timeout is None else timeout
        # A second caller must wait: the file that it has to sync may be in the hands of the first one.
        if not self._sync_lock.acquire(timeout=seconds):
            return False
        try:
            return self._sync(seconds)
        except OSError as error:
            logger.warning("art-otel: the spool in %s cannot be flushed: %s", self.folder, error)
            return False
        finally:
            self._sync_lock.release()

    def _sync(self, seconds: float) -> bool:
        """Sync the lines written so far. Raises OSError.

        `_lock` is not held during fsync, which may take long: other threads go on writing. Hence the copy of the file
        descriptor, which stays valid if the file is closed meanwhile.
        """
        if not self._lock.acquire(timeout=seconds):
            return False
        try:
            descriptor = None if self._file is None else os.dup(self._file.descriptor)
            paths, self._unsynced = self._unsynced, []
        finally:
            self._lock.release()
        try:
            while paths:
                _sync_path(paths[-1])
                paths.pop()
            if descriptor is not None:
                os.fsync(descriptor)
        finally:
            self._unsynced += paths  # those that the disk refused are tried again next time
            if descriptor is not None:
                os.close(descriptor)
        return True

    def close(self) -> None:
        """Close the file; a later write opens another. If a write of another thread hangs, the file stays open."""
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
                logger.warning("art-otel: %s: the spool in %s cannot be written: %s", self._costs, self.folder, error)
            self._refused_at = time.monotonic()
            return None
        if self._refused_at is not None:
            logger.warning(
                "art-otel: the spool in %s can be written again; %d %s", self.folder, self._dropped, self._cost
            )
            self._refused_at = None
        return written

    def _append(self, line: bytes) -> SpooledLine:
        file = self._file
        if file is not None and file.size and file.size + len(line) > self._max_file_bytes:
            self._unsynced.append(file.path)
            self._close()
        file = self._file or self._open()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(file.descriptor, rest) :]
            written = SpooledLine(file=file, offset=file.size, size=len(line))
            file.size += len(line)
        except BaseException:  # also Ctrl-C: the next line would be appended to half a line, and both be unreadable
            os.ftruncate(file.descriptor, file.size)
            raise
        return written

    def _open(self) -> WrittenFile:
        self._file = _file_in(self.folder)
        # The names of a new file and of a new folder are on the disk only after a sync of the folders above them.
        self._unsynced += [self.folder, self.folder.parent]
        return self._file

    def _leave_removed(self) -> None:
        """Go on in a new file if this one was deleted: lines written to a deleted file are lost."""
        if self._file is not None and not self._file.path.exists():
            self._close()
            logger.warning("art-otel: a file of the spool in %s was deleted, and its spans are lost", self.folder)

    def _close(self, *, of_parent: bool = False) -> None:
        """Stop writing to the file, which stays open while lines of it are held. An empty file is removed.

        `of_parent`: after a fork the file is the parent process's and must be left as it is.
        """
        file, self._file = self._file, None
        if file is None or of_parent:
            return
        file.leave()
        if not file.size:
            try:
                file.path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("art-otel: a file of the spool in %s: %s", self.folder, error)

    def _start_anew(self) -> None:
        """Begin, or begin again after a fork.

        After a fork the file is the parent's, and the lock may be held by a thread that the child does not have.
        """
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._close(of_parent=True)
        self._written = self._dropped = self._bytes = 0


def _file_in(folder: Path) -> WrittenFile:
    folder.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)  # its own mode is not for parents
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    path = folder.absolute() / f"{time.time_ns()}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
    return WrittenFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, _MODE), path)


def _sync_path(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk itself; nothing where the path was removed."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
