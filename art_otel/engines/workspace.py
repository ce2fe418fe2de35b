"""Workspace: the scratch folder of a conversion, and what a conversion that ended early had done.

Invariant: one conversion at a time writes to an output folder. What was done is taken up only by a conversion of the
same inputs and settings, and only where checksums prove that it is still as it was. Nothing is left after success.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, get_origin
from uuid import uuid4

import msgspec
from filelock import FileLock, Timeout

from art_otel import storage
from art_otel.engines.engine import Engine
from art_otel.errors import SourceError, StoreError, UsageError

_LOCK: Final = ".art-otel.lock"
_PREFIX: Final = ".art-otel-scratch-"


class _Summary(Protocol):
    def is_intact(self) -> bool: ...


_TaskT = TypeVar("_TaskT")
_SummaryT = TypeVar("_SummaryT", bound=_Summary)


class Workspace:
    """A scratch folder. `run` names the conversion; a summary that is there already is not worked for again."""

    def __init__(self, folder: str, run: str, *, keeps: bool) -> None:
        self.folder = folder
        self.run = run
        self._keeps = keeps

    def location(self, name: str) -> str:
        """Where a file of this name is."""
        return storage.join(self.folder, name)

    def summaries(
        self,
        engine: Engine,
        function: Callable[[_TaskT], _SummaryT],
        tasks: Sequence[_TaskT],
        kind: type[_SummaryT],
    ) -> Iterator[_SummaryT]:
        """The summary of each task, in order: kept from before where it is still true, else of a new run."""
        names = [f"{function.__name__}-{_digest(task) if self._keeps else ''}" for task in tasks]
        kept = [self._kept(name, kind) for name in names]
        missing = [task for task, summary in zip(tasks, kept, strict=True) if summary is None]
        made = engine.run(function, missing)
        for name, earlier in zip(names, kept, strict=True):
            summary = next(made) if earlier is None else earlier
            if self._keeps and earlier is None:
                self._keep(name, summary)
            yield summary

    def _keep(self, name: str, summary: object) -> None:
        encoded = msgspec.msgpack.encode(summary)
        storage.write(self.location(name), hashlib.sha256(encoded).digest() + encoded, synced=False)

    def _kept(self, name: str, kind: type[_SummaryT]) -> _SummaryT | None:
        if not self._keeps or storage.size_of(self.location(name)) is None:
            return None
        data = storage.read(self.location(name))
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            return None
        summary = msgspec.msgpack.decode(data[32:], type=kind, dec_hook=_counter)
        return summary if summary.is_intact() else None


def _digest(task: object) -> str:
    return hashlib.sha256(repr(task).encode(errors="backslashreplace")).hexdigest()[:32]  # names of files are any bytes


def _counter(kind: type[Any], value: Any) -> Any:  # noqa: ANN401 # msgspec's own signature
    if get_origin(kind) is Counter:
        return Counter[str](value)
    raise NotImplementedError(kind)


@contextmanager
def open_workspace(out: str, identity: bytes | None) -> Generator[Workspace]:
    """The workspace in an output folder: that of an earlier conversion of the same `identity`, else a new one.

    Without an identity nothing is taken up. It stays when the conversion ended early, but for a fault that the same
    sources would only give again. Raises UsageError when another conversion writes to the folder.
    """
    if not storage.is_url(out) and Path(out).is_file():
        raise UsageError(f"{out}: is a file; name a folder for the dataset")
    run = uuid4().hex if identity is None else hashlib.sha256(identity).hexdigest()[:32]
    folder = storage.join(out, f"{_PREFIX}{run}")
    with _locked(out):
        _remove_others(out, folder)
        storage.make_folder(folder)
        try:
            yield Workspace(folder, run, keeps=identity is not None)
        except (SourceError, StoreError, UsageError):
            storage.remove_folder(folder)
            raise
        except BaseException:
            if identity is None:
                storage.remove_folder(folder)
            raise
        storage.remove_folder(folder)


def _remove_others(out: str, folder: str) -> None:
    """Remove what conversions of other inputs left."""
    if not storage.is_url(out):
        for left in Path(out).glob(f"{_PREFIX}*"):
            if left != Path(folder):
                shutil.rmtree(left)


@contextmanager
def _locked(out: str) -> Generator[None]:
    """Hold the lock of a folder on this machine. A file system that has no locks is an error."""
    if storage.is_url(out):
        yield
        return
    storage.make_folder(out)
    lock = FileLock(Path(out, _LOCK), blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(f"{out}: another conversion writes there; wait for it or name another folder") from None
    except (OSError, NotImplementedError) as error:
        raise UsageError(f"{out}: the file system grants no lock ({error}); write to another and copy") from error
    try:
        yield
    finally:
        Path(out, _LOCK).unlink(missing_ok=True)  # whoever waits for it looks whether it still has its name
        lock.release()


def run_identity(files: Iterable[tuple[object, ...] | None], settings: object) -> bytes | None:
    """What makes two conversions the same; None when an input can change unseen, as a pipe can."""
    known = list(files)
    if None in known:
        return None
    return repr((known, settings)).encode(errors="backslashreplace")
