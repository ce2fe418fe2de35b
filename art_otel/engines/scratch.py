"""Scratch: the folder in which a conversion keeps unfinished work, so that one that was killed is gone on with.

Invariant: only one conversion works in an output folder at a time; work is taken up only when the inputs and settings
are the same, and what is in the folder was written whole (files get their names when they are complete). A checkpoint
is removed when the conversion ended well, or with an error that it would meet again.
"""

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, TypeVar, get_origin
from uuid import uuid4

import msgspec

from art_otel.errors import SourceError, StoreError, UsageError
from art_otel.sources import Input

try:
    import fcntl
except ImportError:  # Windows has none; there nobody is warned of a second conversion
    fcntl = None

PREFIX: Final = ".art-otel-scratch"
_LOCK: Final = f"{PREFIX}.lock"
_IDENTITY: Final = "identity"
CHECKPOINT: Final = "joined"
"""The record that makes the folder one to go on with: the result of phase one."""

_Kept = TypeVar("_Kept")
_Place: TypeAlias = tuple[int, int]

_held: Final[set[_Place]] = set()
"""The folders in which this process converts: the system's lock is the process's, whichever thread asks."""
_holding: Final = threading.Lock()


class Scratch:
    """`folder` is gone when the conversion ends well. `keep` and `kept` store plain records in it under a name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def new_folder(self) -> Path:
        """A folder that no other process writes to, not even one that a killed conversion left behind."""
        folder = self.folder / uuid4().hex
        folder.mkdir(mode=0o700)
        return folder

    def keep(self, name: str, record: object) -> None:
        """Write a record. The disk has it before it has its name."""
        unfinished = self.folder / f"{name}.{uuid4().hex}"
        with unfinished.open("wb") as file:
            file.write(msgspec.msgpack.encode(record))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.folder / name)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to go on with."""
        return all((self.folder / name).exists() for name in (_IDENTITY, CHECKPOINT))

    def clear(self) -> None:
        """Remove all but whose work it is, the checkpoint first."""
        (self.folder / CHECKPOINT).unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _IDENTITY:
                path.unlink()

    def remove(self) -> None:
        """Remove the folder, first what makes it one to go on with: nobody takes up a half of it."""
        with suppress(OSError):  # as below
            (self.folder / _IDENTITY).unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kept(self, name: str, kind: type[_Kept]) -> _Kept | None:
        """The record of this name; None when there is none that can be read."""
        try:
            return msgspec.msgpack.decode((self.folder / name).read_bytes(), type=kind, dec_hook=_counter)
        except (OSError, msgspec.DecodeError):
            return None


def _counter(kind: type[Any], value: Any) -> Any:  # noqa: ANN401 # msgspec's own signature
    if get_origin(kind) is Counter:
        return Counter[str](value)
    raise NotImplementedError(kind)


@contextmanager
def open_scratch(out: Path, identity: bytes | None) -> Generator[Scratch]:
    """A scratch folder inside the output folder: that of a killed conversion of the same `identity`, else a new one.

    Without an identity nothing is taken up. A checkpoint stays when the conversion was interrupted, a worker was killed
    or the disk is full. Raises UsageError when another conversion writes to the folder.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; name a folder for the dataset")
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        scratch: Scratch | None = None
        for left in map(Scratch, out.glob(f"{PREFIX}-*")):
            if scratch is None and identity is not None and left.kept(_IDENTITY, bytes) == identity:
                scratch = left
            else:
                left.remove()
        if scratch is None:
            scratch = Scratch(out / f"{PREFIX}-{uuid4().hex}")
            scratch.folder.mkdir()
            if identity is not None:
                scratch.keep(_IDENTITY, identity)
        interrupted = False
        try:
            yield scratch
        except (SourceError, StoreError):  # the same sources would only give it again
            raise
        except BaseException:
            interrupted = True
            raise
        finally:
            if not (interrupted and scratch.has_checkpoint):
                scratch.remove()


@contextmanager
def _locked(out: Path) -> Generator[None]:
    place = _place(out.stat())
    with _holding:
        if place in _held:
            raise _busy(out)
        _held.add(place)
    try:
        with _lock_file(out) as path:
            try:
                yield
            finally:
                with suppress(OSError):  # Windows keeps it while it is open
                    path.unlink(missing_ok=True)
    finally:
        _held.discard(place)


@contextmanager
def _lock_file(out: Path) -> Generator[Path]:
    """The lock file, locked. Whoever held it before may have removed what was opened here: then there is another."""
    path = out / _LOCK
    while True:
        with path.open("wb") as file:
            _lock(file, out)
            if _is_at(file, path):
                yield path
                return


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return _place(path.stat()) == _place(os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _lock(file: BinaryIO, out: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not inherited by workers, gone with this process
    except (BlockingIOError, PermissionError):
        raise _busy(out) from None
    except OSError:  # a file system without locks: as on Windows
        return


def _busy(out: Path) -> UsageError:
    return UsageError(f"{out}: another conversion writes there; wait for it or name another folder")


def _place(stat: os.stat_result) -> _Place:
    return stat.st_dev, stat.st_ino


def identity_of(inputs: Sequence[Input], settings: Callable[[], object]) -> bytes | None:
    """What makes two conversions the same: files by name, size and time of change, and settings.

    None when an input can change unseen: standard input, pipes, objects of a store.
    """
    files: list[tuple[bytes, int, int]] = []
    for source in inputs:
        if source.path is None or source.size is None:
            return None
        try:
            stat = source.path.stat()
        except OSError:
            return None
        files.append((os.fsencode(source.path.absolute()), stat.st_size, stat.st_mtime_ns))
    told = repr(settings()).encode(errors="backslashreplace")  # a glob from the command line need not be text
    return msgspec.msgpack.encode([files, told])
