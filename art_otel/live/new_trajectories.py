"""NewTrajectories: what is new in a spool, for loops that train on what other processes record.

Invariant: a rollout is given once it has ended, whole, whichever files its spans are in; what comes later gives it
again, as its next revision. Lines are read once to find out what is new, and those of a rollout again when it is given.
What a loop that ends early was not given is given to the next one.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from art_otel.live.arriving_rollouts import ArrivingRollouts, Together
from art_otel.live.assembly import assemble, read_records
from art_otel.live.groups import PartialGroups, grouped
from art_otel.spool import NewLines, note_taken

if TYPE_CHECKING:
    from art_otel.trajectories import Trajectory, TrajectoryGroup

logger = logging.getLogger(__name__)

_PAUSE: Final = 0.2
"""Seconds after which a spool without anything new is looked at again."""


class NewTrajectories:
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
        grace: float = 60.0,
        rollout_spans: Iterable[str] = (),
        rollout_attributes: Iterable[str] = (),
    ) -> None:
        self._folder: Path | None = Path(folder)
        """The folder until it was there, or was missed once."""
        self._lines = NewLines(folder)
        self._rollout_spans = tuple(rollout_spans)
        self._rollout_attributes = tuple(rollout_attributes)
        self._arriving = ArrivingRollouts(grace=grace, rollout_attributes=self._rollout_attributes)
        self._lock = threading.Lock()
        self._waiting: deque[Trajectory] = deque()
        self._partial: list[PartialGroups[None]] = []
        self._noted: dict[Path, int] = {}

    def take(self) -> "list[Trajectory]":
        """Return the trajectories of rollouts that have ended since the last call, in the order of their ids."""
        self._read()
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            self._note_taken()
        return taken

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "Trajectory":
        """The next one that ends. It waits as long as there is none."""
        while not self._waiting:
            await asyncio.to_thread(self._read)
            if not self._waiting:
                await asyncio.sleep(_PAUSE)
        return self._waiting.popleft()

    async def groups(self, *, size: int, timeout: float | None = None) -> "AsyncGenerator[TrajectoryGroup]":
        """Iterate over groups of `size` trajectories with the same `group_id` and training step.

        If a group is not full `timeout` seconds after its first trajectory, it is returned as it is. A rollout without
        a group is a group of its own. A revision of a rollout is left out if its group was already returned.
        """
        partial = PartialGroups[None](size=size, timeout=timeout)
        self._partial.append(partial)
        try:
            async with aclosing(grouped(self, partial)) as groups:
                async for group in groups:
                    yield group
        finally:
            self._partial.remove(partial)
            self._waiting.extendleft(reversed(partial.trajectories))

    def _read(self) -> None:
        """Let what has ended wait; whoever asked may be gone by then."""
        with self._lock:
            self._note_taken()
            self._check_folder()
            self._look()
            due = self._arriving.due(time.monotonic())
            self._look()  # what had ended may have spans in files that were read before
            now = time.monotonic()
            ended = [
                replace(ended.trajectory, revision=ended.revision)
                for together in self._arriving.together(due & self._arriving.due(now), now)
                for ended in self._arriving.give(together, self._assembled(together))
            ]
            self._waiting.extend(sorted(ended, key=lambda trajectory: trajectory.order))

    def _assembled(self, together: Together) -> "tuple[Trajectory, ...]":
        return assemble(together.lines, self._rollout_spans, self._rollout_attributes)

    def _check_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is None or folder.is_dir():
            return
        if folder.is_file():
            raise NotADirectoryError(f"NewTrajectories({str(folder)!r}): is a file; give the folder of the spool")
        logger.warning(
            "art-otel: NewTrajectories: %s does not exist, so nothing is new. If the app runs already, give its"
            " spool: the folder spool/ in its ART_OTEL_DIR (.art)",
            folder.resolve(),
        )

    def _note_taken(self) -> None:
        """Note the files of which all that was read was given, so that old runs may go."""
        if self._waiting or any(partial.trajectories for partial in self._partial):
            return
        waiting = {str(line.file) for line in self._arriving.open_lines}
        taken = {path: size for path, size in self._lines.read.items() if str(path) not in waiting}
        note_taken(dict(taken.items() - self._noted.items()))
        self._noted |= taken

    def _look(self) -> None:
        now = time.monotonic()
        for line in self._lines.take():
            records = read_records([line.text])
            self._arriving.add(records, line.location, now)
            if not records or any(record.trace_id is None for record in records):
                logger.warning("art-otel: nobody can read %d bytes of %s", line.location.size, line.location.file)
