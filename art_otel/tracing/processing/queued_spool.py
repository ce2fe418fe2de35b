"""QueuedSpool: a spool behind a bounded queue, for apps that rather lose spans than wait for a disk (policy `drop`).

Invariant: `write` never waits. A line is either in the queue, where a thread writes it, or dropped and counted; what is
queued when the process is killed is lost, which is the price of this policy.
"""

import contextlib
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Final

from art_otel.tracing.processing.spool import Spool, SpoolCounts

if TYPE_CHECKING:
    from art_otel.tracing.processing.stored_line import SpooledLine

MAX_LINES: Final = 10_000
_STEP: Final = 0.01
_LONGEST_END: Final = 4.0


class QueuedLine:
    """A line on its way to the disk. Its text is in memory until then, and stays there where it was dropped."""

    __slots__ = ("_held",)

    def __init__(self, text: bytes) -> None:
        self._held: bytes | SpooledLine = text

    def read(self) -> bytes:
        """As StoredLine."""
        held = self._held
        return held if isinstance(held, bytes) else held.read()

    def write_to(self, spool: Spool) -> None:
        """Put it on the disk."""
        if isinstance(self._held, bytes):
            self._held = spool.write(self._held) or self._held


class QueuedSpool:
    """As Spool. `max_lines` bounds the queue."""

    def __init__(self, spool: Spool, *, max_lines: int = MAX_LINES) -> None:
        self.folder = spool.folder
        self._spool = spool
        self._max_lines = max_lines
        self._dropped = 0
        self._start_anew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    @property
    def counts(self) -> SpoolCounts:
        """Of this process; lines in the queue are neither written nor dropped yet."""
        inner = self._spool.counts
        return SpoolCounts(written=inner.written, dropped=inner.dropped + self._dropped, bytes=inner.bytes)

    def write(self, line: bytes) -> QueuedLine | None:
        """Queue a line; None when it was dropped."""
        if self._thread is None:
            self._start_thread()
        queued = QueuedLine(line)
        try:
            self._lines.put_nowait(queued)
        except queue.Full:
            self._dropped += 1
            return None
        return queued

    def flush(self, timeout: float | None = None) -> bool:
        """Whether everything given so far is on the disk."""
        deadline = time.monotonic() + (_LONGEST_END if timeout is None else timeout)
        while self._lines.unfinished_tasks:
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP)
        return self._spool.flush(max(deadline - time.monotonic(), 0.0)) and self._dropped == 0

    def close(self) -> None:
        """Write what is queued, as far as the disk takes it in a few seconds."""
        self.flush()
        self._spool.close()

    def _start_anew(self) -> None:
        self._lines: queue.Queue[QueuedLine] = queue.Queue(self._max_lines)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(self._lines,), name="art-otel", daemon=True)
                with contextlib.suppress(RuntimeError):  # the interpreter is ending; `close` drops what is left
                    self._thread.start()

    def _run(self, lines: "queue.Queue[QueuedLine]") -> None:
        while True:
            lines.get().write_to(self._spool)
            lines.task_done()
