"""Faults of ours: logged for the person who looks, never raised into the app, and never a flood.

Invariant: of each kind the first fault is logged, then the second, the fourth, the eighth, …
"""

import logging
import threading
from collections import Counter
from types import TracebackType
from typing import Final

logger = logging.getLogger("art_otel.tracing.capture")

NOT_CAPTURED: Final = "a call could not be captured; its span has no exact tokens"

_lock: Final = threading.Lock()
_counts: Final[Counter[str]] = Counter()


class Guarded:
    """A block that raises no Exception. `problem` says what it means for the trace when it would have."""

    __slots__ = ("_problem",)

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        _note(self._problem, error)
        return True


def _note(problem: str, error: Exception) -> None:
    with _lock:
        _counts[problem] += 1
        count = _counts[problem]
    if count & (count - 1) == 0:
        logger.warning("art-otel: %s (fault %d of this kind; please report it)", problem, count, exc_info=error)
