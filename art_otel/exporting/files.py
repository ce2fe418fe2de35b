"""Files: where an export may write, and the sinks that write its records.

Invariant: while an export reads a dataset, no file of the dataset is replaced, and no Parquet file is put into a folder
that is read. A file gets its name only when it is complete and on the disk. If two exports write to one name, the later
one wins.

Sinks choose their files' names only while they write, so the files that are read are kept in a context variable for
`whole_file`.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.data.sources import Sources, list_sources
from art_otel.errors import UsageError
from art_otel.store import SUFFIX, row_groups

Row: TypeAlias = dict[str, Any]
"""A row of a Parquet file, by the names of its columns."""

_GROUP_ROWS: Final = 1024
_GROUP_BYTES: Final = 32 * 2**20
_NUMBER_BYTES: Final = 32
"""About how many bytes a number in a Python list takes, before it is in an Arrow array."""


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Writes one JSON record per line. NaN and infinities become null."""

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
    """Writes one record (a dict) per row. The schema is explicit, because inferred schemas differ between files.

    Lists of numbers may be numpy arrays, which take a tenth of the memory before they are written.
    """

    schema: pa.Schema
    suffix: str = ".parquet"

    def write(self, records: Iterator[Any], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the rows, in row groups of 1,024 rows, or of about 32 MB if rows are large."""
        count = 0
        with whole_file(out) as file, pq.ParquetWriter(file, self.schema, compression="zstd") as writer:
            for rows in _row_groups(records):
                writer.write_table(pa.Table.from_pylist(rows, schema=self.schema))
                count += len(rows)
        return count, (out,)


@dataclass(frozen=True, slots=True)
class Folder:
    """Writes several files. A record is (path below the folder, bytes); records of one path must follow each other."""

    suffix: str = ""

    def write(self, records: Iterator[tuple[str, bytes]], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Append each record to its file. Raises UsageError for a path outside the folder, or one that was closed."""
        count = 0
        done: dict[str, Path] = {}
        record = next(records, None)
        while record is not None:
            name = record[0]
            if name in done:
                raise UsageError(f"{name!r}: the records of one file must be consecutive")
            done[name] = path = _below(out, name)
            with whole_file(path) as file:
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
    """About how many bytes a value takes in memory."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple) and value:
        return len(value) * _NUMBER_BYTES if isinstance(value[0], int | float) else sum(map(_size, value))
    return getattr(value, "nbytes", _NUMBER_BYTES)


def _below(folder: Path, name: str) -> Path:
    if not name.isprintable():
        raise UsageError(f"{name!r}: not a file name")
    path, top = (folder / name).resolve(), folder.resolve()
    if path == top or not path.is_relative_to(top):
        raise UsageError(f"{name!r}: leads out of {folder}")
    return folder / name


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """Open a file that gets its name only at the end, and that is removed after an error.

    Raises UsageError for a file of the dataset that is being exported.
    """
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


_read: Final[ContextVar[frozenset[Path]]] = ContextVar("read", default=frozenset[Path]())
"""The files, and the folders, that an export reads; all paths are resolved."""


@contextmanager
def reading(sources: Sources) -> Generator[None]:
    """A context in which `check_place` protects the sources. Raises StoreError for a path without trajectory files."""
    read: set[Path] = set()
    for source in list_sources(sources):
        if isinstance(source, str | Path):
            files = {Path(group.file).resolve() for group in row_groups(source)}
            read |= {Path(source).resolve(), *files}
            if not Path(source).is_file():
                read |= {file.parent for file in files}
    before = _read.set(frozenset(read))
    try:
        yield
    finally:
        _read.reset(before)


def check_place(path: Path) -> None:
    """Raise UsageError for a path that would replace a file that is read, or add a file to a folder that is read."""
    target, read = path.resolve(), _read.get()
    if target in read or (path.suffix == SUFFIX and target.parent in read):
        raise UsageError(f"{path}: is inside the dataset that is read; choose another folder")
