"""Storage: files by path or URL, in a folder of this machine or in an object store (`s3://`, `gs://`, `abfs://`).

Invariant: a file has its name only once it is whole, and on this machine once the disk has it. Nothing is changed in
place. Every fault is a StorageError that names the file, without credentials.

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
from pathlib import Path
from typing import Any, Final, cast
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


def read(location: str, start: int = 0, end: int | None = None) -> bytes:
    """The bytes of a file from `start` up to `end`, or up to its end."""
    with told(location), _files(location).open_input_file(_path(location)) as file:
        size = (file.size() if end is None else end) - start
        data: bytes = file.read_at(size, start)
    if len(data) != size:
        raise StorageError(f"{shown(location)}: ends before byte {end}")
    return data


def open_file(location: str) -> Any:  # noqa: ANN401 # pyarrow ships no types
    """A file to read from, at any position, as pyarrow has it. Close it in the end."""
    with told(location):
        return _files(location).open_input_file(_path(location))


def write(location: str, data: bytes) -> None:
    """Write a whole file, in the place of one of that name."""
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
                os.fsync(file.fileno())
            temporary.replace(location)
        finally:
            temporary.unlink(missing_ok=True)


def move(file: Path, location: str) -> None:
    """Give a whole file of this machine its place: renamed, or uploaded and removed here."""
    with told(location):
        if is_url(location):
            with file.open("rb") as source, _files(location).open_output_stream(_path(location)) as target:
                shutil.copyfileobj(source, target, _COPIED_AT_ONCE)
            file.unlink()
            return
        with file.open("rb+") as written:
            os.fsync(written.fileno())
        file.replace(location)


def size_of(location: str) -> int | None:
    """The bytes of a file; None where there is none."""
    with told(location):
        found: Any = _files(location).get_file_info(_path(location))
    return found.size if found.is_file else None


def list_folder(folder: str) -> dict[str, int]:
    """The names of the files in a folder with their sizes; nothing where there is no folder."""
    from pyarrow.fs import FileSelector  # noqa: PLC0415 # slow to load

    with told(folder):
        selector = FileSelector(_path(folder), allow_not_found=True)
        found = cast(list[Any], _files(folder).get_file_info(selector))
    return {info.base_name: info.size for info in sorted(found, key=lambda info: info.path) if info.is_file}


def make_folder(folder: str) -> None:
    """Make a folder on this machine; a store needs none."""
    if not is_url(folder):
        with told(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)


def remove(location: str) -> None:
    """Remove a file, if it is there."""
    with told(location), suppress(FileNotFoundError):
        _files(location).delete_file(_path(location))


def remove_folder(folder: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    with told(folder), suppress(FileNotFoundError):
        _files(folder).delete_dir(_path(folder))


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
    """Raise what pyarrow and the system raise as a StorageError that names the location."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:
        problem = " ".join(str(error).split())[:300]
        raise StorageError(f"{shown(location)}: {problem}") from error


def _files(location: str) -> Any:  # noqa: ANN401 # pyarrow ships no types
    if is_url(location):
        scheme, _, rest = location.partition("://")
        bucket = rest.partition("/")[0].partition("?")[0]
        query = location.partition("?")[2]
        return _store(f"{scheme}://{bucket}{'?' * bool(query)}{query}")
    from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 # slow to load

    return LocalFileSystem()


@lru_cache(maxsize=8)
def _store(bucket: str) -> Any:  # noqa: ANN401 # as above
    from pyarrow.fs import FileSystem  # noqa: PLC0415 # slow to load

    return FileSystem.from_uri(bucket)[0]


def _path(location: str) -> str:
    """What pyarrow calls it: bucket and key, or the path on this machine."""
    if not is_url(location):
        return str(Path(location).absolute())
    return location.partition("://")[2].partition("?")[0].rpartition("@")[2].rstrip("/")
