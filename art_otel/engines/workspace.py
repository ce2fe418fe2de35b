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
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, get_origin
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.engines.local import Engine
from art_otel.engines.plan import Job
from art_otel.errors import SourceError, StoreError, UsageError, WorkerError
from art_otel.sources.files.inputs import SCRATCH_PREFIX
from art_otel.store.commit import locked


class _Summary(Protocol):
    def is_intact(self) -> bool: ...


_TaskT = TypeVar("_TaskT")
_SummaryT = TypeVar("_SummaryT", bound=_Summary)


class Workspace(NamedTuple):
    """A scratch folder. `run` names the conversion; `keeps` says whether a later one may take up what is there."""

    folder: str
    run: str
    keeps: bool


class Runner:
    """Runs the tasks of a job. A summary that is in the workspace already is not worked for again."""

    def __init__(self, job: Job, workspace: Workspace, engine: Engine) -> None:
        self.job = job
        self._workspace = workspace
        self._engine = engine

    def run(
        self,
        function: Callable[[_TaskT], _SummaryT],
        tasks: Sequence[_TaskT],
        kind: type[_SummaryT],
        instead: Callable[[_TaskT, WorkerError], _SummaryT] | None = None,
    ) -> Iterator[_SummaryT]:
        """The summary of each task, in order: kept from before where it is still true, else of a new run.

        `instead` makes the summary of a task that ends its workers; without it that is an error.
        """
        locations = [self._location(function.__name__, task) for task in tasks]
        kept = [_kept(location, kind) for location in locations]
        missing = [one[:2] for one in zip(tasks, locations, kept, strict=True) if one[2] is None]
        new = self._engine.run(_Keeping(function), missing)
        for task, earlier in zip(tasks, kept, strict=True):
            summary = next(new) if earlier is None else earlier
            if not isinstance(summary, WorkerError):
                yield _decoded(summary, kind)
            elif instead is not None:
                yield instead(task, summary)
            else:
                raise WorkerError(
                    f"{storage.shown(self._workspace.folder)}: {function.__name__}: {summary}; if the system ended them"
                    " for want of memory, give each more. Started again, the conversion goes on where it was"
                )

    def _location(self, function: str, task: object) -> str | None:
        if not self._workspace.keeps:
            return None
        digest = hashlib.sha256(repr(task).encode(errors="backslashreplace"))  # names of files are any bytes
        return storage.join(self._workspace.folder, f"{function}-{digest.hexdigest()[:32]}")


def _kept(location: str | None, kind: type[_SummaryT]) -> bytes | None:
    if location is None or storage.size_of(location) is None:
        return None
    data = storage.read(location)
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        return None
    return data[32:] if _decoded(data[32:], kind).is_intact() else None


class _Keeping(Generic[_TaskT, _SummaryT]):
    """A function that keeps its summary where a task says: the conversion may not live to ask for it.

    It gives the summary encoded, a tenth of what sizes by slot are as objects.
    """

    def __init__(self, function: Callable[[_TaskT], _SummaryT]) -> None:
        self.__name__ = function.__name__
        self._function = function

    def __call__(self, job: tuple[_TaskT, str | None]) -> bytes:
        task, location = job
        encoded = msgspec.msgpack.encode(self._function(task))
        if location is not None:
            storage.write(location, hashlib.sha256(encoded).digest() + encoded, synced=False)
        return encoded


def _decoded(encoded: bytes, kind: type[_SummaryT]) -> _SummaryT:
    return msgspec.msgpack.decode(encoded, type=kind, dec_hook=_counter)


def _counter(kind: type[Any], value: Any) -> Any:  # noqa: ANN401 # msgspec's own signature
    if get_origin(kind) is Counter:
        return Counter[str](value)
    raise NotImplementedError(kind)


@contextmanager
def open_workspace(out: str, identity: bytes | None, scratch: str | None = None) -> Generator[Workspace]:
    """The workspace in an output folder: that of an earlier conversion of the same `identity`, else a new one.

    Its files lie in a folder of their own in `scratch`, None in the output folder. What conversions of other inputs
    left is removed in the output folder only: in a `scratch` it may be in use.

    Without an identity nothing is taken up. It stays when the conversion ended early, but for a fault that the same
    sources would only give again. Raises UsageError when another conversion writes to the folder.
    """
    if not storage.is_url(out) and Path(out).is_file():
        raise UsageError(f"{out}: is a file; name a folder for the dataset")
    run = uuid4().hex if identity is None else hashlib.sha256(identity).hexdigest()[:32]
    folder = storage.join(out, f"{SCRATCH_PREFIX}{run}") if scratch is None else _elsewhere(scratch, run, out)
    with locked(out):
        if scratch is None:
            _remove_others(out, folder)
        storage.make_folder(folder)
        try:
            yield Workspace(folder, run, identity is not None)
        except (SourceError, StoreError):
            storage.remove_folder(folder)
            raise
        except BaseException:
            if identity is None:
                storage.remove_folder(folder)
            raise
        storage.remove_folder(folder)


def _elsewhere(scratch: str, run: str, out: str) -> str:
    """The folder for a run and an output: others may run with the same inputs into other outputs."""
    if not storage.is_url(scratch) and Path(scratch).is_file():
        raise UsageError(f"{scratch}: is a file; name a folder for the scratch files")
    whole = out if storage.is_url(out) else str(Path(out).absolute())
    digest = hashlib.sha256(f"{run} {whole}".encode(errors="surrogatepass")).hexdigest()[:32]
    return storage.join(scratch, f"{SCRATCH_PREFIX}{digest}")


def _remove_others(out: str, folder: str) -> None:
    """Remove what conversions of other inputs left."""
    if not storage.is_url(out):
        for left in Path(out).glob(f"{SCRATCH_PREFIX}*"):
            if left != Path(folder):
                shutil.rmtree(left)


def run_identity(files: Iterable[tuple[object, ...] | None], settings: object) -> bytes | None:
    """What makes two conversions the same; None when an input can change unseen, as a pipe can."""
    identities = list(files)
    if None in identities:
        return None
    return repr((identities, settings)).encode(errors="backslashreplace")
