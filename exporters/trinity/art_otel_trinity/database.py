"""Database: experiences in an SQLite file, as Trinity-RFT's `SQLExperienceStorage` makes and reads it.

Invariant: rows are numbered from 1 in the order of the experiences; tables, columns and indexes are Trinity's own.

Source: `trinity/buffer/schema/sql_schema.py` of Trinity-RFT 0.6.0, `ExperienceModel` and `BlobModel`, and of 0.5.2,
which has the bytes in the table itself.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from art_otel.exporting import whole_file
from art_otel_trinity.config import Release
from art_otel_trinity.experience import Experience
from art_otel_trinity.wire import to_bytes


class _Layout(NamedTuple):
    """The tables of a release, how an experience is put into them, and the columns that have an index.

    Nobody reads the time; that of the export would make equal exports differ.
    """

    tables: str
    rows: tuple[str, ...]
    indexed: tuple[str, ...]


def _table(name: str, *columns: str) -> str:
    lines = ",\n    ".join(("id INTEGER NOT NULL", *columns, "PRIMARY KEY (id)"))
    return f'CREATE TABLE "{name}" (\n    {lines}\n);\n'


_IDS: Final = (
    "timestamp DATETIME DEFAULT CURRENT_TIMESTAMP",
    "task_id VARCHAR(64)",
    "run_id INTEGER",
    "msg_id VARCHAR(64)",
    "model_version INTEGER",
)
_COUNTS: Final = ("reward FLOAT", "consumed INTEGER")
_BLOBS_APART: Final = _Layout(
    tables=_table("{table}", *_IDS, *_COUNTS) + _table("{table}_blob", "experience_bytes BLOB NOT NULL"),
    rows=(
        'INSERT INTO "{table}" VALUES (:id, NULL, :task, :run, :suffix, :version, :reward, 0)',
        'INSERT INTO "{table}_blob" VALUES (:id, :bytes)',
    ),
    indexed=("task_id", "run_id", "msg_id", "model_version", "reward", "consumed"),
)
_ONE_TABLE: Final = _Layout(
    tables=_table("{table}", *_IDS, "experience_bytes BLOB", *_COUNTS),
    rows=('INSERT INTO "{table}" VALUES (:id, NULL, :task, :run, :suffix, :version, :bytes, :reward, 0)',),
    indexed=("task_id", "run_id", "msg_id", "model_version", "consumed"),
)
_LAYOUTS: Final[Mapping[Release, _Layout]] = {"0.6": _BLOBS_APART, "0.5": _ONE_TABLE}


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """An experience a row. `table` is a plain name, as its config checks."""

    table: str
    release: Release
    suffix: str = ".db"

    def write(self, records: Iterator[Experience], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the rows."""
        layout = _LAYOUTS[self.release]
        with whole_file(out) as file, closing(sqlite3.connect(file.name, isolation_level=None)) as database:
            # A file that is not finished has no name: nothing has to be rolled back.
            database.execute("PRAGMA journal_mode = OFF")
            database.executescript(layout.tables.format(table=self.table))
            database.execute("BEGIN")
            count = self._insert(database, layout, records)
            database.execute("COMMIT")
            for column in layout.indexed:
                database.execute(f'CREATE INDEX "ix_{self.table}_{column}" ON "{self.table}" ({column})')
        return count, (out,)

    def _insert(self, database: sqlite3.Connection, layout: _Layout, records: Iterator[Experience]) -> int:
        rows = [row.format(table=self.table) for row in layout.rows]
        number = 0
        for number, record in enumerate(records, start=1):
            values = {
                "id": number,
                "task": record.eid.task,
                "run": record.eid.run,
                "suffix": record.eid.suffix,
                "version": record.model_version,
                "reward": record.reward,
                "bytes": to_bytes([record]),
            }
            for row in rows:
                database.execute(row, values)
        return number
