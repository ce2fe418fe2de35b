"""Attempts: which run of a rollout id a call belongs to, also after a restart and in every worker.

Invariant: a call of a rollout that a request has ended begins another attempt, with another own span. So a rollout id
that is used twice gives two trajectories.

    calls of r ─► attempt 1      POST /rollout/r/end      calls of r ─► attempt 2      gateway restarted ─► attempt 2

All processes of a gateway share one database in its folder. It is written at each end, and at each attempt after the
first.
"""

import logging
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

ATTEMPTS: Final = "attempts.sqlite"
"""The database in the folder of a gateway."""

_SECONDS: Final = 1.0
"""How long to wait for another process that holds the database."""

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS attempt (
    rollout_id TEXT, number INTEGER, has_ended INTEGER, at REAL, PRIMARY KEY (rollout_id, number)
) WITHOUT ROWID
"""


class RolloutAttempt(NamedTuple):
    """The number of an attempt, and whether a request ended it."""

    number: int
    has_ended: bool


class Attempts:
    """The attempts in the database at `path`. If the disk refuses, nothing is remembered, and the log says so once.

    At the start, notes older than `keep_seconds` are deleted; None keeps all.
    """

    def __init__(self, path: Path, keep_seconds: float | None) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=_SECONDS, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = OFF")  # it survives a killed process, which is enough
            self._database.execute(_TABLE)
            if keep_seconds is not None:
                self._database.execute("DELETE FROM attempt WHERE at < ?", (time.time() - keep_seconds,))
        except (sqlite3.Error, OSError) as error:
            self._leave(error)

    def find(self, rollout_id: str, number: int | None = None) -> RolloutAttempt | None:
        """The noted attempt of a rollout id with this number, or (None) the last one; None where none is noted."""
        query = (
            "SELECT number, has_ended FROM attempt WHERE rollout_id = ?1 AND number = coalesce(?2, number)"
            " ORDER BY number DESC LIMIT 1"
        )
        try:
            # `coalesce`: without a number any attempt matches, and the last one is taken.
            row = None if self._database is None else self._database.execute(query, (rollout_id, number)).fetchone()
        except sqlite3.Error as error:
            self._leave(error)
            return None
        return None if row is None else RolloutAttempt(row[0], bool(row[1]))

    def note(self, rollout_id: str, attempt: RolloutAttempt) -> None:
        """Note an attempt of a rollout id, in the place of an earlier note of the same number."""
        if self._database is not None:
            values = (rollout_id, attempt.number, attempt.has_ended, time.time())
            try:
                self._database.execute("INSERT OR REPLACE INTO attempt VALUES (?, ?, ?, ?)", values)
            except sqlite3.Error as error:
                self._leave(error)

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _leave(self, error: Exception) -> None:
        with suppress(sqlite3.Error):
            self.close()
        logger.warning(
            "art-otel: %s: %s; a rollout id that is used again after a restart goes on with the earlier rollout",
            self._path,
            error,
        )
