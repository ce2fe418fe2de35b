"""FinishedRollouts: what has ended, looked for in the spool while the intake goes on writing to it.

Invariant: memory holds what is asked about a rollout and where its lines stand; its trajectory is built from the spool
for whoever takes it. So a restart finds all of them again, and open ones go on.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from art_otel.live import EndedRollout, NewTrajectories, assemble
from art_otel.receiver.acknowledged import Key, Receipt
from art_otel.receiver.selection import Facts, facts_of
from art_otel.spool import SpooledLine
from art_otel.trajectories import Trajectory

logger = logging.getLogger(__name__)

_LOOK_EVERY: Final = 0.25
"""Seconds between two looks where nothing is written: a grace may end."""
_PAUSE: Final = 0.02
"""Seconds between two looks while much is written, so that each sees more."""
_AT_ONCE: Final = 32
"""Rollouts that are built before consumers hear of them: more would wait for each other, and fill the memory."""
_KEPT_BYTES: Final = 32 << 20
"""Lines of trajectories that are kept in memory for the consumers that wait for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A rollout that has ended. `digest` is that of its spans."""

    key: Key
    revision: int
    digest: int
    facts: Facts
    lines: tuple[SpooledLine, ...]

    @property
    def receipt(self) -> Receipt:
        """What acknowledges it."""
        rollout_id, attempt, trace_id = self.key
        return Receipt(
            rollout_id=rollout_id,
            attempt=attempt,
            trace_id=trace_id,
            revision=self.revision,
            digest=f"{self.digest:016x}",
        )


class FinishedRollouts:
    """Looks below `folder`, in a thread of its own, and tells `when_finished` what has ended."""

    def __init__(
        self,
        folder: Path,
        when_finished: Callable[[Sequence[Finished]], None],
        *,
        grace: float,
        rollout_spans: Iterable[str] = (),
    ) -> None:
        self._rollout_spans = tuple(rollout_spans)
        self._new = NewTrajectories(folder, grace=grace, rollout_spans=self._rollout_spans)
        self._when_finished = when_finished
        self._written = threading.Event()
        self._closing = False
        self._kept = _KeptTrajectories()
        self._thread = threading.Thread(target=self._run, name="art-otel finished rollouts", daemon=True)
        self._thread.start()

    @property
    def open(self) -> int:
        """How many rollouts, or traces, have spans that were not handed on yet."""
        return self._new.open

    @property
    def read_bytes(self) -> int:
        """How many bytes of the spool were looked at."""
        return self._new.read_bytes

    def look(self) -> None:
        """There is more in the spool."""
        self._written.set()

    def build(self, finished: Finished) -> Trajectory | None:
        """The trajectory of a rollout; None where its lines have left the spool, or it has a later revision."""
        trajectory = self._kept.take(finished)
        if trajectory is None:
            built = assemble(finished.lines, self._rollout_spans)
            trajectory = next((found for found in built if found.order == finished.key), None)
        return None if trajectory is None else replace(trajectory, revision=finished.revision)

    def close(self) -> None:
        """Look no more."""
        self._closing = True
        self._written.set()
        self._thread.join()

    def _run(self) -> None:
        assemble(())  # loads what builds trajectories, which the first rollout need not wait for
        while not self._closing:
            self._written.wait(_LOOK_EVERY)
            self._written.clear()
            try:
                self._look()
            except Exception:  # one rollout that nobody can build must not end them all
                logger.exception("art-otel: finished rollouts could not be looked for; trying again")
            time.sleep(_PAUSE)

    def _look(self) -> None:
        for ended in self._new.take_ended(_AT_ONCE):
            if ended:
                self._when_finished([self._finished(rollout) for rollout in ended])
            if self._closing:
                return

    def _finished(self, rollout: EndedRollout) -> Finished:
        trajectory, lines, digest = rollout
        self._kept.keep(trajectory, digest, sum(line.size for line in lines))
        return Finished(
            key=trajectory.order,
            revision=trajectory.revision,
            digest=digest,
            facts=facts_of(trajectory),
            lines=lines,
        )


class _KeptTrajectories:
    """The newest trajectories, so that one that somebody waits for is not built twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Key, int], tuple[Trajectory, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, trajectory: Trajectory, digest: int, size: int) -> None:
        with self._lock:
            self._bytes += size - self._kept.pop((trajectory.order, digest), (None, 0))[1]
            self._kept[trajectory.order, digest] = (trajectory, size)
            while self._bytes > _KEPT_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def take(self, finished: Finished) -> Trajectory | None:
        with self._lock:
            kept = self._kept.get((finished.key, finished.digest))
        return None if kept is None else kept[0]
