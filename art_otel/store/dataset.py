"""Dataset: the files of one writing, which come to stand under their final names all at once.

Invariant: a file under its final name is whole and on the disk. Until `commit` everything is in temporary files beside
the final ones; a crash leaves only those, and the next writing to the same place removes them. One writer at a time.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import glob
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.errors import UsageError
from art_otel.store.schema import DICTIONARY_LEAVES, SCHEMA

SUFFIX: Final = ".parquet"
_PARTS: Final = f"part-{'[0-9]' * 5}{SUFFIX}"  # narrow: what matches may be removed


class _Part:
    """One Parquet file under its temporary name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self.file: BinaryIO = self.temporary.open("wb")
        self.writer = pq.ParquetWriter(self.file, SCHEMA, **_writer_options())
        self.writer.add_key_value_metadata(SCHEMA.metadata)

    def finish(self) -> None:
        """Write the footer and wait until the disk has everything."""
        self.writer.close()
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def abandon(self) -> None:
        """Remove the temporary file, if commit has not renamed it."""
        self.writer.is_open = False  # else its finaliser writes a footer to the closed file
        with suppress(OSError):  # a full disk refuses what is still buffered, and nobody needs it
            self.file.close()
        self.temporary.unlink(missing_ok=True)


class Dataset:
    """A folder of `part-*.parquet`, or one `*.parquet` file, while it is written.

    Use it as a context manager; without `commit` nothing of what was there before has changed. Raises UsageError for
    a path that is an existing file of another name, OSError for what the disk refuses.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._single = self.path.suffix == SUFFIX and not self.path.is_dir()
        if self.path.is_file() and not self._single:
            raise UsageError(f"{self.path}: is a file; write to a folder or to a file named *{SUFFIX}")
        self._folder = self.path.parent if self._single else self.path
        self._parts: list[_Part] = []
        self._open = False

    def __enter__(self) -> Self:
        """Make the folder and remove what a crashed writing left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        name = glob.escape(self.path.name) if self._single else _PARTS
        for left in self._folder.glob(f".{name}.*.tmp"):
            left.unlink(missing_ok=True)
        return self

    def __exit__(self, *raised: object) -> None:
        """Remove the temporary files that commit did not rename."""
        for part in self._parts:
            part.abandon()

    def write(self, row_group: pa.Table) -> None:
        """Append a row group to the current part."""
        self._current().writer.write_table(row_group, row_group_size=max(1, row_group.num_rows))

    def end_part(self) -> None:
        """Let the next row group begin a new part; a single file has only one."""
        if self._open and not self._single:
            self._parts[-1].finish()
            self._open = False

    def commit(self) -> tuple[Path, ...]:
        """Give every file its final name and remove the parts of an older, longer dataset. The files in order."""
        if self._open or not self._parts:
            self._current().finish()
        files = tuple(part.path for part in self._parts)
        for part in self._parts:
            part.temporary.replace(part.path)
        if not self._single:
            for stale in set(self._folder.glob(_PARTS)) - set(files):
                stale.unlink()
        _sync_folder(self._folder)
        return files

    def _current(self) -> _Part:
        if not self._open:
            name = self.path if self._single else self.path / f"part-{len(self._parts):05d}{SUFFIX}"
            self._parts.append(_Part(name))
            self._open = True
        return self._parts[-1]


def _writer_options() -> dict[str, Any]:
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": _dictionary_columns(),
        "write_statistics": [field.name for field in SCHEMA if not pa.types.is_nested(field.type)],
        "store_schema": False,
    }


def _dictionary_columns() -> list[str]:
    return [
        path
        for field in SCHEMA
        for path in _leaf_paths(field.name, field.type)
        if path.removesuffix(".list.element").split(".")[-1] in DICTIONARY_LEAVES
    ]


def _leaf_paths(path: str, kind: pa.DataType) -> list[str]:
    """Parquet's paths of the leaf columns below one column."""
    if pa.types.is_list(kind):
        return _leaf_paths(f"{path}.list.element", kind.value_type)
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaf_paths(f"{path}.{field.name}", field.type)]
    return [path]


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has the new names. Windows cannot open a folder and does this by itself."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
