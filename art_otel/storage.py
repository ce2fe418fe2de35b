"""Storage: files by path or URL, in a folder of this machine or in an object store (`s3://`, `gs://`, `abfs://`).

Invariant: a file has its name only once it is whole, and on this machine once the disk has it. Nothing is changed in
place. Every fault names the file, without credentials: of a store as a StorageError, of this machine as an OSError.

What a URL's query says (`region`, `endpoint_override`, `scheme`) goes to pyarrow; credentials come from where the
store's own tools have them.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast
from uuid import uuid4

from art_otel.errors import StorageError

_SCHEMES: Final = ("s3://", "gs://", "gcs://", "abfs://", "abfss://")
_COPIED_AT_ONCE: Final = 8 << 20


def is_url(location: str) -> bool:
    """Whether a location is in an object store and not on this machine."""
    return location.startswith(_SCHEMES)


def join(folder: str, name: str) -> str:
    """The location of a file in a folder. The query of a URL stays at its end."""
    if not is_url(folder):
        return str(Path(folder, name))
    path, mark, query = folder.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def shown(location: str) -> str:
    """A location as people and reports see it: without the query and credentials of a URL."""
    if not is_url(location):
        return location
    scheme, _, rest = location.partition("?")[0].partition("://")
    bucket, slash, key = rest.partition("/")
    return f"{scheme}://{bucket.rpartition('@')[2]}{slash}{key}"


class Reader(Protocol):
    """A file that is read at any place."""

    def read_at(self, size: int, start: int, /) -> bytes:
        """So many bytes from `start` on, fewer where the file ends."""
        ...


@contextmanager
def open_reader(location: str) -> Generator[Reader]:
    """Open a file to read at any place."""
    with told(location):
        if is_url(location):
            with _files(location).open_input_file(_path(location)) as reader:
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


def read(location: str, start: int = 0, end: int | None = None) -> bytes:
    """The bytes of a file from `start` up to `end`, or up to its end."""
    end = size_of(location) if end is None else end
    with open_reader(location) as reader:
        data = reader.read_at((end or 0) - start, start)
    if end is None or len(data) != end - start:
        raise StorageError(f"{shown(location)}: is not there, or ends before byte {end}")
    return data


def open_file(location: str) -> Any:  # noqa: ANN401 # pyarrow ships no types
    """A file to read from, at any position, as pyarrow has it. Close it in the end."""
    from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 # slow to load

    with told(location):
        if is_url(location):
            return _files(location).open_input_file(_path(location))
        return LocalFileSystem().open_input_file(location)


def write(location: str, data: bytes, *, synced: bool = True) -> None:
    """Write a whole file, in the place of one of that name. Not `synced`, it may be gone or torn after a power loss."""
    with told(location):
        if is_url(location):
            with _files(location).open_output_stream(_path(location)) as stream:
                stream.write(data)
            return
        temporary = Path(f"{location}.{uuid4().hex}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            temporary.replace(location)
        finally:
            temporary.unlink(missing_ok=True)


def move(source: str, location: str) -> None:
    """Give a whole file its place: renamed on this machine, else copied and removed where it was."""
    with told(location):
        if is_url(location):
            with open_stream(source) as stream, _files(location).open_output_stream(_path(location)) as target:
                shutil.copyfileobj(stream, target, _COPIED_AT_ONCE)
        elif is_url(source):
            temporary = Path(f"{location}.{uuid4().hex}.tmp")
            with open_stream(source) as stream, temporary.open("wb") as target:
                shutil.copyfileobj(stream, target, _COPIED_AT_ONCE)
                os.fsync(target.fileno())
            temporary.replace(location)
        else:
            with Path(source).open("rb+") as written:
                os.fsync(written.fileno())
            Path(source).replace(location)
            return
    remove(source)


@contextmanager
def open_stream(location: str) -> Generator[BinaryIO]:
    """Open a file to read it from its beginning on."""
    with (
        told(location),
        _files(location).open_input_stream(_path(location))
        if is_url(location)
        else Path(location).open("rb") as stream,
    ):
        yield stream


def size_of(location: str) -> int | None:
    """The bytes of a file; None where there is none."""
    with told(location):
        if not is_url(location):
            path = Path(location)
            return path.stat().st_size if path.is_file() else None
        found: Any = _files(location).get_file_info(_path(location))
    return found.size if found.is_file else None


def list_folder(folder: str) -> dict[str, int]:
    """The names of the files in a folder with their sizes; nothing where there is no folder."""
    if not is_url(folder):
        with told(folder):
            found = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
            return {path.name: path.stat().st_size for path in found if path.is_file()}
    from pyarrow.fs import FileSelector  # noqa: PLC0415 # slow to load

    with told(folder):
        selector = FileSelector(_path(folder), allow_not_found=True)
        objects = cast(list[Any], _files(folder).get_file_info(selector))
    return {info.base_name: info.size for info in sorted(objects, key=lambda info: info.path) if info.is_file}


def make_folder(folder: str) -> None:
    """Make a folder on this machine; a store needs none."""
    if not is_url(folder):
        with told(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)


def remove(location: str) -> None:
    """Remove a file, if it is there."""
    with told(location), suppress(FileNotFoundError):
        if is_url(location):
            _files(location).delete_file(_path(location))
        else:
            Path(location).unlink()


def remove_folder(folder: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    with told(folder), suppress(FileNotFoundError):
        if is_url(folder):
            _files(folder).delete_dir(_path(folder))
        else:
            shutil.rmtree(folder)


def sync_folder(folder: str) -> None:
    """Wait until the disk has the names in a folder. Windows cannot open a folder, and stores need no such thing."""
    if is_url(folder) or os.name != "posix":
        return
    with told(folder):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def told(location: str) -> Generator[None]:
    """Raise what pyarrow raises of a store as a StorageError that names the location; errors of this machine do."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:
        if not is_url(location):
            raise
        problem = " ".join(str(error).split())[:300]
        raise StorageError(f"{shown(location)}: {problem}") from error


def _files(url: str) -> Any:  # noqa: ANN401 # pyarrow ships no types
    scheme, _, rest = url.partition("://")
    bucket = rest.partition("/")[0].partition("?")[0]
    query = url.partition("?")[2]
    return _store(f"{scheme}://{bucket}{'?' * bool(query)}{query}")


@lru_cache(maxsize=8)
def _store(bucket: str) -> Any:  # noqa: ANN401 # as above
    from pyarrow.fs import FileSystem  # noqa: PLC0415 # slow to load

    return FileSystem.from_uri(bucket)[0]


def _path(url: str) -> str:
    """What pyarrow calls it: bucket and key."""
    return url.partition("://")[2].partition("?")[0].rpartition("@")[2].rstrip("/")
