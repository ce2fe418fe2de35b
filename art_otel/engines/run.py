"""Run: what runs the tasks of a conversion, and where its files lie meanwhile.

An engine runs the tasks: this one process, several of this machine, or Ray.

Invariant: an engine decides where and when a task runs and nothing else, so each gives the same dataset. A process
changes for the work only what another user of it does not see. No process is forked, so no thread or lock of the
caller's is copied; a worker ends with whoever started it, and one that is killed ends the conversion with a
WorkerError, never with a result that lacks something.

One conversion at a time writes to an output folder, and its scratch files end with it.
"""

import gc
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, Protocol, TypeVar, cast, get_origin
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.errors import StorageError, UsageError, WorkerError
from art_otel.scrubbing import SecretRules
from art_otel.sources import InputFile, Limits
from art_otel.sources.files.inputs import SCRATCH_PREFIX
from art_otel.store.commit import locked

_SPLITS: Final = 256
"""The number of splits to aim for, within the least and the most bytes of a split."""

_MAX_SPLITS: Final = 5_000
"""The most splits: beyond a terabyte splits grow, because the plan holds thousands of sizes for each split."""


_BUNDLE_BYTES: Final = 1 << 20
"""The input for which a block of its own is worth it in each shuffle file: a block is decoded at once."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a conversion stands together. The defaults fit a laptop and a terabyte.

    They decide where parts end and how much memory a task takes, never which trajectories come out. All are numbers of
    bytes, but for `slots` and `bundle`: records are divided among so many slots by their trace ids; more are needed
    beyond a terabyte, and empty ones cost nothing. In a shuffle file `bundle` neighboring slots share blocks.
    A task reads from `least_split` to `most_split` bytes of input, more where the input is beyond a terabyte.
    Neighboring slots are assembled together up to `partition_bytes`, and written into one part up to `part_bytes`, both
    of records that are not compressed. A process is worth starting for `worker_bytes` of input that is not compressed:
    two took 2.5 s where one took 1.8 s for 200 MB, 4.5 s where one took 5 s for 500 MB, and always twice the memory.
    `is_small` says that the input is worth no second process; then its records are hardly compressed.
    """

    slots: int = 4096
    bundle: int = 1
    least_split: int = 16 << 20
    most_split: int = 128 << 20
    partition_bytes: int = 64 << 20
    part_bytes: int = 128 << 20
    worker_bytes: int = 256 << 20
    is_small: bool = False

    def split_bytes(self, total: int | None) -> int:
        """The bytes of input that one task reads, of a `total` that may be unknown (None)."""
        if total is None:
            return self.most_split
        return max(self.least_split, min(self.most_split, total // _SPLITS), total // _MAX_SPLITS)

    def fitted(self, inputs: Sequence[InputFile]) -> "Sizes":
        """These sizes with the `bundle` for these inputs, and whether they are small, if their size is known."""
        if any(one.size is None or one.name.endswith(_COMPRESSED) for one in inputs):
            return self  # nobody knows how many records these have
        # Records are smaller than their JSON, and may be larger than their protobuf.
        total = sum((one.size or 0) * (1 if one.name.endswith(_JSON) else 4) for one in inputs)
        bundle = max(1, min(self.slots, self.slots * _BUNDLE_BYTES // max(1, total)))
        return msgspec.structs.replace(self, bundle=bundle, is_small=total <= self.worker_bytes)


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


class Runner:
    """Runs the tasks of a job."""

    def __init__(self, job: Job, engine: Engine) -> None:
        self.job = job
        self._engine = engine

    def run(
        self,
        function: Callable[[TaskT], SummaryT],
        tasks: Sequence[TaskT],
        kind: type[SummaryT],
        instead: Callable[[TaskT, WorkerError], SummaryT] | None = None,
    ) -> Iterator[SummaryT]:
        """The summary of each task, in order.

        `instead` makes the summary of a task that ends its workers; without it that is an error.
        """
        for task, encoded in zip(tasks, self._engine.run(_EncodedTask(function), tasks), strict=True):
            if not isinstance(encoded, WorkerError):
                yield msgspec.msgpack.decode(encoded, type=kind, dec_hook=_counter)
            elif instead is not None:
                yield instead(task, encoded)
            else:
                raise WorkerError(
                    f"{storage.shown(self.job.scratch)}: {function.__name__}: {encoded}; if the system killed them "
                    "because memory ran out, give each worker more"
                )


class _EncodedTask(Generic[TaskT, SummaryT]):
    """A function whose summaries are encoded: those that wait take a tenth of what sizes by slot are as objects."""

    def __init__(self, function: Callable[[TaskT], SummaryT]) -> None:
        self.__name__ = function.__name__
        self._function = function

    def __call__(self, task: TaskT) -> bytes:
        return msgspec.msgpack.encode(self._function(task))


def _counter(kind: type[Any], value: Any) -> Any:  # noqa: ANN401 # msgspec's own signature
    if get_origin(kind) is Counter:
        return Counter[str](value)
    raise NotImplementedError(kind)


@contextmanager
def scratch_folder(out: str, scratch: str | None = None) -> Generator[str]:
    """A new folder for the files of a conversion into `out`, to which no other writes meanwhile; it ends with it.

    It lies in `scratch`, a folder or URL, None in `out`. What killed conversions left is removed in an output folder of
    this machine only: elsewhere it may be in use. Raises UsageError when another conversion writes to `out`.
    """
    for location, purpose in ((out, "dataset"), (scratch or "", "scratch files")):
        if not storage.is_url(location) and Path(location).is_file():
            raise UsageError(f"{location}: is a file; name a folder for the {purpose}")
    with locked(out):
        for left in () if scratch or storage.is_url(out) else Path(out).glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(left)
        folder = storage.join(scratch or out, f"{SCRATCH_PREFIX}{uuid4().hex}")
        storage.make_folder(folder)
        try:
            yield folder
        except BaseException:
            with suppress(StorageError, OSError):  # what ended the conversion says more
                storage.remove_folder(folder)
            raise
        storage.remove_folder(folder)


_COLLECT_EVERY: Final = 10_000_000
"""A conversion makes no cycles: more objects than a task has alive, of which looking for cycles would visit each."""

_LARGE_BLOCK: Final = 31 << 20
"""Once a block of up to 32 MiB was freed, glibc keeps as much freed memory; else each long line is faulted in anew.

Source: mallopt(3), M_MMAP_THRESHOLD (it is dynamic).
"""

_GLANCE: Final = 0.2
"""Seconds between two looks of a worker at the conversion that it works for."""

_RATIO: Final = 8
"""About so many times its size a compressed file becomes."""

_JSON: Final = (".json", ".jsonl", ".ndjson")
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
    if workers == 1 or _is_daemon():
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


def _is_daemon() -> bool:
    """Whether this is a process that may start none."""
    import multiprocessing  # noqa: PLC0415 # one worker needs none of it

    return multiprocessing.current_process().daemon


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
                "a worker process was killed before it was done; if memory ran out, use fewer --workers"
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
