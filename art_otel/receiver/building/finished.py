"""FinishedRollouts: what has ended, of what the intake writes to the spool and of what stood there before.

Invariant: memory holds what is asked about a rollout and where its lines stand; its trajectory is built from the spool
for whoever takes it. So a restart finds all of them again, and open ones go on.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from art_otel.live import ArrivingRollouts, EndedRollout, read_records
from art_otel.receiver.building.builder import Builder, Built
from art_otel.receiver.protocol.receipt import Key, Receipt
from art_otel.receiver.protocol.selection import Facts
from art_otel.sources import Record
from art_otel.spool import SpooledLine, lines_of, spool_files

logger = logging.getLogger(__name__)

_LOOK_EVERY: Final = 0.25
"""Seconds between two looks where nothing comes: a grace may end."""
_AT_ONCE: Final = 8
"""Rollouts that are built before consumers hear of them: more would wait for each other."""
_KEPT_BYTES: Final = 32 << 20
"""Trajectories that are kept in memory for the consumers that wait for them."""


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
    """Tells `when_finished` what has ended.

    What stood below `folder` before is read anew. Rollouts of which somebody `acknowledged` an id wait until all of it
    was read: until then they may be as they once were.
    """

    def __init__(
        self,
        folder: Path,
        when_finished: Callable[[Sequence[Finished]], None],
        *,
        grace: float,
        acknowledged: AbstractSet[str],
        rollout_spans: Iterable[str] = (),
    ) -> None:
        self._arriving = ArrivingRollouts(grace=grace, held=acknowledged)
        self._lock = threading.Lock()
        self._builder = Builder(tuple(rollout_spans))
        self._when_finished = when_finished
        self._news = threading.Event()
        self._closing = False
        self._kept = _KeptTrajectories()
        self.read_bytes = 0
        """How many bytes of the spool are known here."""
        earlier = spool_files(folder)
        self._threads = [
            threading.Thread(target=self._replay, args=(earlier,), name="art-otel replay", daemon=True),
            threading.Thread(target=self._run, name="art-otel finished rollouts", daemon=True),
        ]

    def start(self) -> None:
        """Begin to look."""
        self._builder.start()
        for thread in self._threads:
            thread.start()

    @property
    def open(self) -> int:
        """How many rollouts, or traces, have spans that were not handed on yet."""
        return self._arriving.open

    def add(self, lines: Iterable[tuple[Sequence[Record], SpooledLine]]) -> None:
        """Add records, each with the spooled line that holds it."""
        now = time.monotonic()
        with self._lock:
            for records, line in lines:
                self._arriving.add(records, line, now)
                self.read_bytes += line.size
        self._news.set()

    def kept(self, finished: Finished) -> bytes | None:
        """The trajectory of a rollout as `encode_trajectory` gives it, if it is at hand."""
        return self._kept.get(finished.key, finished.digest)

    def build(self, finished: Finished) -> bytes | None:
        """The same, built anew; None where its lines have left the spool. Raises OSError."""
        (built,) = self._builder.build([finished.lines])
        return next((each.encoded for each in built or () if each.order == finished.key), None)

    def close(self) -> None:
        """Look no more."""
        self._closing = True
        self._news.set()
        for thread in self._threads:
            thread.join()
        self._builder.close()

    def _replay(self, files: Sequence[Path]) -> None:
        """Read the spool files of earlier runs, the newest first: older rollouts were mostly handed out before."""
        for path in reversed(files):
            try:
                for text, line in lines_of(path):
                    self.add([(self._records(text, line), line)])
                    if self._closing:
                        return
            except OSError as error:
                logger.warning("art-otel: %s cannot be read, so its rollouts are not handed out: %s", path, error)
        with self._lock:
            self._arriving.release()
        self._news.set()

    def _records(self, text: bytes, line: SpooledLine) -> list[Record]:
        records = read_records([text])
        if not records or any(record.trace_id is None for record in records):
            logger.warning("art-otel: nobody can read %d bytes of %s", line.size, line.file)
        return records

    def _run(self) -> None:
        while not self._closing:
            self._news.wait(_LOOK_EVERY)
            self._news.clear()
            try:
                while not self._closing and self._give():
                    pass
            except Exception:  # as when no process can be started: what comes later must not wait for ever
                logger.exception("art-otel: finished rollouts could not be built; trying again")

    def _give(self) -> bool:
        """Give the first that have ended, and say whether there were any."""
        now = time.monotonic()
        with self._lock:
            due = self._arriving.together(self._arriving.due(now, _AT_ONCE), now)
        built = self._builder.build([together.lines for together in due]) if due else ()
        with self._lock:
            ended = [
                rollout
                for together, trajectories in zip(due, built, strict=True)
                for rollout in self._arriving.give(together, trajectories or ())
            ]
        if ended:
            self._when_finished([self._finished(rollout) for rollout in ended])
        return bool(due)

    def _finished(self, rollout: EndedRollout[Built]) -> Finished:
        built = rollout.trajectory
        self._kept.keep(built.order, rollout.digest, built.encoded)
        return Finished(
            key=built.order, revision=rollout.revision, digest=rollout.digest, facts=built.facts, lines=rollout.lines
        )


class _KeptTrajectories:
    """The newest trajectories, so that one that somebody waits for is not built twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Key, int], bytes] = OrderedDict()
        self._bytes = 0

    def keep(self, key: Key, digest: int, encoded: bytes) -> None:
        with self._lock:
            self._bytes += len(encoded) - len(self._kept.pop((key, digest), b""))
            self._kept[key, digest] = encoded
            while self._bytes > _KEPT_BYTES:
                self._bytes -= len(self._kept.popitem(last=False)[1])

    def get(self, key: Key, digest: int) -> bytes | None:
        with self._lock:
            return self._kept.get((key, digest))
