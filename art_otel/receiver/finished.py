"""FinishedRollouts: finds the rollouts that have ended, in new lines of the spool and in those of earlier runs.

    new lines (add, or _follow) ─┐
    earlier runs (_replay)      ─┴─► ArrivingRollouts ─► Assembler builds ─► index ─► when_finished()

Invariant: memory holds where the lines stand of open rollouts and of those delivered lately; the index on disk has the
rest. A trajectory is built from the spool whenever a consumer takes it. So a restarted receiver goes on where the last
one stopped, and reads again only the spool files in which a rollout was open.
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
from art_otel.receiver.settings import ReceiverSettings
from art_otel.sources import Record
from art_otel.spool import NewLines, SpooledLine, lines_of, remove_file, spool_files

logger = logging.getLogger(__name__)

_LOOK_EVERY: Final = 0.25
"""Seconds between two looks when no span comes: the grace of a rollout may end without any."""
_FOLLOW_EVERY: Final = 0.05
"""Seconds between two looks at the folder that other processes write to."""
_TOGETHER: Final = 64
_LONG: Final = 1 << 16
"""Lines of other processes are added in batches of `_TOGETHER`, which costs less than one by one. A line of more than
`_LONG` bytes ends a batch, so that a batch does not hold much memory."""
_AT_ONCE: Final = 8
"""How many rollouts are built before consumers hear of them. With more, the first would wait for the last."""
_KEPT_BYTES: Final = 32 << 20
"""Bytes of encoded trajectories that are kept in memory for consumers that wait for them."""
_MEMORY_SECONDS: Final = 60.0
"""After so many seconds without a new span, a delivered rollout is known to the index only."""
_SWEEP_EVERY: Final = 600.0
"""Seconds between two sweeps, which note read files and remove old ones."""
_MAX_OPEN: Final = 20_000
"""With so many open rollouts, reading earlier runs pauses until some are built: memory is bounded."""


class FinishedRollouts:
    """Puts rollouts that have ended into the index, and then calls `when_finished`.

    - `spool`: the folder of all runs. Its earlier files are read again, as far as the index does not know them as done.
    - `settings`: say what is a rollout, when it counts as ended, and how long its files are kept.
    - `follows`: a folder of the spool in which other processes write; their new lines are read there. Lines that this
      process writes come by `add` instead.
    """

    def __init__(
        self,
        spool: Path,
        index: SpooledRolloutIndex,
        metrics: ReceiverMetrics,
        when_finished: Callable[[], None],
        settings: ReceiverSettings,
        follows: Path | None,
    ) -> None:
        self._spool = spool
        self._follows = follows
        self._index = index
        self._metrics = metrics
        self._when_finished = when_finished
        self._retain = settings.retain
        self._arriving = ArrivingRollouts(
            grace=settings.grace,
            max_age=_MEMORY_SECONDS,
            archive=index,
            rollout_attributes=tuple(settings.rollout_attributes),
        )
        self._lock = threading.Lock()
        self._assembler = Assembler(tuple(settings.rollout_spans), tuple(settings.rollout_attributes))
        self._news = threading.Event()
        self._tell: Callable[[], None] = lambda: None
        self._closing = False
        self._kept = _KeptTrajectories()
        self._unwritten: tuple[list[Finished], list[GivenSpans]] = ([], [])
        """Finished rollouts that the index does not have yet, because the disk refused them."""
        self._is_refused = False
        self._earlier = [path for path in spool_files(spool) if not index.has_read(path)]
        self._read: dict[str, None] = {}
        """Files of which lines were read, and that the index does not know as done."""
        self._current: list[object] = [None, None]
        """The earlier file that is being read, and the file that is being written: more lines of both will come."""
        self._swept_at = time.monotonic() - _SWEEP_EVERY
        self.earlier_bytes = sum(path.stat().st_size for path in self._earlier)
        """How many bytes of earlier runs there are to read."""
        self.read_bytes = 0
        """How many bytes of the spool were read so far, of this run and earlier ones."""
        self._threads = [
            threading.Thread(target=self._replay, name="art-otel replay", daemon=True),
            threading.Thread(target=self._run, name="art-otel finished rollouts", daemon=True),
        ]
        if follows is not None:
            following = threading.Thread(target=self._follow, args=(follows,), name="art-otel follow", daemon=True)
            self._threads.append(following)

    def start(self, tell: Callable[[], None]) -> None:
        """Start the threads. `tell` makes the writer of the spool `add` the lines that it has held back."""
        self._tell = tell
        self._assembler.start()
        for thread in self._threads:
            thread.start()

    @property
    def open(self) -> int:
        """How many rollouts, or traces without one, have spans that were not delivered."""
        return self._arriving.open

    def keep_open(self, rollout_ids: Iterable[str]) -> None:
        """Begin the grace of these rollouts anew, because they are known to run."""
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
        # Wake the thread only for a rollout that ended by its spans. The end of a grace is found by its regular looks.
        if has_news:
            self._news.set()

    def kept(self, finished: Finished) -> bytes | None:
        """The encoded trajectory of a rollout (`encode_trajectory`) if it is still in memory, else None."""
        return self._kept.get(finished.key, finished.digest)

    def build(self, finished: Finished) -> bytes | None:
        """Build the encoded trajectory again from the spool; None if its lines were removed. Raises OSError."""
        (built,) = self._assembler.build([finished.lines])
        return next((each.encoded for each in built or () if each.order == finished.key), None)

    def close(self) -> None:
        """Stop the threads, and note the files that need not be read again."""
        self._closing = True
        self._news.set()
        for thread in self._threads:
            thread.join()
        self._assembler.close()
        self._current[1] = None
        with suppress(OSError):  # without the note the next receiver just reads these files once more
            self._note_read()

    def _replay(self) -> None:
        """Read the files of earlier runs that the index does not know as done, the newest first."""
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
        # Sweep at once: the files that were just read can be noted as done.
        self._swept_at -= _SWEEP_EVERY
        self._news.set()

    def _follow(self, folder: Path) -> None:
        """Read the lines that other processes write, until `close`, and then once more for the last ones."""
        lines = NewLines(folder)
        is_last = False
        while not is_last:
            is_last = self._closing  # taken before the look, so that a whole look comes after the end of writing
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
        """The newest file of each process that writes to the folder that is followed: more lines may come there."""
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
                self._tell()  # else a grace could end a rollout whose newest call is in the spool, but not added here
                while not self._closing and self._give():
                    pass
                self._sweep()
                self._is_refused = False
            except OSError as error:  # a full disk: this thread must go on, for the time when there is space again
                if not self._is_refused:
                    logger.warning("art-otel: finished rollouts are waiting until the disk can be written: %s", error)
                self._is_refused = True
            except Exception:
                logger.exception("art-otel: finished rollouts could not be built; trying again")

    def _give(self) -> bool:
        """Build the first rollouts that are due, and put them into the index; False if none is due."""
        self._write()
        now = time.monotonic()
        with self._lock:
            due = self._arriving.together(self._arriving.due(now, _AT_ONCE), now)
        built = self._assembler.build([together.lines for together in due]) if due else ()  # unlocked: it takes long
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
        """Put finished rollouts into the index, also those that the disk refused before."""
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
        """Warn of rewards for a rollout of which no other span has come. When one comes, it gets the rewards."""
        with self._lock:
            rewards = self._arriving.lone_rewards(together)
        for (kind, name), count in rewards.items():
            self._metrics.add("art_otel_unmatched_rewards_total", count)
            logger.warning("art-otel: a reward names the %s %r, but no other span of it has arrived", kind, name)

    def _sweep(self) -> None:
        """Every ten minutes: note the files that are done, and remove those that are old and delivered."""
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
    """The newest encoded trajectories: most consumers take a trajectory at once, so it need not be built twice."""

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
