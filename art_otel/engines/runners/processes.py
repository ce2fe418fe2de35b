"""Processes: an engine of loky's processes, and how many of them this machine can run at once.

Invariant: no process is forked, so no thread or lock of the caller's is copied; and a worker that is killed ends the
conversion with a WorkerError, never with a result that lacks something.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import loky  # pyright: ignore[reportMissingTypeStubs] # it ships none
from loky.process_executor import TerminatedWorkerError  # pyright: ignore[reportMissingTypeStubs] # as above

from art_otel.engines.engine import Engine, SummaryT, TaskT
from art_otel.errors import WorkerError


def available_processors() -> int:
    """How many processors this process may use, as affinity and the quotas of its cgroup say."""
    return loky.cpu_count()


@contextmanager
def process_engine(workers: int, start: Callable[[int], None]) -> Generator[Engine]:
    """An engine with so many processes, each of which begins with `start` of this process's id."""
    pool: Any = cast(Any, loky.ProcessPoolExecutor)(workers, initializer=start, initargs=(os.getpid(),))
    try:
        yield _Pool(pool)
    except BaseException:
        pool.shutdown(wait=True, kill_workers=True)
        raise
    pool.shutdown(wait=True)


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
