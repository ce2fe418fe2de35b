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
from typing import Any, Final, Protocol, cast
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
    name, at, host = bucket.rpartition("@")
    if scheme.startswith("abfs") and name:  # a container, maybe with a password, at an account
        host = f"{name.partition(':')[0]}{at}{host}"
    return f"{scheme}://{host}{slash}{key}"


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
            files, path = _located(location)
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
            files, path = _located(location)
            return files.open_input_file(path)
        return LocalFileSystem().open_input_file(location)


def write(location: str, data: bytes | bytearray, *, synced: bool = True) -> None:
    """Write a whole file, in the place of one of that name. Not `synced`, it may be gone or torn after a power loss."""
    with told(location):
        if is_url(location):
            files, path = _located(location)
            with files.open_output_stream(path) as stream:
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
    """Give a whole file its place: renamed on this machine or in a store, or copied to a store and removed here."""
    with told(location):
        if is_url(source):
            files, path = _located(location)
            files.move(_located(source)[1], path)
        elif is_url(location):
            files, path = _located(location)
            with Path(source).open("rb") as file, files.open_output_stream(path) as target:
                shutil.copyfileobj(file, target, _COPIED_AT_ONCE)
            Path(source).unlink()
        else:
            with Path(source).open("rb+") as written:
                os.fsync(written.fileno())
            Path(source).replace(location)


def size_of(location: str) -> int | None:
    """The bytes of a file; None where there is none."""
    with told(location):
        if not is_url(location):
            path = Path(location)
            return path.stat().st_size if path.is_file() else None
        files, path = _located(location)
        info = files.get_file_info(path)
    return info.size if info.is_file else None


def list_folder(folder: str) -> dict[str, int]:
    """The names of the files in a folder with their sizes; nothing where there is no folder."""
    if not is_url(folder):
        with told(folder):
            paths = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
            return {path.name: path.stat().st_size for path in paths if path.is_file()}
    from pyarrow.fs import FileSelector  # noqa: PLC0415 # slow to load

    with told(folder):
        files, path = _located(folder)
        objects = cast(list[Any], files.get_file_info(FileSelector(path, allow_not_found=True)))
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
            files, path = _located(location)
            files.delete_file(path)
        else:
            Path(location).unlink()


def remove_folder(folder: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    with told(folder), suppress(FileNotFoundError):
        if is_url(folder):
            files, path = _located(folder)
            files.delete_dir(path)
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


def _located(url: str) -> tuple[Any, str]:
    """The file system of a URL, and what pyarrow calls the file there: the bucket and the key."""
    address, mark, query = url.partition("?")
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    files, root = _store(f"{scheme}://{bucket}{mark}{query}")
    return files, f"{root}/{key}".rstrip("/")


@lru_cache(maxsize=8)
def _store(bucket: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem  # noqa: PLC0415 # slow to load

    files, root = FileSystem.from_uri(bucket)
    return files, root.rstrip("/")
