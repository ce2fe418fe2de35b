"""Run: what runs the tasks of a conversion, and where its files lie meanwhile.

An engine runs the tasks: this one process, several of this machine, or Ray. A runner hands it those that an earlier
conversion of the same inputs and settings, which ended early, had not done.

Invariant: an engine decides where and when a task runs and nothing else, so each gives the same dataset. A process
changes for the work only what another user of it does not see. No process is forked, so no thread or lock of the
caller's is copied; a worker ends with whoever started it, and one that is killed ends the conversion with a
WorkerError, never with a result that lacks something.

One conversion at a time writes to an output folder. What was done is taken up only where checksums prove that it is
still as it was. Nothing is left after success.
"""

import gc
import hashlib
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast, get_origin
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.errors import SourceError, StoreError, UsageError, WorkerError
from art_otel.scrubbing import SecretRules
from art_otel.sources import InputFile, Limits
from art_otel.sources.files.inputs import SCRATCH_PREFIX
from art_otel.store.commit import locked

_SPLITS: Final = 256
"""The number of splits to aim for, within the least and the most bytes of a split."""

_MAX_SPLITS: Final = 5_000
"""The most splits: beyond a terabyte splits grow, because the plan holds thousands of sizes for each split."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a conversion stands together. The defaults fit a laptop and a terabyte.

    They decide where parts end and how much memory a task takes, never which trajectories come out. All are numbers of
    bytes, but for `slots`: records are divided among so many by their trace ids; more are needed beyond a terabyte, and
    empty ones cost nothing. A task reads from `least_split` to `most_split` bytes of input, more where the input is
    beyond a terabyte. Neighboring slots are assembled together up to `partition_bytes`, and written into one part up to
    `part_bytes`, both of records that are not compressed. A process is worth starting for `worker_bytes` of input that
    is not compressed: two took 2.5 s where one took 1.8 s for 200 MB, 4.5 s where one took 5 s for 500 MB, and always
    twice the memory.
    """

    slots: int = 4096
    least_split: int = 16 << 20
    most_split: int = 128 << 20
    partition_bytes: int = 64 << 20
    part_bytes: int = 128 << 20
    worker_bytes: int = 256 << 20

    def split_bytes(self, total: int | None) -> int:
        """The bytes of input that one task reads, of a `total` that may be unknown (None)."""
        if total is None:
            return self.most_split
        return max(self.least_split, min(self.most_split, total // _SPLITS), total // _MAX_SPLITS)


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round, by its number. Times are in nanoseconds.

    A rollout that has not ended gets its row when no span of it came for `grace`. A trace is closed, and later spans of
    it are too late, when none came since `horizon`.
    """

    number: int
    now: int
    grace: int
    horizon: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a conversion have in common.

    They write into the folder or URL `scratch`, which is made when the conversion begins. `format` names a dump format,
    None detects it by content. `secrets` is for those in logs of agents. `content` are the folders in which
    references to content are followed. `round` is that of an incremental conversion.
    """

    scratch: str = ""
    sizes: Sizes
    limits: Limits = Limits()
    format: str | None = None
    secrets: SecretRules = SecretRules()
    rollout_spans: tuple[str, ...] = ()
    rollout_attributes: tuple[str, ...] = ()
    rollout_traces: bool = False
    token_facts: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    round: Round | None = None


TaskT = TypeVar("TaskT")
SummaryT = TypeVar("SummaryT")


class Engine(Protocol):
    """Runs pure functions of plain records."""

    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT | WorkerError]:
        """The summaries in the order of the tasks, each as soon as it is there. Raises what the function raises.

        The WorkerError of a task that ends its workers stands in the place of its summary.
        """
        ...


class _Summary(Protocol):
    def is_intact(self) -> bool: ...


_KeptT = TypeVar("_KeptT", bound=_Summary)


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

    @property
    def name(self) -> str:
        """The name of the conversion, the same when it goes on."""
        return self._workspace.run

    def in_round(self, round_: Round) -> "Runner":
        """A runner of the same conversion, when it is known which round this is."""
        return Runner(msgspec.structs.replace(self.job, round=round_), self._workspace, self._engine)

    def run(
        self,
        function: Callable[[TaskT], _KeptT],
        tasks: Sequence[TaskT],
        kind: type[_KeptT],
        instead: Callable[[TaskT, WorkerError], _KeptT] | None = None,
    ) -> Iterator[_KeptT]:
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


def _kept(location: str | None, kind: type[_KeptT]) -> bytes | None:
    if location is None or storage.size_of(location) is None:
        return None
    data = storage.read(location)
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        return None
    return data[32:] if _decoded(data[32:], kind).is_intact() else None


class _Keeping(Generic[TaskT, _KeptT]):
    """A function that keeps its summary where a task says: the conversion may not live to ask for it.

    It gives the summary encoded, a tenth of what sizes by slot are as objects.
    """

    def __init__(self, function: Callable[[TaskT], _KeptT]) -> None:
        self.__name__ = function.__name__
        self._function = function

    def __call__(self, job: tuple[TaskT, str | None]) -> bytes:
        task, location = job
        encoded = msgspec.msgpack.encode(self._function(task))
        if location is not None:
            storage.write(location, hashlib.sha256(encoded).digest() + encoded, synced=False)
        return encoded


def _decoded(encoded: bytes, kind: type[_KeptT]) -> _KeptT:
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


_COLLECT_EVERY: Final = 100_000
"""A conversion makes many objects and no cycles, so looking for cycles as often as Python does costs a tenth."""

_LARGE_BLOCK: Final = 31 << 20
"""Once a block of up to 32 MiB was freed, glibc keeps as much freed memory; else each long line is faulted in anew.

Source: mallopt(3), M_MMAP_THRESHOLD (it is dynamic).
"""

_GLANCE: Final = 0.2
"""Seconds between two looks of a worker at the conversion that it works for."""

_RATIO: Final = 8
"""About so many times its size a compressed file becomes."""

_COMPRESSED: Final = (".gz", ".zst", ".bz2", ".xz", ".parquet")


def choose_workers(inputs: Sequence[InputFile], worker_bytes: int) -> int:
    """The number of processes: one a processor, fewer where a process would have less than so many bytes to read."""
    total = sum((one.size or 0) * (_RATIO if one.name.endswith(_COMPRESSED) else 1) for one in inputs)
    useful = None if any(one.size is None for one in inputs) else total // worker_bytes
    if useful is not None and useful < 2:
        return 1
    processors = available_processors()
    return processors if useful is None else min(useful, processors)


def available_processors() -> int:
    """How many processors this process may use, as affinity and the quotas of its cgroup say."""
    import loky  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # as in `local_engine`

    return loky.cpu_count()


@contextmanager
def local_engine(workers: int) -> Generator[Engine]:
    """An engine with so many processes; none where one is enough, or where this process may start none."""
    _keep_freed_memory()
    if workers == 1 or multiprocessing.current_process().daemon:
        yield _ThisProcess()
        return
    import loky  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # takes as long as converting hundreds of spans

    pool: Any = cast(Any, loky.ProcessPoolExecutor)(workers, initializer=_start, initargs=(os.getpid(),))
    try:
        yield _Processes(pool)
    except BaseException:
        pool.shutdown(wait=True, kill_workers=True)
        raise
    pool.shutdown(wait=True)


class _ThisProcess:
    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT]:
        thresholds = gc.get_threshold()
        for task in tasks:
            gc.set_threshold(_COLLECT_EVERY)
            try:
                summary = function(task)
            finally:
                gc.set_threshold(*thresholds)
            yield summary


class _Processes:
    def __init__(self, pool: Any) -> None:  # noqa: ANN401 # loky ships no types
        self._pool = pool

    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT]:
        from loky.process_executor import TerminatedWorkerError  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # as above

        try:
            futures = [self._pool.submit(function, task) for task in tasks]
            for future in futures:
                yield future.result()
        except TerminatedWorkerError as error:
            raise WorkerError(
                "a worker process was ended before its work was done; if the system did it for want of memory, use"
                " fewer --workers. Started again, the conversion goes on where it was"
            ) from error


def _start(parent: int) -> None:
    """Make a worker ready. It says that there is no numpy: pyarrow would load it, and a conversion needs none."""
    sys.modules.setdefault("numpy", cast(ModuleType, None))
    prepare_worker()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


@cache
def prepare_worker() -> None:
    """Make a process ready that does nothing but tasks."""
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Have the allocator keep what is freed. `bytes` never touches the block, so it takes no memory and no time."""
    bytes(_LARGE_BLOCK)


def _end_with(parent: int) -> None:
    """End when the conversion is gone: a killed process cannot end its workers."""
    while os.getppid() == parent:
        time.sleep(_GLANCE)
    os._exit(1)
