"""ChildExit: the normal end of a process that multiprocessing or Celery made.

Invariant: such a process leaves by os._exit and runs no exit handlers, only what multiprocessing and Celery run
instead. A child's start clears multiprocessing's, so ours is put there with the first line, and not at the fork. An app
that uses neither does not get them from here. What is called is put there once a process, and kept alive by nobody.
"""

import os
import sys
from types import MethodType
from typing import Any, Final

from art_otel.forks import WeakMethods

_LAST: Final = -1000
"""After the app's finalizers and after the children of the child, which may all make calls."""

_at_exit: Final = WeakMethods()
_finalized_pid: int | None = None
"""The process whose end by multiprocessing is known to call them."""


def at_child_exit(method: MethodType) -> None:
    """Call a method of an object at the end of this process, if that is such a child and the object still lives."""
    _at_exit.add(method)
    if not _is_finalized():
        _when_signalled()


def _is_finalized() -> bool:
    global _finalized_pid  # noqa: PLW0603 # one a process
    parent_process = _loaded("multiprocessing.process", "parent_process")
    if parent_process is None or parent_process() is None:
        return False
    if _finalized_pid != os.getpid():
        from multiprocessing.util import Finalize  # noqa: PLC0415 # it is loaded already

        Finalize(None, _at_exit.call, exitpriority=_LAST)
        _finalized_pid = os.getpid()
    return True


def _when_signalled() -> None:
    """By Celery, which sends this in the workers of its pools only."""
    signal = _loaded("celery.signals", "worker_process_shutdown")
    if signal is not None:
        signal.connect(_receive, weak=False)  # again is once


def _receive(**_: object) -> None:
    _at_exit.call()


def _loaded(module: str, name: str) -> Any:  # noqa: ANN401 # whatever it is there
    """What a module has by a name; None where it is not loaded, or another thread is about to."""
    return getattr(sys.modules.get(module), name, None)
