"""FinishedRollouts: what has ended, of what is written to the spool and of what stood there before.

Invariant: memory holds where the lines of open rollouts stand, and of those that were given lately; the index has the
rest. A trajectory is built from the spool for whoever takes it. So a restart goes on where this ended, and reads only
the files of the spool in which something was open.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from art_otel.live import ArrivingRollouts, EndedRollout, GivenSpans, Together, read_records
from art_otel.live.delivery import Key
from art_otel.receiver.assembler import Assembler, EncodedTrajectory
from art_otel.receiver.index import Finished, SpooledRolloutIndex
from art_otel.receiver.ingest import ReceiverMetrics
from art_otel.sources import Record
from art_otel.spool import NewLines, SpooledLine, lines_of, remove_file, spool_files

logger = logging.getLogger(__name__)

_LOOK_EVERY: Final = 0.25
"""Seconds between two looks where nothing comes: a grace may end."""
_FOLLOW_EVERY: Final = 0.05
_TOGETHER: Final = 64
_LONG: Final = 1 << 16
"""Lines that others wrote are looked at so many at once, which costs less than each by itself; a long one ends them."""
_AT_ONCE: Final = 8
"""Rollouts that are built before consumers hear of them: more would wait for each other."""
_KEPT_BYTES: Final = 32 << 20
"""Trajectories that are kept in memory for the consumers that wait for them."""
_MEMORY_SECONDS: Final = 60.0
"""Seconds without news after which only the index knows a rollout that was given."""
_SWEEP_EVERY: Final = 600.0
_MAX_OPEN: Final = 20_000
"""Open rollouts that are read from earlier runs before those are built that have ended."""


class FinishedRollouts:
    """Puts what has ended into the index, and calls `when_finished`. What stood in the `spool` before is read anew.

    Files of the spool that nobody wrote to for `retain` seconds are removed once all of them was handed out; None keeps
    them. `follows` is a folder of the spool that other processes write to: what they write is read there.
    """

    def __init__(  # noqa: PLR0913 # where it reads, whom it tells, and what a rollout is
        self,
        spool: Path,
        index: SpooledRolloutIndex,
        metrics: ReceiverMetrics,
        when_finished: Callable[[], None],
        *,
        grace: float,
        retain: float | None = None,
        rollout_spans: Iterable[str] = (),
        rollout_attributes: Iterable[str] = (),
        follows: Path | None = None,
    ) -> None:
        self._spool = spool
        self._follows = follows
        self._index = index
        self._metrics = metrics
        self._when_finished = when_finished
        self._retain = retain
        names = tuple(rollout_attributes)
        self._arriving = ArrivingRollouts(grace=grace, max_age=_MEMORY_SECONDS, archive=index, rollout_attributes=names)
        self._lock = threading.Lock()
        self._assembler = Assembler(tuple(rollout_spans), names)
        self._news = threading.Event()
        self._tell: Callable[[], None] = lambda: None
        self._closing = False
        self._kept = _KeptTrajectories()
        self._unwritten: tuple[list[Finished], list[GivenSpans]] = ([], [])
        """What the index does not have yet."""
        self._is_refused = False
        self._earlier = [path for path in spool_files(spool) if not index.has_read(path)]
        self._read: dict[str, None] = {}
        """Files of which something was read, and not all is known to be given."""
        self._current: list[object] = [None, None]
        """The file that is replayed, and the one that is written to: there is more of them to come."""
        self._swept_at = time.monotonic() - _SWEEP_EVERY
        self.earlier_bytes = sum(path.stat().st_size for path in self._earlier)
        """How many bytes of earlier runs are read here."""
        self.read_bytes = 0
        """How many bytes of the spool are known here."""
        self._threads = [
            threading.Thread(target=self._replay, name="art-otel replay", daemon=True),
            threading.Thread(target=self._run, name="art-otel finished rollouts", daemon=True),
        ]
        if follows is not None:
            following = threading.Thread(target=self._follow, args=(follows,), name="art-otel follow", daemon=True)
            self._threads.append(following)

    def start(self, tell: Callable[[], None]) -> None:
        """Begin to look. `tell` has what was written told here (`add`) that was not yet."""
        self._tell = tell
        self._assembler.start()
        for thread in self._threads:
            thread.start()

    @property
    def open(self) -> int:
        """How many rollouts, or traces, have spans that were not handed on yet."""
        return self._arriving.open

    def keep_open(self, rollout_ids: Iterable[str]) -> None:
        """Let no grace end rollouts that are known to run."""
        now = time.monotonic()
        with self._lock:
            for rollout_id in rollout_ids:
                self._arriving.keep_open(rollout_id, now)

    def add(self, lines: Sequence[tuple[Sequence[Record], SpooledLine]]) -> None:
        """Add records that were written now, each with the spooled line that holds it."""
        self._current[1] = lines[-1][1].file
        self._look_at(lines)

    def _look_at(self, lines: Sequence[tuple[Sequence[Record], SpooledLine]]) -> None:
        with self._lock:
            self._arriving.add(lines, time.monotonic())
            self.read_bytes += sum(line.size for _, line in lines)
            self._read |= {str(file): None for file in {line.file for _, line in lines}}
            has_news = self._arriving.has_ended
        if has_news:  # a grace ends without news
            self._news.set()

    def kept(self, finished: Finished) -> bytes | None:
        """Return the trajectory of a rollout as `encode_trajectory` gives it, if it is at hand."""
        return self._kept.get(finished.key, finished.digest)

    def build(self, finished: Finished) -> bytes | None:
        """Build the same anew; None where its lines have left the spool. Raises OSError."""
        (built,) = self._assembler.build([finished.lines])
        return next((each.encoded for each in built or () if each.order == finished.key), None)

    def close(self) -> None:
        """Look no more."""
        self._closing = True
        self._news.set()
        for thread in self._threads:
            thread.join()
        self._assembler.close()
        self._current[1] = None
        with suppress(OSError):  # then the next receiver reads these files once more
            self._note_read()

    def _replay(self) -> None:
        """Read the files of earlier runs in which something may have been open, the newest first."""
        for path in reversed(self._earlier):
            self._current[0] = path
            try:
                for text, line in lines_of(path):
                    self._look_at([(self._records(text, line), line)])
                    while self.open > _MAX_OPEN and not self._closing:
                        time.sleep(_LOOK_EVERY)
                    if self._closing:
                        return
            except OSError as error:
                logger.warning("art-otel: %s cannot be read, so its rollouts are not delivered: %s", path, error)
                self._read.pop(str(path), None)
        self._current[0] = None
        self._swept_at -= _SWEEP_EVERY
        self._news.set()

    def _follow(self, folder: Path) -> None:
        """Read what other processes write, as it comes, and in the end what is left."""
        lines = NewLines(folder)
        is_last = False
        while not is_last:
            is_last = self._closing
            taken: list[tuple[Sequence[Record], SpooledLine]] = []
            try:
                for text, line in lines.take():
                    taken.append((self._records(text, line), line))
                    if len(taken) == _TOGETHER or line.size > _LONG:
                        self._look_at(taken)
                        taken = []
            except OSError as error:
                logger.warning("art-otel: %s cannot be read: %s", folder, error)
                time.sleep(_LOOK_EVERY)
            if taken:
                self._look_at(taken)
            if not is_last:
                time.sleep(_FOLLOW_EVERY)

    def _written_by_others(self) -> set[str]:
        """The newest file of each process that writes to the folder that is followed."""
        if self._follows is None or self._closing:
            return set()
        return {*{path.name.split("-")[1]: str(path) for path in spool_files(self._follows)}.values()}

    def _records(self, text: bytes, line: SpooledLine) -> list[Record]:
        records = read_records([text])
        if not records or any(record.trace_id is None for record in records):
            logger.warning("art-otel: %s: %d bytes at %d cannot be read", line.file, line.size, line.offset)
        return records

    def _run(self) -> None:
        while not self._closing:
            self._news.wait(_LOOK_EVERY)
            self._news.clear()
            try:
                self._tell()  # else a grace could end a rollout whose newest call is written, and not known here
                while not self._closing and self._give():
                    pass
                self._sweep()
                self._is_refused = False
            except OSError as error:  # what comes later must not wait for ever
                if not self._is_refused:
                    logger.warning("art-otel: finished rollouts are waiting until the disk can be written: %s", error)
                self._is_refused = True
            except Exception:
                logger.exception("art-otel: finished rollouts could not be built; trying again")

    def _give(self) -> bool:
        """Give the first that have ended, and say whether there were any."""
        self._write()
        now = time.monotonic()
        with self._lock:
            due = self._arriving.together(self._arriving.due(now, _AT_ONCE), now)
        built = self._assembler.build([together.lines for together in due]) if due else ()
        with self._lock:
            ended = [
                rollout
                for together, trajectories in zip(due, built, strict=True)
                for rollout in self._arriving.give(together, trajectories or ())
            ]
            given = [spans for together in due for spans in self._arriving.given(together)]
        self._unwritten = ([self._finished(rollout) for rollout in ended], given)
        self._write()
        for together, trajectories in zip(due, built, strict=True):
            if not trajectories:
                self._note_lone_rewards(together)
        return bool(due)

    def _write(self) -> None:
        """Put what was given into the index, also what the disk refused before."""
        finished, given = self._unwritten
        if finished or given:
            self._index.add(finished, given)
            self._unwritten = ([], [])
            self._metrics.add("art_otel_finished_rollouts_total", len(finished))
            self._when_finished()

    def _finished(self, rollout: EndedRollout[EncodedTrajectory]) -> Finished:
        built, digest = rollout.trajectory, f"{rollout.digest:016x}"
        self._kept.keep(built.order, digest, built.encoded)
        return Finished(
            key=built.order, revision=rollout.revision, digest=digest, facts=built.facts, lines=rollout.lines
        )

    def _note_lone_rewards(self, together: Together) -> None:
        """Say of rewards that what they name has not come; it gets them when it does."""
        with self._lock:
            rewards = self._arriving.lone_rewards(together)
        for (kind, name), count in rewards.items():
            self._metrics.add("art_otel_unmatched_rewards_total", count)
            logger.warning("art-otel: a reward names the %s %r, but no other span of it has arrived", kind, name)

    def _sweep(self) -> None:
        """Note files of which everything was given, and remove those that are old and were handed out."""
        now = time.monotonic()
        if now - self._swept_at < _SWEEP_EVERY:
            return
        self._swept_at = now
        self._note_read()
        if self._retain is not None:
            self._remove_files(time.time() - self._retain)

    def _note_read(self) -> None:
        written_by_others = self._written_by_others()
        with self._lock:
            in_use = {
                *map(str, self._current),
                *written_by_others,
                *(str(line.file) for line in self._arriving.open_lines),
            }
            given = self._read.keys() - in_use
            self._read = dict.fromkeys(in_use & self._read.keys())
        self._index.note_read(map(Path, given))

    def _remove_files(self, before: float) -> None:
        self._index.remove_before(before)
        in_use = self._index.files_in_use()
        for path in spool_files(self._spool):
            if path.stat().st_mtime < before and path not in in_use and self._index.has_read(path):
                logger.info("art-otel: %s was delivered and is removed, because it is older than --retain", path)
                remove_file(path)


class _KeptTrajectories:
    """The newest trajectories, so that one that a consumer waits for is not built twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Key, str], bytes] = OrderedDict()
        self._bytes = 0

    def keep(self, key: Key, digest: str, encoded: bytes) -> None:
        with self._lock:
            self._bytes += len(encoded) - len(self._kept.pop((key, digest), b""))
            self._kept[key, digest] = encoded
            while self._bytes > _KEPT_BYTES:
                self._bytes -= len(self._kept.popitem(last=False)[1])

    def get(self, key: Key, digest: str) -> bytes | None:
        with self._lock:
            return self._kept.get((key, digest))
