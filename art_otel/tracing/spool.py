"""Spool: ended spans on disk, a line each, so that a crash costs nothing that had ended.

Invariant: what `write` took is in the file when it returns (the file system has it, also when the process is killed),
or it is counted as dropped. A line is written whole or taken back. Files belong to one process, are 0600 and are
themselves a dump that `art-otel convert` reads. Nothing here raises for what the disk does.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

SUFFIX: Final = ".otlp.jsonl"
_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_PAUSE: Final = 0.05
_REST: Final = 1.0
"""Seconds between two tries once a disk has kept a write waiting for longer than it may."""


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
        self._size = 0
        self._written = self._dropped = self._bytes = 0
        self._refused_at: float | None = None
        self._pid = os.getpid()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    @property
    def counts(self) -> SpoolCounts:
        """Since this process began (a forked child counts anew)."""
        return SpoolCounts(written=self._written, dropped=self._dropped, bytes=self._bytes)

    def write(self, line: bytes) -> bool:
        """Append a line; False when it was dropped."""
        lock = self._lock
        if not lock.acquire(timeout=self._patience + _REST):  # another thread hangs in its own write
            self._dropped += 1
            return False
        try:
            written = self._try(lambda: self._append(line))
            if written:
                self._written += 1
                self._bytes += len(line)
            else:
                self._dropped += 1
            return written
        finally:
            lock.release()

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
        """Close the file; a later write opens another."""
        with self._lock:
            self._close()

    def _try(self, append: Callable[[], None]) -> bool:
        """Append, trying again while the patience lasts."""
        if self._refused_at is not None and time.monotonic() - self._refused_at < _REST:
            return False
        waits = self._refused_at is None
        deadline = time.monotonic() + self._patience
        while True:
            try:
                append()
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
                return False
            if self._refused_at is not None:
                logger.warning("art-otel: the spool in %s can be written again, %d lost", self.folder, self._dropped)
                self._refused_at = None
            return True

    def _append(self, line: bytes) -> None:
        if self._file is None or (self._size and self._size + len(line) > self._max_file_bytes):
            self._close()
            self._open()
        file = self._file
        if file is None:  # pragma: no cover # _open has set it
            return
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError:
            os.ftruncate(file, self._size)
            raise
        self._size += len(line)

    def _open(self) -> None:
        self.folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        name = f"{time.time_ns()}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
        self._file = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _MODE)
        self._size = 0

    def _close(self) -> None:
        if self._file is not None:
            try:
                os.close(self._file)
            except OSError as error:
                logger.warning("art-otel: a file of the spool in %s: %s", self.folder, error)
            self._file = None

    def _start_anew(self) -> None:
        """After a fork: the file is the parent's, and the lock may be held by a thread that is not here."""
        self._lock = threading.Lock()
        self._close()
        self._written = self._dropped = self._bytes = 0
