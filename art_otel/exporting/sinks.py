"""Sinks: records to files.

Invariant: a file has its name only when it is whole and on the disk.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.errors import UsageError
from art_otel.exporting.whole_file import one_of_many, remove_left, whole_file

_GROUP_ROWS: Final = 1024
_GROUP_BYTES: Final = 32 * 2**20
_NUMBER_BYTES: Final = 32
"""What a number in a list costs, about, until Arrow has it."""


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A record a line, as JSON: records are JSON values. NaN and infinities are null."""

    suffix: str = ".jsonl"

    def write(self, records: Iterator[Any], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the lines."""
        count = 0
        encoder = msgspec.json.Encoder()
        with whole_file(out) as file:
            for record in records:
                file.write(encoder.encode(record) + b"\n")
                count += 1
        return count, (out,)


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A record a row, records are dicts. The schema is explicit: readers differ on inferred ones.

    Lists of numbers may be numpy's arrays, which take a tenth of the memory until they are written.
    """

    schema: pa.Schema
    suffix: str = ".parquet"

    def write(self, records: Iterator[Any], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the rows, in row groups of 1,024 or, where rows are large, of about 32 MB."""
        count = 0
        with whole_file(out) as file, pq.ParquetWriter(file, self.schema, compression="zstd") as writer:
            for rows in _row_groups(records):
                writer.write_table(pa.Table.from_pylist(rows, schema=self.schema))
                count += len(rows)
        return count, (out,)


@dataclass(frozen=True, slots=True)
class Folder:
    """Several files: records are (path below the folder, bytes), those of one path following each other."""

    suffix: str = ""

    def write(self, records: Iterator[tuple[str, bytes]], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Append each record to its file. Raises UsageError for a path that leads out of the folder or comes back."""
        count = 0
        done: dict[str, Path] = {}
        folders: set[Path] = set()
        record = next(records, None)
        while record is not None:
            name = record[0]
            if name in done:
                raise UsageError(f"{name!r}: the records of a file have to follow each other")
            done[name] = path = _below(out, name)
            if path.parent not in folders:
                folders.add(path.parent)
                path.parent.mkdir(parents=True, exist_ok=True)
                remove_left(path.parent)
            with one_of_many(path) as file:
                while record is not None and record[0] == name:
                    file.write(record[1])
                    count += 1
                    record = next(records, None)
        return count, tuple(done.values())


def _row_groups(records: Iterator[Any]) -> Iterator[list[Any]]:
    rows: list[Any] = []
    size = 0
    for record in records:
        rows.append(record)
        size += _size(record)
        if len(rows) == _GROUP_ROWS or size >= _GROUP_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _size(value: Any) -> int:  # noqa: ANN401 # whatever a column takes
    """How many bytes a value is in memory, about."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple) and value:
        return len(value) * _NUMBER_BYTES if isinstance(value[0], int | float) else sum(map(_size, value))
    return getattr(value, "nbytes", _NUMBER_BYTES)


def _below(folder: Path, name: str) -> Path:
    if not name.isprintable():
        raise UsageError(f"{name!r}: no name of a file")
    path, top = (folder / name).resolve(), folder.resolve()
    if path == top or not path.is_relative_to(top):
        raise UsageError(f"{name!r}: leads out of {folder}")
    return folder / name
