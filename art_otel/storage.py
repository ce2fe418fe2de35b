"""Storage: files by path or URL, in a folder of this machine or in an object store (`s3://`, `gs://`, `abfs://`).

Invariant: a file has its name only once it is whole, and on this machine once the disk has it. Nothing is changed in
place, and fewer bytes than were asked for are an error, never taken for all of them. Every fault names the file,
without credentials: of a store as a StorageError, of this machine as an OSError.

An object is given to a store in one call, whole, or not at all: pyarrow publishes what a stream has got so far when the
stream is dropped (apache/arrow issue 40502), and its own `copy_files` tells nobody of a failed upload. What is not
there needs no removing; in a store a folder is what its files' keys begin with. What a URL's query says (`region`,
`endpoint_override`, `scheme`) goes to pyarrow; credentials come from where the store's own tools have them. A bucket is
opened in the process that uses it, which inherits none.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any, Final, Protocol, cast
from uuid import uuid4

from art_otel.errors import StorageError

_SCHEMES: Final = ("s3://", "gs://", "gcs://", "abfs://", "abfss://")


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


_OPTIONS: Final = {
    "gs": "retry_limit_seconds=60",  # its own limit is a quarter of an hour
    "s3": "allow_delayed_open=true",  # a small object is one request instead of three
}


_FAULTS: Final = (OSError, ValueError, NotImplementedError)


def open_bucket(url: str) -> tuple[Any, str]:
    """The file system of a bucket's URL, and what the bucket is called there."""
    scheme, _, _ = url.partition("://")
    scheme, url = ("gs", f"gs{url.removeprefix(scheme)}") if scheme == "gcs" else (scheme, url)
    option = _OPTIONS.get(scheme)
    if option is not None and f"{option.partition('=')[0]}=" not in url:
        url = f"{url}{'&' if '?' in url else '?'}{option}"
    return _open(url, os.getpid())


@lru_cache(maxsize=8)
def _open(url: str, _process: int) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem  # noqa: PLC0415 # slow to load

    files, root = FileSystem.from_uri(url)
    return files, root.rstrip("/")


def located(url: str) -> tuple[Any, str]:
    """The file system of a URL, and what pyarrow calls the file there: the bucket and the key."""
    address, mark, query = url.partition("?")
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    files, root = open_bucket(f"{scheme}://{bucket}{mark}{query}")
    return files, f"{root}/{key}".rstrip("/")


def etag_of(opened: Any) -> str | None:  # noqa: ANN401 # a file of pyarrow
    """What the store calls the content of an open file; None where it says nothing."""
    metadata: dict[str | bytes, str | bytes] = opened.metadata() or {}
    for name, value in metadata.items():
        if _text(name).lower() == "etag":
            return _text(value)
    return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@contextmanager
def storage_errors(location: str) -> Generator[None]:
    """Raise what pyarrow raises of a store as a StorageError that names the location; errors of this machine do."""
    try:
        yield
    except Exception as error:  # Azure's faults of credentials are of pyarrow's own class, which is slow to load
        if not is_url(location) or not (isinstance(error, _FAULTS) or type(error).__module__.startswith("pyarrow")):
            raise
        problem = " ".join(str(error).split())[:300]
        raise StorageError(f"{shown(location)}: {problem}") from error


class Reader(Protocol):
    """A file that is read at any place."""

    def read_at(self, size: int, start: int, /) -> bytes:
        """So many bytes from `start` on, fewer where the file ends."""
        ...

    def size(self) -> int:
        """The size of the file in bytes."""
        ...


@contextmanager
def open_reader(location: str) -> Generator[Reader]:
    """Open a file to read at any place."""
    with storage_errors(location):
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

    with storage_errors(location):
        if is_url(location):
            files, path = located(location)
            return files.open_input_file(path)
        return LocalFileSystem().open_input_file(location)


def size_of(location: str) -> int | None:
    """The bytes of a file; None where there is none."""
    with storage_errors(location):
        if not is_url(location):
            path = Path(location)
            return path.stat().st_size if path.is_file() else None
        files, path = located(location)
        info = files.get_file_info(path)
    return info.size if info.is_file else None


def version_of(location: str) -> tuple[object, ...] | None:
    """The identity of a file: its size with its ETag, or with its time and inode; None where there is no file."""
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
        with storage_errors(location):
            raise


_COPIED_AT_ONCE: Final = 8 << 20


def write(location: str, data: bytes | bytearray, *, synced: bool = True) -> None:
    """Write a whole file, in the place of one of that name. Not `synced`, it may be gone or torn after a power loss."""
    with storage_errors(location):
        if is_url(location):
            _put(location, data)
        else:
            _write_here(Path(location), data, synced=synced)


def _write_here(path: Path, data: bytes | bytearray, *, synced: bool) -> None:
    temporary = Path(f"{path}.{uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _put(location: str, data: Any) -> None:  # noqa: ANN401 # bytes, or a buffer of pyarrow
    files, path = located(location)
    stream = files.open_output_stream(path)
    stream.write(data)  # all of it: see above
    stream.close()


@contextmanager
def staged(location: str) -> Generator[Path]:
    """Where on this machine a file is written that becomes this one at the end, if nothing is raised."""
    if not is_url(location):
        yield Path(location)
        return
    with tempfile.TemporaryDirectory(prefix="art-otel-") as folder:
        path = Path(folder, "staged")
        yield path
        move(str(path), location)


def move(source: str, location: str) -> None:
    """Give a whole file its place. A file of this machine is no longer where it was.

    An object stays there until its folder is removed: so what was moved before a kill is still known to be whole.
    """
    if is_url(source) and is_url(location):
        _move_between_stores(source, location)
    elif is_url(source):
        temporary = Path(f"{location}.{uuid4().hex}.tmp")
        try:
            _download(source, temporary)
            _rename(temporary, location)
        finally:
            temporary.unlink(missing_ok=True)
    elif is_url(location):
        with storage_errors(location):
            _upload(Path(source), location)
        Path(source).unlink()
    else:
        _rename(Path(source), location)


def _move_between_stores(source: str, location: str) -> None:
    with storage_errors(location):
        files, path = located(location)
        source_files, source_path = located(source)
        if source_files.equals(files):
            files.copy_file(source_path, path)
            return
    with staged(location) as path:
        _download(source, path)


def _rename(path: Path, location: str) -> None:
    with path.open("rb+") as written:
        os.fsync(written.fileno())
    path.replace(location)


def _upload(path: Path, location: str) -> None:
    if not path.stat().st_size:  # nobody can map it
        _put(location, b"")
        return
    import pyarrow as pa  # noqa: PLC0415 # slow to load

    with pa.memory_map(str(path)) as mapped:
        _put(location, mapped.read_buffer())


def _download(source: str, path: Path) -> None:
    with storage_errors(source):
        files, stored = located(source)
        with files.open_input_stream(stored) as stream, path.open("wb") as file:
            shutil.copyfileobj(stream, file, _COPIED_AT_ONCE)


def list_folder(folder: str) -> dict[str, int]:
    """The names of the files in a folder with their sizes; nothing where there is no folder."""
    if not is_url(folder):
        with storage_errors(folder):
            paths = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
            return {path.name: path.stat().st_size for path in paths if path.is_file()}
    from pyarrow.fs import FileSelector  # noqa: PLC0415 # slow to load

    with storage_errors(folder):
        files, path = located(folder)
        objects = cast(list[Any], files.get_file_info(FileSelector(path, allow_not_found=True)))
    return {info.base_name: info.size for info in sorted(objects, key=lambda info: info.path) if info.is_file}


def make_folder(folder: str) -> None:
    """Make a folder on this machine; a store needs none."""
    if not is_url(folder):
        with storage_errors(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)


def remove(location: str) -> None:
    """Remove a file, if it is there."""
    with storage_errors(location), suppress(FileNotFoundError):
        if is_url(location):
            files, path = located(location)
            files.delete_file(path)
        else:
            Path(location).unlink()


def remove_folder(folder: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    with storage_errors(folder), suppress(FileNotFoundError):
        if is_url(folder):
            files, path = located(folder)
            files.delete_dir(path)
        else:
            shutil.rmtree(folder)


def sync_folder(folder: str) -> None:
    """Wait until the disk has the names in a folder. Windows cannot open a folder, and stores need no such thing."""
    if is_url(folder) or os.name != "posix":
        return
    with storage_errors(folder):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
