"""NewTrajectories: what is new in a spool, for loops that train on what other processes record.

Invariant: a rollout is given once it has ended, whole, whichever files its spans are in; what comes later gives it
again, as its next revision. No line is read twice to find out what is new.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from art_otel.live.arriving_rollouts import ArrivingRollouts
from art_otel.live.assembly import assemble, read_records
from art_otel.spool import NewLines

if TYPE_CHECKING:
    from art_otel.trajectories import Trajectory

logger = logging.getLogger(__name__)

MAX_AGE: Final = 3600.0
"""Seconds after which nothing more is expected of a rollout that was given: memory holds where its spans stand."""


class NewTrajectories:
    """Give the trajectories that come into a spool while traced processes go on writing to it.

    new = art_otel.NewTrajectories(".art/spool")
    while training:
        for batch in art_otel.batches(new.take()):
            ...

    `folder` is the spool, or the folder of one run in it; it may not exist yet. What it holds already is given by the
    first `take`. A rollout that has not ended is held back until it has, or until nothing of it came for `grace`
    seconds, as after a crash: let that be longer than your longest LLM call. Spans from processes that do not count
    them (other languages) are given after `grace` too. `rollout_spans` are globs of the names of spans that count as
    rollouts where no span carries a rollout id.
    """

    def __init__(self, folder: str | Path, *, grace: float = 60.0, rollout_spans: Iterable[str] = ()) -> None:
        self._folder: Path | None = Path(folder)
        """The folder until it was there, or was missed once."""
        self._lines = NewLines(folder)
        self._rollout_spans = tuple(rollout_spans)
        self._arriving = ArrivingRollouts(grace=grace, max_age=MAX_AGE)

    def take(self) -> "list[Trajectory]":
        """The trajectories of rollouts that have ended since the last time, in the order of their ids.

        One that was given before comes again, with a higher `revision`, where late spans or rewards belong to it that
        come within an hour.
        A warning says once if the folder does not exist. Raises OSError for what cannot be read, as a folder that is a
        file.
        """
        self._check_folder()
        self._look()
        due = self._arriving.due(time.monotonic())
        self._look()  # what had ended may have spans in files that were read before
        now = time.monotonic()
        taken = [
            replace(ended.trajectory, revision=ended.revision)
            for together in self._arriving.together(due & self._arriving.due(now), now)
            for ended in self._arriving.give(together, assemble(together.lines, self._rollout_spans))
        ]
        return sorted(taken, key=lambda trajectory: trajectory.order)

    def _check_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is None or folder.is_dir():
            return
        if folder.exists():
            raise NotADirectoryError(f"NewTrajectories({str(folder)!r}): is a file; give the folder of the spool")
        logger.warning(
            "art-otel: NewTrajectories: %s does not exist, so nothing is new. If the app runs already, give its"
            " spool: the folder spool/ in its ART_OTEL_DIR (.art)",
            folder.resolve(),
        )

    def _look(self) -> None:
        now = time.monotonic()
        for line in self._lines.take():
            records = read_records([line.text])
            self._arriving.add(records, line.location, now)
            if not records or any(record.trace_id is None for record in records):
                logger.warning("art-otel: nobody can read %d bytes of %s", line.location.size, line.location.file)
