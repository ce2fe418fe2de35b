"""ChildExit: the normal end of a process that multiprocessing or Celery made.

Invariant: such a process leaves by os._exit and runs no exit handlers, only what multiprocessing and Celery run
instead. A child's start clears multiprocessing's, so ours is put there with the first line, and not at the fork. An app
that uses neither does not get them from here.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

_LAST: Final = -1000
"""After the app's finalizers and after the children of the child, which may all make calls."""


def at_child_exit(call: Callable[[], object]) -> None:
    """Call it at the end of this process, if that is such a child."""
    if not _is_finalized(call):
        _when_signalled(call)


def _is_finalized(call: Callable[[], object]) -> bool:
    parent_process = _loaded("multiprocessing.process", "parent_process")
    if parent_process is None or parent_process() is None:
        return False
    from multiprocessing.util import Finalize  # noqa: PLC0415 # it is loaded already

    Finalize(None, call, exitpriority=_LAST)
    return True


def _when_signalled(call: Callable[[], object]) -> None:
    """By Celery, which sends this in the workers of its pools only."""
    signal = _loaded("celery.signals", "worker_process_shutdown")

    def receive(**_: object) -> None:
        call()

    if signal is not None:
        signal.connect(receive, weak=False)


def _loaded(module: str, name: str) -> Any:  # noqa: ANN401 # whatever it is there
    """What a module has by a name; None where it is not loaded, or another thread is about to."""
    return getattr(sys.modules.get(module), name, None)
