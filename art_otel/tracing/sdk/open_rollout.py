"""OpenRollout: the lines and counts of one rollout that the live assembler holds.

Invariant: while somebody waits for it no line is lost: each is on the disk and read again, or in memory.
"""

import threading
from dataclasses import dataclass, field

from art_otel.spool import SpooledLine
from art_otel.tracing.sdk.live_calls import LiveCalls


@dataclass(kw_only=True, slots=True)
class OpenRollout:
    """`is_here` says that its root started in this process.

    `is_open` says that its root runs, here or, as the code that began it goes on here too, in the process that this one
    was forked from. `kept` is how often somebody waits for it. `size` is the bytes of those `lines` that are in memory.
    `live` are its calls so far, for whoever asks while it runs, one at a time under `reading`.
    """

    parent: str | None
    opened: float
    is_here: bool = False
    is_open: bool = False
    lines: list[bytes | SpooledLine] = field(default_factory=list[bytes | SpooledLine])
    size: int = 0
    started: int = 0
    ended: int = 0
    closed: float | None = None
    forgotten: bool = False
    kept: int = 0
    live: LiveCalls | None = None
    reading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def done(self) -> bool:
        """Whether all that started here has ended, and nobody's code runs in it any more."""
        return not self.is_open and self.ended >= self.started

    def hold(self, line: bytes, stored: SpooledLine | None) -> int:
        """Hold a line and return how many bytes of memory that takes. `stored` is where it can be read again."""
        if not line or self.forgotten:
            return 0
        if self.kept and stored is not None:
            self.lines.append(stored)
            return 0
        self.lines.append(line)
        self.size += len(line)
        return len(line)

    def forget(self) -> int:
        """Hold no line any more and return how many bytes of memory that frees."""
        freed = self.size
        self.lines, self.size, self.forgotten, self.live = [], 0, True, None
        return freed
