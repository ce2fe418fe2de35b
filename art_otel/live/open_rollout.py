"""OpenRollout: the lines and counts of one rollout that this process records.

Invariant: while somebody waits for it no line is lost: the disk has each, or, where it refused one, memory.
"""

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from art_otel.live.assembly import Line
from art_otel.live.running_calls import RunningCalls


class SpanCounts(NamedTuple):
    """Spans of a rollout besides its root, in this process."""

    started: int
    ended: int


@dataclass(kw_only=True, slots=True)
class OpenRollout:
    """`is_here` says that its root started in this process.

    `is_open` says that its root runs, here or, as the code that began it goes on here too, in the process that this one
    was forked from. `parent` is the rollout that it is nested in. `waiting` is how many wait for it. `is_counted_only`
    says that no line of it is held, `has_llm_calls` that a span of it is an LLM call. `calls` are its calls so far, for
    whoever asks while it runs, one at a time under `reading`.
    """

    parent: str | None
    opened: float
    is_here: bool = False
    is_open: bool = False
    lines: list[Line] = field(default_factory=list[Line])
    started: int = 0
    ended: int = 0
    closed: float | None = None
    is_counted_only: bool = False
    has_llm_calls: bool = False
    waiting: int = 0
    calls: RunningCalls | None = None
    reading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_ended(self) -> bool:
        """Whether all that started here has ended, and nobody's code runs in it any more."""
        return not self.is_open and self.ended >= self.started

    @property
    def counts(self) -> SpanCounts:
        """How many spans it has so far."""
        return SpanCounts(self.started, self.ended)

    def hold(self, line: Line) -> None:
        """Hold a line. What the disk refused is held only while somebody waits: there may be no end to it."""
        if not self.is_counted_only and (self.waiting or not isinstance(line, bytes)):
            self.lines.append(line)

    def release(self) -> None:
        """Nobody waits any more: let go what only memory has."""
        self.lines = [line for line in self.lines if not isinstance(line, bytes)]
        self.calls = None

    def count_only(self) -> None:
        """Hold no line any more."""
        self.lines, self.is_counted_only, self.calls = [], True, None
