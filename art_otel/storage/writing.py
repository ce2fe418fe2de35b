"""Writing: whole files.

Invariant: an object is given to a store in one call, whole, or not at all: pyarrow publishes what a stream has got so
far when the stream is dropped (apache/arrow issue 40502), and its own `copy_files` tells nobody of a failed upload.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from art_otel.storage.buckets import located, told
from art_otel.storage.locations import is_url

_COPIED_AT_ONCE: Final = 8 << 20


def write(location: str, data: bytes | bytearray, *, synced: bool = True) -> None:
    """Write a whole file, in the place of one of that name. Not `synced`, it may be gone or torn after a power loss."""
    with told(location):
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
        with told(location):
            _upload(Path(source), location)
        Path(source).unlink()
    else:
        _rename(Path(source), location)


def _move_between_stores(source: str, location: str) -> None:
    with told(location):
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
    with told(source):
        files, stored = located(source)
        with files.open_input_stream(stored) as stream, path.open("wb") as file:
            shutil.copyfileobj(stream, file, _COPIED_AT_ONCE)
