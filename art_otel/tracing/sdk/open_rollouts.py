"""OpenRollouts: the live assembler, which holds the lines of running rollouts until they are done.

Invariant: what somebody waits for is never let go: its lines stay in the spool and are read again, and where no disk
has them they stay in memory. The rest is bounded in rollouts, bytes and age; what is let go is counted and logged.
The spans of a rollout whose root runs here are counted to its end all the same: its certificate says how many.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from art_otel.spool import SpooledLine
from art_otel.tracing.api.recorder import Counts
from art_otel.tracing.sdk.assembly import assemble
from art_otel.tracing.sdk.live_calls import LiveCalls
from art_otel.tracing.sdk.open_rollout import OpenRollout

if TYPE_CHECKING:
    from art_otel.calls import InferenceCall
    from art_otel.trajectories import Trajectory

logger = logging.getLogger(__name__)

_MAX_COUNTED: Final = 100_000
"""Rollouts that are only counted. The processor remembers no more running spans than that, so no root of more ends."""


class OpenRollouts:
    """Rollouts by id. `grace` is how many seconds one that is done stays, for late spans and late readers.

    Beyond `max_rollouts`, `max_bytes` and `max_age` the oldest goes that nobody waits for.
    """

    def __init__(
        self,
        *,
        max_rollouts: int = 10_000,
        max_bytes: int = 128 << 20,
        max_age: float = 6 * 3600.0,
        grace: float = 2.0,
    ) -> None:
        self.evicted = 0
        self.calls_outside = 0
        self.grace = grace
        self._max_rollouts = max_rollouts
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._rollouts: dict[str, OpenRollout] = {}
        # Each rollout is in one of these, the oldest first, or in none while somebody waits for it.
        self._done: dict[str, None] = {}
        self._running: dict[str, None] = {}
        self._counted: dict[str, None] = {}
        self._of_parent: frozenset[str] = frozenset()
        self._bytes = 0
        """The sizes of those that nobody waits for."""
        self._changed = threading.Condition()

    def started(self, rollout_id: str, *, is_root: bool, parent: str | None = None) -> bool:
        """A span of the rollout started. `parent` is the rollout that a rollout's own span is nested in.

        Gives whether its root started here, so that a certificate will tell of the span.
        """
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is None:
                self._make_room()
                rollout = self._open(rollout_id, parent)
            if is_root:
                rollout.is_here = rollout.is_open = True
                rollout.parent = parent
            else:
                rollout.started += 1
            if rollout_id in self._done:
                self._place(rollout_id, rollout)
            return rollout.is_here

    def add(self, rollout_id: str, line: bytes, *, stored: SpooledLine | None = None) -> None:
        """Hold a line that ends nothing: of a start, of a span around the rollout, of a reward given later.

        `stored` is where the line can be read again.
        """
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                self._hold(rollout, line, stored)

    def missed(self, rollout_id: str | None) -> None:
        """A span started that could not be recorded, of any rollout if nobody knows which: count it as missing."""
        with self._changed:
            for each in list(self._rollouts) if rollout_id is None else [rollout_id]:
                rollout = self._rollouts.get(each) or self._open(each, None)
                rollout.started += 1
                self._place(each, rollout)

    def ended(self, rollout_id: str, line: bytes, *, stored: SpooledLine | None = None, is_root: bool) -> None:
        """A span of the rollout ended. One that is done is opened again by a late span."""
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is None:
                return
            if is_root:
                rollout.is_open = False
            else:
                rollout.ended += 1
            self._hold(rollout, line, stored)
            if rollout.done:
                self._close(rollout_id, rollout)
                self._changed.notify_all()
            self._let_go()

    def keep(self, rollout_id: str) -> None:
        """As Recorder."""
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                if not rollout.kept:
                    self._bytes -= rollout.size
                rollout.kept += 1
                self._place(rollout_id, rollout)

    def release(self, rollout_id: str) -> None:
        """As Recorder."""
        with self._changed:
            rollout = self._rollouts.get(rollout_id)
            if rollout is None or not rollout.kept:
                return
            rollout.kept -= 1
            if rollout.kept:
                return
            self._bytes += rollout.size
            if not rollout.done:
                self._place(rollout_id, rollout)
            elif self._bytes > self._max_bytes:  # no loss to be told of: who waited for it has it
                self._drop(rollout_id)
            else:
                self._close(rollout_id, rollout)

    def counts(self, rollout_id: str) -> Counts | None:
        """As Recorder."""
        rollout = self._rollouts.get(rollout_id)
        return None if rollout is None else Counts(rollout.started, rollout.ended)

    def wait(self, rollout_id: str, timeout: float) -> bool:
        """As Recorder."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_done(rollout_id), timeout)

    def calls(self, rollout_id: str) -> "tuple[InferenceCall, ...]":
        """As Recorder."""
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            return ()
        with rollout.reading:
            if rollout.live is None:
                rollout.live = LiveCalls(rollout_id)
            with self._changed:
                lines = list(rollout.lines)
            return rollout.live.update(lines)

    def trajectories(self, rollout_ids: Sequence[str]) -> "Mapping[str, Trajectory]":
        """As Recorder. The lines of rollouts around them are read too, because they hold their spans' parents."""
        with self._changed:
            around = {id(found): found for rollout_id in rollout_ids for found in self._with_parents(rollout_id)}
            lines = [line for found in around.values() for line in found.lines]
        assembled = assemble(", ".join(rollout_ids[:1]), lines) if lines else {}
        return {rollout_id: assembled[rollout_id] for rollout_id in rollout_ids if rollout_id in assembled}

    def trajectory(self, rollout_id: str) -> "Trajectory | None":
        """One of `trajectories`, None where it is not known here."""
        return self.trajectories([rollout_id]).get(rollout_id)

    def start_anew(self) -> None:
        """After a fork: what runs in the parent is the parent's, but its code goes on here, and may ask for it."""
        self._changed = threading.Condition()
        self._of_parent |= {known for known, rollout in self._rollouts.items() if rollout.is_open}
        for known in (self._rollouts, self._done, self._running, self._counted):
            known.clear()
        self._bytes = 0

    def _open(self, rollout_id: str, parent: str | None) -> OpenRollout:
        """One that nothing is known of here."""
        rollout = OpenRollout(parent=parent, opened=time.monotonic(), is_open=rollout_id in self._of_parent)
        self._rollouts[rollout_id] = rollout
        self._running[rollout_id] = None
        return rollout

    def _close(self, rollout_id: str, rollout: OpenRollout) -> None:
        """Its grace begins, if nobody keeps it. Of one whose root runs elsewhere nobody here asks."""
        rollout.closed = time.monotonic()
        if rollout.is_here or rollout.kept:
            self._place(rollout_id, rollout)
        else:
            self._drop(rollout_id)

    def _place(self, rollout_id: str, rollout: OpenRollout) -> None:
        """Put it where its turn comes to be let go; nowhere while somebody waits for it."""
        self._take_out(rollout_id)
        if rollout.kept:
            return
        if rollout.done:
            self._done[rollout_id] = None
        elif rollout.forgotten:
            self._counted[rollout_id] = None
        else:
            self._running[rollout_id] = None

    def _is_done(self, rollout_id: str) -> bool:
        rollout = self._rollouts.get(rollout_id)
        return rollout is None or rollout.done

    def _with_parents(self, rollout_id: str | None) -> Iterator[OpenRollout]:
        seen: set[str] = set()
        while rollout_id is not None and rollout_id not in seen and rollout_id in self._rollouts:
            seen.add(rollout_id)
            yield self._rollouts[rollout_id]
            rollout_id = self._rollouts[rollout_id].parent

    def _hold(self, rollout: OpenRollout, line: bytes, stored: SpooledLine | None) -> None:
        added = rollout.hold(line, stored)
        if not rollout.kept:
            self._bytes += added

    def _let_go(self) -> None:
        """Drop what is done and had its grace; then, beyond the bounds, the oldest."""
        now = time.monotonic()
        while self._done:
            oldest = next(iter(self._done))
            closed = self._rollouts[oldest].closed
            if closed is not None and now - closed < self.grace:
                break
            self._drop(oldest)
        while self._bytes > self._max_bytes:
            self._evict(_first(self._done, self._running), "it is more than the bytes that may be held")
        oldest = next(iter(self._running), None)
        if oldest is not None and now - self._rollouts[oldest].opened > self._max_age:
            self._evict(oldest, "it is older than a rollout may be")

    def _make_room(self) -> None:
        if len(self._done) + len(self._running) >= self._max_rollouts:
            self._evict(_first(self._done, self._running), "there are more than may be open")

    def _evict(self, rollout_id: str, because: str) -> None:
        """Hold no line of it. Its spans are counted on where its certificate needs that."""
        rollout = self._rollouts[rollout_id]
        if not (rollout.is_here and rollout.is_open):
            self._drop(rollout_id)
        else:
            self._bytes -= rollout.forget()
            self._place(rollout_id, rollout)
            while len(self._counted) > _MAX_COUNTED:
                self._drop(next(iter(self._counted)))
        self._tell(rollout_id, because)

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
        """Forget one that nobody waits for."""
        self._take_out(rollout_id)
        self._bytes -= self._rollouts.pop(rollout_id).size

    def _take_out(self, rollout_id: str) -> None:
        for place in (self._done, self._running, self._counted):
            place.pop(rollout_id, None)


def _first(*places: dict[str, None]) -> str:
    """The oldest of the first place that has any."""
    return next(known for place in places for known in place)
