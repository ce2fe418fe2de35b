"""Files: where an export may write, and how its records get there.

Invariant: while an export reads a dataset no file of the dataset is replaced, and no Parquet file is put into a folder
that is read. A file has its name only when it is whole and on the disk. Whoever writes to one name at the same time is
not in the way, the last one's file stays.

Sinks name their files only while they write, so what is read is kept where `whole_file` can ask for it.
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
"""What a number in a list costs, about, until Arrow has it."""


@dataclass(frozen=True, slots=True)
class JsonLines:
    """One record per line, as JSON. Records are JSON values. NaN and infinities become null."""

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
    """One record per row; records are dicts. The schema is explicit, because readers differ on inferred schemas.

    Lists of numbers may be numpy arrays. They take a tenth of the memory until they are written.
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
    """Several files. Records are (path below the folder, bytes). Records of one path must follow each other."""

    suffix: str = ""

    def write(self, records: Iterator[tuple[str, bytes]], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Append each record to its file. Raises UsageError for a path outside the folder, or one that comes back."""
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
        raise UsageError(f"{name!r}: not a file name")
    path, top = (folder / name).resolve(), folder.resolve()
    if path == top or not path.is_relative_to(top):
        raise UsageError(f"{name!r}: leads out of {folder}")
    return folder / name


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file that gets its name at the end, and leaves nothing if there is an error.

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
"""Files, and folders whose files are read, all resolved."""


@contextmanager
def reading(sources: Sources) -> Generator[None]:
    """Within it `check_place` keeps the sources safe. Raises StoreError for a path without trajectory files."""
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
    """Raise UsageError for a file that would replace one that is read, or become one of a folder's that is read."""
    target, read = path.resolve(), _read.get()
    if target in read or (path.suffix == SUFFIX and target.parent in read):
        raise UsageError(f"{path}: is inside the dataset that is read; choose another folder")
