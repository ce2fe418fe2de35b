"""NewTrajectories: new trajectories in a spool's folder, for loops that train on what other processes record.

Invariant: a rollout is delivered once it has ended, whole, whichever files its spans are in; late spans deliver it
again, as its next revision. A line is read when it is new, and a second time when its rollout is delivered. What a loop
that ends early did not get goes to the next loop. The files of a run count as taken, and may be removed as old, once
all of their rollouts were acknowledged.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from art_otel.live.arriving_rollouts import ArrivingRollouts, Together
from art_otel.live.assembly import assemble, read_records
from art_otel.live.delivery import Acknowledgment, DeliveredRollouts, DeliveredTrajectory, Key, Question
from art_otel.live.limits import GRACE
from art_otel.spool import NewLines, note_taken
from art_otel.trajectories import note_gathered

if TYPE_CHECKING:
    from art_otel.trajectories import Trajectory

logger = logging.getLogger(__name__)

_PAUSE: Final = 0.2
"""Seconds between two looks at a spool that has nothing new."""


class NewTrajectories(DeliveredRollouts):
    """Read new trajectories from a spool, while traced processes write to it.

        new = art_otel.NewTrajectories(".art/spool")
        async for trajectory in new:
            ...
        async for group in new.groups(size=8, timeout=60):
            ...
        for batch in art_otel.batches(new.take()):
            ...

    The loops wait for new trajectories until you leave them. `take` returns what is there now. `folder` is the spool,
    or the folder of one run in it. It may not exist yet; one warning says so. Rollouts that are already in it come
    first.

    A rollout is held back until it has ended, or until no span of it came for `grace` seconds, as after a crash.
    `grace` must be longer than your longest LLM call and the app's work before it. Rollouts of processes that do not
    count their spans (other languages) come after `grace` too. `rollout_spans` are globs: a span with a matching name
    is a rollout, if no span of its trace has a rollout id. `rollout_attributes` are names of attributes (`session.id`):
    traces that share the value of one are a rollout. Nothing says when it has ended, so it is given after `grace`, and
    again with each further trace.

    If late spans or rewards belong to a rollout, it comes again, with a higher `revision`. Raises OSError if the folder
    cannot be read, for example because it is a file.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        grace: float = GRACE,
        rollout_spans: Iterable[str] = (),
        rollout_attributes: Iterable[str] = (),
    ) -> None:
        self._cursor = SpoolCursor(Path(folder), grace, tuple(rollout_spans), tuple(rollout_attributes))
        super().__init__(self._cursor)

    def take(self) -> "list[Trajectory]":
        """Return the trajectories of rollouts that have ended since the last call, in the order of their ids."""
        self._finish_handling()
        taken = self._cursor.look(Question(handled=self._handled, count=sys.maxsize))
        self._handled = []
        self._cursor.acknowledge([one.acknowledgment for one in taken])
        for one in taken:
            note_gathered(one.trajectory)
        return [one.trajectory for one in taken]


class SpoolCursor:
    """How far one consumer is with the spool in `folder`: what was read, and which deliveries are not acknowledged."""

    def __init__(
        self, folder: Path, grace: float, rollout_spans: Sequence[str], rollout_attributes: Sequence[str]
    ) -> None:
        self._folder: Path | None = folder
        """The folder until the first look has checked it; then None."""
        self._lines = NewLines(folder)
        self._rollout_spans = rollout_spans
        self._rollout_attributes = rollout_attributes
        self.arriving = ArrivingRollouts(grace=grace, rollout_attributes=rollout_attributes)
        self._lock = threading.Lock()
        self._unacknowledged: dict[tuple[Key, str], DeliveredTrajectory] = {}
        """The finished rollouts that wait, by key and digest, in the order in which they ended."""
        self._noted: dict[Path, int] = {}

    async def take(self, question: Question) -> list[DeliveredTrajectory]:
        """Answer a question of a loop, waiting at most `question.wait` seconds (see `DeliverySession`)."""
        ends = time.monotonic() + question.wait
        while True:
            taken = await asyncio.to_thread(self.look, question)
            remaining = ends - time.monotonic()
            if taken or not question.count or remaining <= 0:
                return taken
            await asyncio.sleep(min(_PAUSE, remaining))

    async def close(self, handled: Sequence[Acknowledgment]) -> None:
        """Acknowledge what the loop has handled."""
        await asyncio.to_thread(self.acknowledge, handled)

    def look(self, question: Question) -> list[DeliveredTrajectory]:
        """Answer a question at once. The spool is read only where fewer rollouts wait than the question wants."""
        self.acknowledge(question.handled)
        # What the loop still works on is not given a second time.
        held = {(each.key, each.digest) for each in question.holds}
        with self._lock:
            taken = list(self._first(question.count, held))
            if len(taken) < question.count:
                self._read()
                taken = list(self._first(question.count, held))
            return taken

    def acknowledge(self, acknowledgments: Sequence[Acknowledgment]) -> None:
        """Forget deliveries that the consumer has handled. If none is left, note the files as taken.

        Files in which a rollout is still open are not noted: their run must not be removed as old.
        """
        with self._lock:
            for each in acknowledgments:
                self._unacknowledged.pop((each.key, each.digest), None)
            if self._unacknowledged:
                return
            waiting = {str(line.file) for line in self.arriving.open_lines}
            taken = {path: size for path, size in self._lines.read.items() if str(path) not in waiting}
            # Only what is new: the note is a file that is written each time.
            note_taken(dict(taken.items() - self._noted.items()))
            self._noted |= taken

    def _first(self, count: int, held: set[tuple[Key, str]]) -> Iterator[DeliveredTrajectory]:
        return islice((one for key, one in self._unacknowledged.items() if key not in held), count)

    def _read(self) -> None:
        """Read what is new, and put the rollouts that have ended among those that wait.

        They wait here, and are not returned, because the loop that asked may have been cancelled meanwhile.
        """
        self._check_folder()
        self._read_lines()
        due = self.arriving.due(time.monotonic())
        self._read_lines()  # what had ended may have spans in files that were read before
        now = time.monotonic()
        ended = [
            ended
            for together in self.arriving.together(due & self.arriving.due(now), now)
            for ended in self.arriving.give(together, self._assembled(together))
        ]
        for one in sorted(ended, key=lambda one: one.trajectory.order):
            acknowledgment = Acknowledgment.of(one.trajectory.order, one.revision, f"{one.digest:016x}")
            trajectory = replace(one.trajectory, revision=one.revision)
            waiting = DeliveredTrajectory(acknowledgment, trajectory)
            self._unacknowledged[acknowledgment.key, acknowledgment.digest] = waiting

    def _assembled(self, together: Together) -> "tuple[Trajectory, ...]":
        return assemble(together.lines, self._rollout_spans, self._rollout_attributes)

    def _check_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is None or folder.is_dir():
            return
        if folder.is_file():
            raise NotADirectoryError(f"NewTrajectories({str(folder)!r}): is a file; give the folder of the spool")
        logger.warning(
            "art-otel: NewTrajectories: %s does not exist, so there is nothing new. If the app is already running, "
            "give its spool: the folder spool/ in its ART_OTEL_DIR (.art)",
            folder.resolve(),
        )

    def _read_lines(self) -> None:
        now = time.monotonic()
        for line in self._lines.take():
            records = read_records([line.text])
            self.arriving.add([(records, line.location)], now)
            if not records or any(record.trace_id is None for record in records):
                logger.warning("art-otel: %d bytes of %s cannot be read", line.location.size, line.location.file)
