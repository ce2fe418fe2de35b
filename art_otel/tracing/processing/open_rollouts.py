"""OpenRollouts: the live assembler, which holds the lines of running rollouts until they are done.

Invariant: a trajectory is built from the very lines that the spool holds, by the reader of dumps, so live and dump give
the same. Memory is bounded in rollouts, bytes and age; what is let go is counted and logged, and stays in the spool.
"""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from art_otel.tracing.rollouts.recorder import Counts

if TYPE_CHECKING:
    from art_otel.trajectories import Trajectory

logger = logging.getLogger(__name__)

NAME: Final = "live"


@dataclass(kw_only=True, slots=True)
class _Rollout:
    """One rollout. `lines` are those of its ended spans and of starts; `kept` says how often somebody waits for it."""

    parent: str | None
    opened: float
    lines: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    started: int = 0
    ended: int = 0
    root_started: bool = False
    root_ended: bool = False
    closed: float | None = None
    forgotten: bool = False
    kept: int = 0

    @property
    def done(self) -> bool:
        """Whether its root and everything else that started has ended."""
        return self.root_ended and self.ended >= self.started


class OpenRollouts:
    """Rollouts by id. `grace` is how many seconds one that is done stays, for late spans and late readers."""

    def __init__(
        self,
        *,
        max_rollouts: int = 10_000,
        max_bytes: int = 128 << 20,
        max_age: float = 6 * 3600.0,
        grace: float = 2.0,
    ) -> None:
        self.evicted = 0
        self.grace = grace
        self._max_rollouts = max_rollouts
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._rollouts: dict[str, _Rollout] = {}
        self._done: dict[str, None] = {}
        self._bytes = 0
        self._changed = threading.Condition()

    def started(self, rollout_id: str, *, is_root: bool, parent: str | None = None) -> None:
        """A span of the rollout started. `parent` is the rollout that a rollout's own span is nested in."""
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is None:
                self._make_room()
                rollout = self._rollouts[rollout_id] = _Rollout(parent=parent, opened=time.monotonic())
            if is_root:
                rollout.root_started = True
                rollout.parent = parent
            else:
                rollout.started += 1
            self._done.pop(rollout_id, None)

    def add(self, rollout_id: str, line: bytes) -> None:
        """Hold a line that ends nothing: of a start, of a span around the rollout, of a reward given later."""
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                self._hold(rollout, line)

    def missed(self, rollout_id: str | None) -> None:
        """A span started that could not be recorded, of any rollout if nobody knows which: count it as missing."""
        with self._changed:
            known = list(self._rollouts) if rollout_id is None else [rollout_id]
            for each in known:
                rollout = self._rollouts.setdefault(each, _Rollout(parent=None, opened=time.monotonic()))
                rollout.started += 1

    def ended(self, rollout_id: str, line: bytes, *, is_root: bool) -> None:
        """A span of the rollout ended. One that is done is opened again by a late span."""
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is None:
                return
            if is_root:
                rollout.root_ended = True
            else:
                rollout.ended += 1
            self._hold(rollout, line)
            if rollout.done:
                self._close(rollout_id, rollout)
                self._changed.notify_all()
            self._let_go()

    def keep(self, rollout_id: str) -> None:
        """As Recorder."""
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                rollout.kept += 1
                self._done.pop(rollout_id, None)

    def release(self, rollout_id: str) -> None:
        """As Recorder."""
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None and rollout.kept:
                rollout.kept -= 1
                if rollout.done:
                    self._close(rollout_id, rollout)

    def counts(self, rollout_id: str) -> Counts | None:
        """As Recorder."""
        rollout = self._rollouts.get(rollout_id)
        return None if rollout is None else Counts(rollout.started, rollout.ended)

    def wait(self, rollout_id: str, timeout: float) -> bool:
        """As Recorder."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_done(rollout_id), timeout)

    def trajectory(self, rollout_id: str) -> "Trajectory | None":
        """As Recorder. The lines of rollouts around it are read too, because they hold its spans' parents."""
        with self._changed:
            lines = [line for known in self._with_parents(rollout_id) for line in known.lines]
        return _build(rollout_id, lines) if lines else None

    def start_anew(self) -> None:
        """After a fork: what runs in the parent is the parent's."""
        self._changed = threading.Condition()
        self._rollouts.clear()
        self._done.clear()
        self._bytes = 0

    def _close(self, rollout_id: str, rollout: _Rollout) -> None:
        """Its grace begins, if nobody keeps it."""
        rollout.closed = time.monotonic()
        self._done.pop(rollout_id, None)
        if not rollout.kept:
            self._done[rollout_id] = None

    def _is_done(self, rollout_id: str) -> bool:
        rollout = self._rollouts.get(rollout_id)
        return rollout is None or rollout.done

    def _with_parents(self, rollout_id: str | None) -> Iterator[_Rollout]:
        seen: set[str] = set()
        while rollout_id is not None and rollout_id not in seen and rollout_id in self._rollouts:
            seen.add(rollout_id)
            yield self._rollouts[rollout_id]
            rollout_id = self._rollouts[rollout_id].parent

    def _hold(self, rollout: _Rollout, line: bytes) -> None:
        if line and not rollout.forgotten:
            rollout.lines.append(line)
            rollout.size += len(line)
            self._bytes += len(line)

    def _let_go(self) -> None:
        """Drop what is done and had its grace; then, beyond the bounds, the oldest."""
        now = time.monotonic()
        while self._done:
            oldest = next(iter(self._done))
            rollout = self._rollouts.get(oldest)
            if rollout is not None and rollout.closed is not None and now - rollout.closed < self.grace:
                break
            del self._done[oldest]
            self._drop(oldest)
        while self._bytes > self._max_bytes:
            self._forget_lines(next(known for known in self._rollouts.items() if known[1].size))
        oldest = next(iter(self._rollouts), None)
        if oldest is not None and now - self._rollouts[oldest].opened > self._max_age:
            self._evict("it is older than a rollout may be")

    def _make_room(self) -> None:
        if len(self._rollouts) >= self._max_rollouts:
            self._evict("there are more than may be open")

    def _evict(self, because: str) -> None:
        rollout_id = next(iter(self._done), None) or next(iter(self._rollouts))
        self._done.pop(rollout_id, None)
        self._drop(rollout_id)
        self._tell(rollout_id, because)

    def _forget_lines(self, known: tuple[str, _Rollout]) -> None:
        """Let go of a rollout's lines; its spans are counted on, for the certificate."""
        rollout_id, rollout = known
        self._bytes -= rollout.size
        rollout.lines, rollout.size, rollout.forgotten = [], 0, True
        self._tell(rollout_id, "it is more than the bytes that may be held")

    def _tell(self, rollout_id: str, because: str) -> None:
        self.evicted += 1
        if self.evicted & (self.evicted - 1) == 0:  # at 1, 2, 4, 8, … so that a flood does not fill the log
            logger.warning(
                "art-otel: rollout %s is no longer assembled live, %s (%d so far); its spans are in the spool",
                rollout_id,
                because,
                self.evicted,
            )

    def _drop(self, rollout_id: str) -> None:
        rollout = self._rollouts.pop(rollout_id, None)
        self._bytes -= 0 if rollout is None else rollout.size


def _build(rollout_id: str, lines: list[bytes]) -> "Trajectory | None":
    from art_otel.sources import FileAccount, Limits, Reading, read_lines_of  # noqa: PLC0415 # only who asks reads
    from art_otel.spans import Damage, Span  # noqa: PLC0415
    from art_otel.trajectories import SpanGroup, build_trajectories  # noqa: PLC0415

    reading = Reading(path=NAME, limits=Limits(), account=FileAccount())
    records = list(read_lines_of(lines, reading))
    group = SpanGroup(
        spans=[record for record in records if isinstance(record, Span)],
        damages=[record for record in records if isinstance(record, Damage)],
    )
    found = build_trajectories(group).trajectories
    return next((trajectory for trajectory in found if trajectory.rollout_id == rollout_id), None)
