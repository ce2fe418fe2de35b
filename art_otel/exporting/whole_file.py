"""WholeFile: a file of an export while it is written.

Invariant: it has its name only when it is whole and on the disk. Whoever writes to one name at the same time is not in
the way, the last one's file stays; what killed processes left is removed by the next writing into the folder.
"""

import os
import platform
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from art_otel.exporting.places import check_place


def _machine() -> str:
    """Where a number means one process: containers may have one host name, and numbers of their own."""
    try:
        numbers = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        numbers = ""
    return f"{zlib.crc32((platform.node() + numbers).encode(errors='replace')):08x}"


_MACHINE: Final = _machine()
"""Processes of another one that writes to the same file system are nobody's to judge."""


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file that gets its name at the end, and leaves nothing if there is an error.

    Raises UsageError for a file of the dataset that is being exported.
    """
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left(path.parent)
    with one_of_many(path) as file:
        yield file


@contextmanager
def one_of_many(path: Path) -> Generator[BinaryIO]:
    """As `whole_file` in a folder that is there, without a look at the folder's other files, which may be many."""
    check_place(path)
    temporary = path.with_name(f".{path.name}.{_MACHINE}-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_left(folder: Path) -> None:
    """Remove what processes of this machine that were killed left in the folder."""
    for left in folder.glob(f".*.{_MACHINE}-*-????????.tmp"):
        process = left.name.split("-")[-2]
        if process.isdecimal() and not _is_alive(int(process)):
            left.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    """Whether there is such a process; always on Windows, where asking would end it."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
