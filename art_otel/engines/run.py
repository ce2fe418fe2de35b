"""Run: the engines that run the tasks of a conversion, the settings that tasks share, and the scratch folder.

An engine is this process, several processes of this machine, or Ray.

Invariant: an engine decides only where and when a task runs, so each engine gives the same dataset. No process is
forked, because a fork would copy the caller's threads and locks. A worker ends with the process that started it. A
killed worker ends the conversion with a WorkerError, never with an incomplete dataset.

Only one conversion at a time writes to an output folder; its scratch files are removed at its end.
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
"""The most splits: beyond a terabyte splits grow, because the plan has thousands of sizes for each split."""


_BUNDLE_BYTES: Final = 1 << 20
"""Bytes of input per bundle of slots: smaller blocks would not be worth their overhead."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversion is divided. The defaults fit a laptop and a terabyte.

    Sizes decide where parts end and how much memory a task takes, never which trajectories come out. All are numbers of
    bytes, except `slots`, `bundle` and `is_small`.

    - `slots`: records are divided among so many slots by trace id. More are needed beyond a terabyte; empty ones cost
      nothing. `bundle`: so many neighboring slots share blocks of a shuffle file.
    - `least_split`, `most_split`: the input that one task reads, more if the input is beyond a terabyte.
    - `partition_bytes`, `part_bytes`: the uncompressed records that are assembled at once, and written into one part.
    - `worker_bytes`: the uncompressed input that is worth another process: two processes took 2.5 s instead of 1.8 s
      for 200 MB, 4.5 s instead of 5 s for 500 MB, and always twice the memory.
    - `is_small`: the input is not worth a second process, so its records are compressed only lightly.
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
        """The bytes of input that one task reads, if all input has `total` bytes (None: unknown)."""
        if total is None:
            return self.most_split
        return max(self.least_split, min(self.most_split, total // _SPLITS), total // _MAX_SPLITS)

    def fitted(self, inputs: Sequence[InputFile]) -> "Sizes":
        """These sizes with `bundle` and `is_small` for these inputs, if the inputs' size is known."""
        if any(one.size is None or one.name.endswith(_COMPRESSED) for one in inputs):
            return self  # their uncompressed size is unknown
        # Records are smaller than their JSON, and may be larger than their protobuf.
        total = sum((one.size or 0) * (1 if one.name.endswith(_JSON) else 4) for one in inputs)
        bundle = max(1, min(self.slots, self.slots * _BUNDLE_BYTES // max(1, total)))
        return msgspec.structs.replace(self, bundle=bundle, is_small=total <= self.worker_bytes)


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round of an incremental conversion. Times are in nanoseconds.

    A rollout that has not ended gets its row when no span of it came for `grace`. A trace without a record since
    `horizon` is closed: later spans of it are too late.
    """

    number: int
    now: int
    grace: int
    horizon: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all tasks of a conversion share.

    Tasks write into the folder or URL `scratch`, which is made when the conversion begins. `content` are the folders in
    which references to content are followed. `round` is None for a full conversion. The others are as in `Conversion`.
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
    """Runs functions of plain records, anywhere."""

    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT | WorkerError]:
        """Give the summaries in the order of the tasks, each as soon as it is there. Raises what the function raises.

        A task that kills its workers gives a WorkerError in place of its summary.
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
        """Give the summary of each task, in order.

        `instead` makes the summary of a task that kills its workers; without it such a task raises WorkerError.
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
    """A function that returns its summary encoded: waiting summaries, with a size per slot, take a tenth of memory."""

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
    """A new folder for temporary files, removed at the end; meanwhile no other conversion can write to `out`.

    The folder is in `scratch`, a folder or URL (None: in `out`). Folders that killed conversions left are removed only
    in a local `out`, because elsewhere they may be in use. Raises UsageError if another conversion writes to `out`.
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
            with suppress(StorageError, OSError):  # the exception that ended the conversion is the one to see
                storage.remove_folder(folder)
            raise
        storage.remove_folder(folder)


_COLLECT_EVERY: Final = 10_000_000
"""The garbage collector's threshold, above the number of a task's objects: a conversion makes no cycles, and a search
for cycles would visit all objects again and again."""

_LARGE_BLOCK: Final = 31 << 20
"""Once a block of this size was freed, glibc keeps freed memory; without this, the kernel zeroes pages for each line.

Source: mallopt(3), M_MMAP_THRESHOLD (it is dynamic).
"""

_GLANCE: Final = 0.2
"""Seconds between two checks of a worker whether its conversion still runs."""

_RATIO: Final = 8
"""About how many times larger a compressed file is when uncompressed."""

_JSON: Final = (".json", ".jsonl", ".ndjson")
_COMPRESSED: Final = (".gz", ".zst", ".bz2", ".xz", ".parquet")


def choose_workers(inputs: Sequence[InputFile], worker_bytes: int) -> int:
    """The number of processes: one per processor, but at least `worker_bytes` of input for each."""
    total = sum((one.size or 0) * (_RATIO if one.name.endswith(_COMPRESSED) else 1) for one in inputs)
    useful = None if any(one.size is None for one in inputs) else total // worker_bytes
    if useful is not None and useful < 2:
        return 1
    processors = available_processors()
    return processors if useful is None else min(useful, processors)


def available_processors() -> int:
    """How many processors this process may use, by CPU affinity and the quotas of its cgroup."""
    import loky  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # as in `local_engine`

    return loky.cpu_count()


@contextmanager
def local_engine(workers: int) -> Generator[Engine]:
    """An engine with so many processes; this process itself if one is enough, or if it may not start any."""
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
    """Whether this process is a daemon of multiprocessing, which may not start processes."""
    import multiprocessing  # noqa: PLC0415 # one worker needs none of it

    return multiprocessing.current_process().daemon


class _ThisProcess:
    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT]:
        thresholds = gc.get_threshold()
        for task in tasks:
            gc.set_threshold(_COLLECT_EVERY)  # only during a task: between tasks the caller's own code runs
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
    """Prepare a worker process."""
    # pyarrow would load numpy, which a conversion does not need: None in its place makes the import fail at once.
    sys.modules.setdefault("numpy", cast(ModuleType, None))
    prepare_worker()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


@cache
def prepare_worker() -> None:
    """Prepare a process that only runs tasks."""
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Make the allocator keep freed memory. `bytes` never touches the block, so this takes no memory and no time."""
    bytes(_LARGE_BLOCK)


def _end_with(parent: int) -> None:
    """End this worker when its conversion is gone: a killed process cannot end its workers itself."""
    while os.getppid() == parent:
        time.sleep(_GLANCE)
    os._exit(1)
