"""Engines: what runs the tasks of a conversion, and the one of this machine, of one process or of several.

Invariant: an engine decides where and when a task runs and nothing else, so each gives the same dataset. A process
changes for the work only what another user of it does not see. No process is forked, so no thread or lock of the
caller's is copied; a worker ends with whoever started it, and one that is killed ends the conversion with a
WorkerError, never with a result that lacks something.
"""

import gc
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar, cast

from art_otel.errors import WorkerError
from art_otel.sources import Input

TaskT = TypeVar("TaskT")
SummaryT = TypeVar("SummaryT")


class Engine(Protocol):
    """Runs pure functions of plain records."""

    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT | WorkerError]:
        """The summaries in the order of the tasks, each as soon as it is there. Raises what the function raises.

        The WorkerError of a task that ends its workers stands in the place of its summary.
        """
        ...


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


def choose_workers(inputs: Sequence[Input], worker_bytes: int) -> int:
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
