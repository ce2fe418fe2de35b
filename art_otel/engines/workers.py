"""Workers: processes that run the functions of both phases, or this process where one is enough.

Invariant: results come in the order of the tasks whatever the workers do, and no worker outlives the conversion, also
when it is killed, or when the system had no room for all of them.
"""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

from art_otel.errors import WorkerError

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_GLANCE: Final = 0.1
"""Seconds between two looks at the workers' progress and, by them, at the conversion they work for."""

_COLLECT_EVERY: Final = 100_000
"""A conversion makes many objects and no cycles, so looking for cycles as often as Python does costs a tenth."""

_progress: "Synchronized[int] | None" = None


class Workers:
    """`count` processes; `on_bytes` is told how far they got when they call `advance`."""

    def __init__(self, count: int, on_bytes: Callable[[int], None] | None = None) -> None:
        self.count = count
        self._on_bytes = on_bytes
        self._told = 0
        self._thresholds = gc.get_threshold()
        self._pool: ProcessPoolExecutor | None = None
        self._counter: Synchronized[int] | None = None
        if count > 1:
            context = multiprocessing.get_context(_start_method())
            try:
                if on_bytes is not None:  # what it needs takes as long to load as to start a process
                    self._counter = context.Value("Q", 0)
                self._pool = ProcessPoolExecutor(
                    count, mp_context=context, initializer=_start, initargs=(os.getpid(), self._counter)
                )
            except OSError as error:
                raise _no_room(count, error) from error

    def __enter__(self) -> Self:
        """Let this process, too, look for cycles seldom."""
        gc.set_threshold(_COLLECT_EVERY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.set_threshold(*self._thresholds)
        self._end()

    def run(self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """The results in the order of the tasks, which are begun at once. Raises what the function raises."""
        if self._pool is None:
            return map(function, tasks)
        return map(self._result, [self._submit(self._pool, function, task) for task in tasks])

    def run_few(self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """As `run`, for large results: each worker is two tasks ahead of the result that is asked for, not more."""
        if self._pool is None:
            yield from map(function, tasks)
            return
        ahead: deque[Future[_Result]] = deque()
        for task in tasks:
            ahead.append(self._submit(self._pool, function, task))
            if len(ahead) > 2 * self.count:
                yield self._result(ahead.popleft())
        yield from map(self._result, ahead)

    def run_last(self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """As `run_few`, and then there is nothing more to do: the workers end while this process goes on."""
        yield from self.run_few(function, tasks)
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def advance(self, count: int) -> None:
        """Count bytes that this process read."""
        if self._on_bytes is not None:
            self._on_bytes(count)

    def _submit(
        self, pool: ProcessPoolExecutor, function: Callable[[_Task], _Result], task: _Task
    ) -> "Future[_Result]":
        try:
            return pool.submit(function, task)
        except BrokenProcessPool:
            raise _gone() from None
        except (OSError, RuntimeError) as error:  # it starts its processes and its thread here
            self._end()
            raise _no_room(self.count, error) from error

    def _result(self, future: "Future[_Result]") -> _Result:
        while not wait([future], timeout=_GLANCE, return_when=FIRST_COMPLETED).done:
            self._tell()
            if self._pool is not None and _is_left_alone(self._pool) and not future.done():
                self._end()
                raise _no_room(self.count, "no thread for their tasks")
        self._tell()
        try:
            return future.result()
        except BrokenProcessPool:
            raise _gone() from None

    def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if not _is_left_alone(pool):
            pool.shutdown(cancel_futures=True)
            return
        for worker in list(pool._processes.values()):  # noqa: SLF001 # nothing else knows them, or would end them
            worker.kill()
            worker.join()

    def _tell(self) -> None:
        if self._counter is None:
            return
        done = self._counter.value
        self.advance(done - self._told)
        self._told = done


def _is_left_alone(pool: ProcessPoolExecutor) -> bool:
    """Whether the thread that gives the workers their tasks did not start, or could not go on."""
    thread = cast("threading.Thread | None", pool._executor_manager_thread)  # noqa: SLF001 # as in _end
    return bool(pool._processes) and not (thread is not None and thread.is_alive())  # noqa: SLF001 # as in _end


def _no_room(count: int, why: object) -> WorkerError:
    return WorkerError(
        f"could not start {count} workers ({why}); the system allows too few processes, threads or open files: use "
        "fewer --workers"
    )


def _gone() -> WorkerError:
    return WorkerError(
        "a worker process was ended before its work was done; if the system did it for want of memory, or had no "
        "thread for it, use fewer --workers"
    )


def advance(count: int) -> None:
    """Count bytes that a worker read."""
    if _progress is not None:
        with _progress:
            _progress.value += count


def default_count(size: int | None, bytes_each: int) -> int:
    """As many workers as there are processors, fewer when each would have less than `bytes_each` to do."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors if size is None else max(1, min(processors, size // bytes_each))


def _start_method() -> str:
    """Forking takes no time, but is safe only where no other thread runs; macOS' own libraries start some."""
    forks = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
    return "fork" if forks and threading.active_count() == 1 else "spawn"


def _start(parent: int, progress: "Synchronized[int] | None") -> None:
    global _progress  # noqa: PLW0603 # one for this process, which belongs to the pool
    _progress = progress
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the conversion is told, and ends its workers
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    try:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    except RuntimeError:  # the system has no thread for it, and the conversion says what to do
        os._exit(1)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_GLANCE)
    os._exit(1)
