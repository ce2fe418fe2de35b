"""Local: an engine of this machine, with processes of its own or with this process alone.

Invariant: a process changes for the work only what another user of it does not see, and a worker ends with whoever
started it.
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
from typing import Final, cast

from art_otel.engines.engine import Engine, SummaryT, TaskT
from art_otel.sources import Input

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
    """As many processes as there are processors, fewer where each would have less than so many bytes to read."""
    total = sum((one.size or 0) * (_RATIO if one.name.endswith(_COMPRESSED) else 1) for one in inputs)
    useful = None if any(one.size is None for one in inputs) else total // worker_bytes
    if useful is not None and useful < 2:
        return 1
    from art_otel.engines.runners.processes import available_processors  # noqa: PLC0415 # loads loky

    processors = available_processors()
    return processors if useful is None else min(useful, processors)


@contextmanager
def local_engine(workers: int) -> Generator[Engine]:
    """An engine with so many processes; none where one is enough, or where this process may start none."""
    _keep_freed_memory()
    if workers == 1 or multiprocessing.current_process().daemon:
        yield _ThisProcess()
        return
    # Loading it takes as long as converting hundreds of spans.
    from art_otel.engines.runners.processes import process_engine  # noqa: PLC0415

    with process_engine(workers, _start) as engine:
        yield engine


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
