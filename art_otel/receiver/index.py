"""SpooledRolloutIndex: what a receiver knows of finished rollouts, in an SQLite database beside the spool.

    finished       where the lines of each finished rollout stand, and facts for selections
    pending        (consumer, rollout): the consumer has not acknowledged the rollout
    acknowledged   (consumer, rollout): the last revision that the consumer acknowledged
    given, trace   the state of delivered spans, for late ones (`Archive`)
    file           spool files that are done

Invariant: memory does not grow with the number of rollouts. A finished rollout and the state of its spans are written
in one transaction, so a restarted receiver goes on where the last one stopped: a rollout in the index is delivered
again only when more of its spans come. If the index is lost, the spool delivers everything anew.
"""

# ruff: noqa: S608 # statements are put together from constants of this module; values are parameters

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from art_otel.errors import UsageError
from art_otel.live import BelongsTo, GivenSpans
from art_otel.live.delivery import Acknowledgment, Key
from art_otel.receiver.protocol import Facts, ReceiverSelection
from art_otel.spool import FoundFile, SpooledLine

_VERSION: Final = 1
_TABLES: Final = """
CREATE TABLE finished (
    number INTEGER PRIMARY KEY AUTOINCREMENT, rollout_id TEXT, attempt INTEGER, trace_id TEXT, revision INTEGER,
    digest TEXT, facts BLOB, split TEXT, policy_version TEXT, policy_number REAL, ended_at REAL, lines BLOB,
    given_at REAL, UNIQUE (rollout_id, attempt, trace_id)
);
CREATE TABLE model (number INTEGER, name TEXT, PRIMARY KEY (number, name)) WITHOUT ROWID;
CREATE TABLE consumer (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE pending (consumer TEXT, number INTEGER, PRIMARY KEY (consumer, number)) WITHOUT ROWID;
CREATE INDEX pending_number ON pending (number);
CREATE TABLE acknowledged (
    consumer TEXT, rollout_id TEXT, attempt INTEGER, trace_id TEXT, revision INTEGER, digest TEXT,
    PRIMARY KEY (rollout_id, attempt, trace_id, consumer)
) WITHOUT ROWID;
CREATE TABLE given (kind TEXT, id TEXT, spans BLOB, given_at REAL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE TABLE trace (trace_id TEXT, kind TEXT, id TEXT, PRIMARY KEY (trace_id, kind, id)) WITHOUT ROWID;
CREATE INDEX trace_of ON trace (kind, id);
CREATE TABLE file (path TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_NUMBER_OF: Final = "(SELECT number FROM finished WHERE rollout_id = ? AND attempt = ? AND trace_id = ? AND digest = ?)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A rollout that has ended: one revision of it. `digest` names the set of spans that it was built from.

    `facts` are what selections ask about; `lines` are where its spans stand in the spool.
    """

    key: Key
    revision: int
    digest: str
    facts: Facts
    lines: tuple[SpooledLine, ...]

    @property
    def acknowledgment(self) -> Acknowledgment:
        """The acknowledgment of this revision."""
        return Acknowledgment.of(self.key, self.revision, self.digest)


class _Spans(msgspec.Struct, frozen=True, array_like=True):
    """GivenSpans as they are stored.

    `lines` has, by the name of a spool file, offset, size, offset, size, …
    """

    is_vague: bool
    traces: tuple[str, ...]
    enclosing: tuple[int, ...]
    revisions: tuple[tuple[Key, int], ...]
    digest: int
    lines: dict[str, list[int]]
    numbers: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_spans: Final = msgspec.msgpack.Decoder(_Spans).decode
_decode_facts: Final = msgspec.msgpack.Decoder(Facts).decode
_decode_lines: Final = msgspec.msgpack.Decoder(dict[str, list[int]]).decode


class SpooledRolloutIndex:
    """The index at `path`, of the spool in the folder `spool`. Any thread may use it.

    Raises UsageError for a file that is no index of this version. Every change raises OSError where the disk refuses.
    """

    def __init__(self, path: Path, spool: Path) -> None:
        self._path = path
        self._spool = spool
        self._lock = threading.RLock()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made here, because SQLite would make a file that others can read.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            # One receiver uses a folder, so no other process needs the database.
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            # After a power failure the last changes may be missing: their rollouts are delivered once more.
            self._database.execute("PRAGMA synchronous = NORMAL")
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._database.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise UsageError(_unusable(path, str(error))) from error
        if version not in (0, _VERSION):
            self._database.close()
            raise UsageError(_unusable(path, f"its version is {version}, not {_VERSION}"))

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    # The archive of ArrivingRollouts: `live.arriving_rollouts.Archive`.

    def find(self, to: BelongsTo) -> GivenSpans | None:
        """The state of the delivered spans of a rollout or trace; None where none were delivered."""
        with self._lock:
            row = self._database.execute("SELECT spans FROM given WHERE kind = ? AND id = ?", to).fetchone()
        return None if row is None else self._given(to, row[0])

    def find_of_trace(self, trace_id: str) -> list[GivenSpans]:
        """The states of all delivered rollouts with a span in this trace, and of the trace itself."""
        query = "SELECT kind, id, spans FROM trace JOIN given USING (kind, id) WHERE trace_id = ?"
        with self._lock:
            rows = self._database.execute(query, (trace_id,)).fetchall()
        return [self._given((kind, id_), spans) for kind, id_, spans in rows]

    def has_read(self, path: Path) -> bool:
        """Whether every rollout in a spool file was delivered, so that the file need not be read again."""
        with self._lock:
            return self._has("SELECT 1 FROM file WHERE path = ?", (self._name(path),))

    # Written by FinishedRollouts.

    def add(self, finished: Iterable[Finished], given: Iterable[GivenSpans]) -> None:
        """Add finished rollouts, pending for every consumer, and the state of their spans, all or nothing."""
        now = time.time()
        with self._changing():
            for spans in given:
                self._add_given(spans, now)
            for rollout in finished:
                self._add_finished(rollout, now)

    def note_read(self, paths: Iterable[Path]) -> None:
        """Note spool files that are done, so that the next receiver need not read them."""
        with self._changing():
            self._database.executemany("INSERT OR IGNORE INTO file VALUES (?)", [(self._name(path),) for path in paths])

    # Asked by Delivery for consumers.

    def add_consumer(self, name: str) -> None:
        """Add a consumer; a new one has everything in the index pending."""
        with self._changing():
            if not self._has("SELECT 1 FROM consumer WHERE name = ?", (name,)):
                self._database.execute("INSERT INTO consumer VALUES (?)", (name,))
                self._database.execute("INSERT INTO pending SELECT ?, number FROM finished", (name,))

    @contextmanager
    def pending(self, consumer: str, selection: ReceiverSelection) -> Generator[Iterator[Finished]]:
        """Iterate over the pending rollouts of a consumer that match the selection, the oldest first.

        The index is locked inside the `with` block. A revision is higher than any that the consumer acknowledged.
        """
        # The first value is for the join with `acknowledged`, the second for the first condition.
        conditions, values = ["pending.consumer = ?"], [consumer, consumer]
        for condition, value in _conditions(selection):
            conditions.append(condition)
            values.append(value)
        query = (
            "SELECT f.rollout_id, f.attempt, f.trace_id, max(f.revision, coalesce(a.revision + 1, 0)), f.digest,"
            " f.facts, f.lines FROM pending JOIN finished f USING (number) LEFT JOIN acknowledged a ON"
            " a.rollout_id = f.rollout_id AND a.attempt = f.attempt AND a.trace_id = f.trace_id AND a.consumer = ?"
            f" WHERE {' AND '.join(conditions)} ORDER BY pending.number"
        )
        with self._lock:
            rows = self._database.execute(query, values)
            try:
                yield map(self._finished, rows)
            finally:
                rows.close()

    def facts(self, key: Key, digest: str) -> Facts | None:
        """The facts of a finished rollout; None where the index has no such rollout with this digest."""
        query = f"SELECT facts FROM finished WHERE number = {_NUMBER_OF}"
        with self._lock:
            row = self._database.execute(query, (*key, digest)).fetchone()
        return None if row is None else _decode_facts(row[0])

    def acknowledge(self, consumer: str, acknowledgments: Iterable[Acknowledgment]) -> int:
        """Note what a consumer has handled; return how many acknowledgments were new."""
        with self._changing():
            return sum([self._acknowledge(consumer, each) for each in acknowledgments])

    def remove_before(self, before: float) -> None:
        """Remove what is older than a time, in seconds since the epoch.

        Removed are finished rollouts that a consumer acknowledged and that are pending for none, and the state of
        delivered spans.
        """
        with self._changing():
            self._database.execute(
                "DELETE FROM finished WHERE given_at < ? AND NOT EXISTS (SELECT 1 FROM pending WHERE"
                " pending.number = finished.number) AND EXISTS (SELECT 1 FROM acknowledged a WHERE"
                " a.rollout_id = finished.rollout_id AND a.attempt = finished.attempt AND"
                " a.trace_id = finished.trace_id)",
                (before,),
            )
            self._database.execute("DELETE FROM model WHERE number NOT IN (SELECT number FROM finished)")
            self._database.execute("DELETE FROM given WHERE given_at < ?", (before,))
            self._database.execute(
                "DELETE FROM trace WHERE NOT EXISTS (SELECT 1 FROM given WHERE given.kind = trace.kind"
                " AND given.id = trace.id)"
            )
            self._database.execute(
                "DELETE FROM acknowledged WHERE NOT EXISTS (SELECT 1 FROM finished f WHERE"
                " f.rollout_id = acknowledged.rollout_id AND f.attempt = acknowledged.attempt AND"
                " f.trace_id = acknowledged.trace_id)"
            )

    def files_in_use(self) -> set[Path]:
        """The spool files in which lines of finished rollouts of the index stand: these must not be removed."""
        with self._lock:
            return {
                self._spool / name
                for (lines,) in self._database.execute("SELECT lines FROM finished")
                for name in _decode_lines(lines)
            }

    @contextmanager
    def _changing(self) -> Generator[None]:
        """A transaction: all changes in the block or none. Raises OSError where the disk refuses."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield
                self._database.execute("COMMIT")
            except BaseException as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise OSError(errno.EIO, str(error), str(self._path)) from error
                raise

    def _add_given(self, spans: GivenSpans, now: float) -> None:
        stored = _Spans(
            spans.is_vague,
            spans.traces,
            spans.enclosing,
            spans.revisions,
            spans.digest,
            self._grouped(spans.lines),
            spans.numbers,
        )
        self._database.execute("INSERT OR REPLACE INTO given VALUES (?, ?, ?, ?)", (*spans.to, _encode(stored), now))
        self._database.executemany(
            "INSERT OR IGNORE INTO trace VALUES (?, ?, ?)", [(trace_id, *spans.to) for trace_id in spans.traces]
        )

    def _add_finished(self, finished: Finished, now: float) -> None:
        facts = finished.facts
        version = facts.policy_version
        execute = self._database.execute
        condition = "rollout_id = ? AND attempt = ? AND trace_id = ?"
        replaced = execute(f"DELETE FROM finished WHERE {condition} RETURNING number", finished.key).fetchall()
        execute_many = self._database.executemany
        execute_many("DELETE FROM pending WHERE number = ?", replaced)
        execute_many("DELETE FROM model WHERE number = ?", replaced)
        number = execute(
            "INSERT INTO finished VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *finished.key,
                finished.revision,
                finished.digest,
                _encode(facts),
                facts.split,
                version,
                _number(version),
                facts.ended_at,
                _encode(self._grouped(finished.lines)),
                now,
            ),
        ).lastrowid
        execute_many("INSERT INTO model VALUES (?, ?)", [(number, model) for model in facts.models])
        execute(
            # A consumer that has acknowledged the very same set of spans need not get it again.
            f"INSERT INTO pending SELECT name, ? FROM consumer WHERE NOT EXISTS (SELECT 1 FROM acknowledged WHERE"
            f" consumer = name AND {condition} AND digest = ?)",
            (number, *finished.key, finished.digest),
        )

    def _acknowledge(self, consumer: str, acknowledgment: Acknowledgment) -> bool:
        key, digest = acknowledgment.key, acknowledgment.digest
        condition = "consumer = ? AND rollout_id = ? AND attempt = ? AND trace_id = ?"
        is_old = self._has(
            f"SELECT 1 FROM acknowledged WHERE {condition} AND revision >= ?",
            (consumer, *key, acknowledgment.revision),
        )
        if not is_old:
            values = (consumer, *key, acknowledgment.revision, digest)
            self._database.execute("INSERT OR REPLACE INTO acknowledged VALUES (?, ?, ?, ?, ?, ?)", values)
        query = f"DELETE FROM pending WHERE consumer = ? AND number = {_NUMBER_OF}"
        self._database.execute(query, (consumer, *key, digest))
        return not is_old

    def _has(self, query: str, values: Sequence[Any]) -> bool:
        return self._database.execute(query, values).fetchone() is not None

    def _given(self, to: BelongsTo, stored: bytes) -> GivenSpans:
        spans = _decode_spans(stored)
        return GivenSpans(
            to=to,
            is_vague=spans.is_vague,
            traces=spans.traces,
            enclosing=spans.enclosing,
            revisions=spans.revisions,
            digest=spans.digest,
            lines=self._lines(spans.lines),
            numbers=spans.numbers,
        )

    def _finished(self, row: tuple[Any, ...]) -> Finished:
        rollout_id, attempt, trace_id, revision, digest, facts, lines = row
        return Finished(
            key=(rollout_id, attempt, trace_id),
            revision=revision,
            digest=digest,
            facts=_decode_facts(facts),
            lines=self._lines(_decode_lines(lines)),
        )

    def _grouped(self, lines: Iterable[SpooledLine]) -> dict[str, list[int]]:
        by_file: dict[str, list[int]] = {}
        for line in lines:
            by_file.setdefault(self._name(Path(str(line.file))), []).extend((line.offset, line.size))
        return by_file

    def _lines(self, by_file: dict[str, list[int]]) -> tuple[SpooledLine, ...]:
        return tuple(
            SpooledLine(file=FoundFile(self._spool / name), offset=offset, size=size)
            for name, numbers in by_file.items()
            for offset, size in zip(numbers[::2], numbers[1::2], strict=True)
        )

    def _name(self, path: Path) -> str:
        """The path of a file relative to the spool, because spool and index may be moved together."""
        return os.path.relpath(path, self._spool)


def _conditions(selection: ReceiverSelection) -> Iterator[tuple[str, Any]]:
    """The conditions of a selection on the row `f` of a finished rollout, each as SQL with its value."""
    if selection.split is not None:
        yield "f.split = ?", selection.split
    if selection.model is not None:
        yield "EXISTS (SELECT 1 FROM model WHERE model.number = f.number AND model.name = ?)", selection.model
    if selection.policy_version is not None:
        yield "f.policy_version = ?", selection.policy_version
    if selection.min_policy_version is not None:
        yield "f.policy_number >= ?", selection.min_policy_version
    if selection.max_age is not None:
        yield "f.ended_at >= ?", time.time() - selection.max_age


def _number(version: str | None) -> float | None:
    try:
        return None if version is None else float(version)
    except ValueError:
        return None


def _unusable(path: Path, why: str) -> str:
    return f"{path}: {why}; remove it; consumers then get everything in the spool again"
