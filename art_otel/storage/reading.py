"""Reading: the bytes of a file, and which content it has.

Invariant: fewer bytes than were asked for are an error, and never taken for all of them.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import os
from collections.abc import Generator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

from art_otel.errors import StorageError
from art_otel.storage.buckets import etag_of, located, told
from art_otel.storage.locations import is_url, shown


class Reader(Protocol):
    """A file that is read at any place."""

    def read_at(self, size: int, start: int, /) -> bytes:
        """So many bytes from `start` on, fewer where the file ends."""
        ...

    def size(self) -> int:
        """How many bytes it has."""
        ...


@contextmanager
def open_reader(location: str) -> Generator[Reader]:
    """Open a file to read at any place."""
    with told(location):
        if is_url(location):
            files, path = located(location)
            with files.open_input_file(path) as reader:
                yield reader
        else:
            with Path(location).open("rb", buffering=0) as file:
                yield _LocalReader(file)


class _LocalReader:
    def __init__(self, file: FileIO) -> None:
        self._file = file

    def read_at(self, size: int, start: int, /) -> bytes:
        self._file.seek(start)
        return self._file.read(size) or b""

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size


def read(location: str, start: int = 0, end: int | None = None) -> bytes:
    """The bytes of a file from `start` up to `end`, or up to its end."""
    with open_reader(location) as reader:
        end = reader.size() if end is None else end
        data = reader.read_at(end - start, start)
    if len(data) != end - start:
        raise StorageError(f"{shown(location)}: ends before byte {end}")
    return data


def open_file(location: str) -> Any:  # noqa: ANN401 # pyarrow ships no types
    """A file to read from, at any position, as pyarrow has it. Close it in the end."""
    from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 # slow to load

    with told(location):
        if is_url(location):
            files, path = located(location)
            return files.open_input_file(path)
        return LocalFileSystem().open_input_file(location)


def size_of(location: str) -> int | None:
    """The bytes of a file; None where there is none."""
    with told(location):
        if not is_url(location):
            path = Path(location)
            return path.stat().st_size if path.is_file() else None
        files, path = located(location)
        info = files.get_file_info(path)
    return info.size if info.is_file else None


def version_of(location: str) -> tuple[object, ...] | None:
    """What is equal while a file is the same: its size, and its ETag, or time and inode. None where there is none."""
    try:
        if not is_url(location):
            status = Path(location).stat()
            return (status.st_size, status.st_mtime_ns, status.st_ino)
        files, path = located(location)
        with files.open_input_file(path) as file:
            return (file.size(), etag_of(file) or files.get_file_info(path).mtime_ns)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, NotImplementedError):
        with told(location):
            raise
