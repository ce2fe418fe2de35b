"""Database: experiences in an SQLite file, with the tables that Trinity-RFT's `SQLExperienceStorage` makes and reads.

Invariant: rows are numbered from 1 in the order of the experiences; tables, columns and indexes are Trinity's own.

Source: `trinity/buffer/schema/sql_schema.py` of Trinity-RFT 0.6.0, `ExperienceModel` and `BlobModel`, and of 0.5.2,
which has the bytes in the table itself.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from msgspec import Meta

from art_otel.exporting import whole_file
from art_otel_trinity.experiences import ExperiencesConfig, TrinityExperience
from art_otel_trinity.payloads import to_bytes

Release: TypeAlias = Literal["0.6", "0.5"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseConfig(ExperiencesConfig):
    """Options of `experiences`."""

    table: Annotated[
        str,
        Meta(
            pattern=r"^(?![Ss][Qq][Ll][Ii][Tt][Ee]_)[A-Za-z_][A-Za-z0-9_]*\Z",
            description="name of the table, Trinity's name of the buffer",
        ),
    ] = "experience_buffer"
    release: Annotated[
        Release,
        Meta(description="the Trinity release that reads the file; since 0.6, the bytes have a table of their own"),
    ] = "0.6"


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A row for each experience."""

    config: DatabaseConfig
    suffix: str = ".db"

    def write(self, records: Iterator[TrinityExperience], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the rows."""
        table, layout = self.config.table, _LAYOUTS[self.config.release]
        with whole_file(out) as file, closing(sqlite3.connect(file.name, isolation_level=None)) as database:
            # A file that is not finished has no name: nothing has to be rolled back.
            database.execute("PRAGMA journal_mode = OFF")
            database.executescript(layout.tables.format(table=table))
            database.execute("BEGIN")
            count = _insert(database, [row.format(table=table) for row in layout.rows], records)
            database.execute("COMMIT")
            for column in layout.indexed:
                database.execute(f'CREATE INDEX "ix_{table}_{column}" ON "{table}" ({column})')
        return count, (out,)


def _insert(database: sqlite3.Connection, rows: list[str], records: Iterator[TrinityExperience]) -> int:
    """Execute the statements of `rows` for each record. Return the number of records."""
    number = 0
    for number, record in enumerate(records, start=1):
        values = {
            "id": number,
            "task": record.eid.task,
            "run": record.eid.run,
            "suffix": record.eid.suffix,
            "version": record.info["model_version"],
            "reward": record.reward,
            "bytes": to_bytes([record]),
        }
        for row in rows:
            database.execute(row, values)
    return number


class _Layout(NamedTuple):
    """The tables of a release, how an experience is put into them, and the columns that have an index.

    The column of the time stays NULL: Trinity does not read it, and the time of the export would make equal exports
    differ.
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
