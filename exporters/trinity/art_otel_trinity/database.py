"""Database: experiences in an SQLite file, as Trinity-RFT's `SQLExperienceStorage` makes and reads it.

Invariant: rows are numbered from 1 in the order of the experiences; tables, columns and indexes are Trinity's own.

Source: `trinity/buffer/schema/sql_schema.py` of Trinity-RFT 0.6.0, `ExperienceModel` and `BlobModel`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from art_otel.exporting import whole_file
from art_otel_trinity.experience import Experience
from art_otel_trinity.wire import to_bytes

_TABLES: Final = """
CREATE TABLE "{table}" (
    id INTEGER NOT NULL,
    timestamp DATETIME DEFAULT CURRENT_TIMESTAMP,
    task_id VARCHAR(64),
    run_id INTEGER,
    msg_id VARCHAR(64),
    model_version INTEGER,
    reward FLOAT,
    consumed INTEGER,
    PRIMARY KEY (id)
);
CREATE TABLE "{table}_blob" (
    id INTEGER NOT NULL,
    experience_bytes BLOB NOT NULL,
    PRIMARY KEY (id)
);
"""
_INDEXED: Final = ("task_id", "run_id", "msg_id", "model_version", "reward", "consumed")


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """An experience a row. `table` is a plain name, as its config checks."""

    table: str
    suffix: str = ".db"

    def write(self, records: Iterator[Experience], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the rows."""
        with whole_file(out) as file, closing(sqlite3.connect(file.name, isolation_level=None)) as database:
            # A file that is not finished has no name: nothing has to be rolled back.
            database.execute("PRAGMA journal_mode = OFF")
            database.executescript(_TABLES.format(table=self.table))
            database.execute("BEGIN")
            count = self._insert(database, records)
            database.execute("COMMIT")
            for column in _INDEXED:
                database.execute(f'CREATE INDEX "ix_{self.table}_{column}" ON "{self.table}" ({column})')
        return count, (out,)

    def _insert(self, database: sqlite3.Connection, records: Iterator[Experience]) -> int:
        # Nobody reads the time; that of the export would make equal exports differ.
        row = f'INSERT INTO "{self.table}" VALUES (?, NULL, ?, ?, ?, ?, ?, 0)'  # noqa: S608 # a plain name
        blob = f'INSERT INTO "{self.table}_blob" VALUES (?, ?)'  # noqa: S608 # as above
        number = 0
        for number, record in enumerate(records, start=1):
            eid, version = record.eid, record.model_version
            database.execute(row, (number, eid.task, eid.run, eid.suffix, version, record.reward))
            database.execute(blob, (number, to_bytes([record])))
        return number
