"""Local: an engine of this machine, with processes of loky's or with this process alone.

Invariant: no process is forked, so no thread or lock of the caller's is copied; and a worker that is killed ends the
conversion with a WorkerError, never with a result that lacks something.
"""

import gc
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, cast

import loky  # pyright: ignore[reportMissingTypeStubs] # it ships none
from loky.process_executor import TerminatedWorkerError  # pyright: ignore[reportMissingTypeStubs] # as above

from art_otel.engines.engine import Engine, SummaryT, TaskT
from art_otel.errors import WorkerError

_COLLECT_EVERY: Final = 100_000
"""A conversion makes many objects and no cycles, so looking for cycles as often as Python does costs a tenth."""

_LARGE_BLOCK: Final = 31 << 20
"""Once a block of up to 32 MiB was freed, glibc keeps as much freed memory; else each long line is faulted in anew.

Source: mallopt(3), M_MMAP_THRESHOLD (it is dynamic).
"""

_GLANCE: Final = 0.2
"""Seconds between two looks of a worker at the conversion that it works for."""


def available_processors() -> int:
    """How many processors this process may use, as affinity and the quotas of its cgroup say."""
    return loky.cpu_count()


@contextmanager
def local_engine(workers: int) -> Generator[Engine]:
    """An engine with so many processes; none where one is enough, or where this process may start none."""
    _keep_freed_memory()
    if workers == 1 or multiprocessing.current_process().daemon:
        yield _ThisProcess()
        return
    pool: Any = cast(Any, loky.ProcessPoolExecutor)(workers, initializer=_start, initargs=(os.getpid(),))
    try:
        yield _Pool(pool)
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


class _Pool:
    def __init__(self, pool: Any) -> None:  # noqa: ANN401 # loky ships no types
        self._pool = pool

    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT]:
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
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    _keep_freed_memory()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _keep_freed_memory() -> None:
    """Have the allocator keep what is freed. The block is never touched, so it takes no memory."""
    bytearray(_LARGE_BLOCK)


def _end_with(parent: int) -> None:
    """End when the conversion is gone: a killed process cannot end its workers."""
    while os.getppid() == parent:
        time.sleep(_GLANCE)
    os._exit(1)
