"""Guest: what our code is inside an app.

Invariant: what goes wrong in ours is logged and never raised; the app's own exceptions, and what stops it, go through.
"""

import logging
from types import TracebackType
from typing import Final

logger = logging.getLogger(__name__)

_said: set[str] = set()
_MOST_SAID: Final = 1000


class Guest:
    """A block of our own code in the app. Its exceptions are counted; the 1st, 2nd, 4th, 8th and so on is logged."""

    def __init__(self) -> None:
        self.faults = 0

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Keep an exception of the block to ourselves."""
        if not isinstance(error, Exception):
            return False
        self.faults += 1
        if self.faults & (self.faults - 1) == 0:
            logger.warning("art-otel: fault %d; the app is not affected, please report it", self.faults, exc_info=error)
        return True


AS_GUEST: Final = Guest()


def say_once(what: str, *about: object) -> None:
    """Log a warning, once a process for each `what` and the first thing it is about."""
    said = f"{what} {about[:1]!s:.100}"
    if said not in _said and len(_said) < _MOST_SAID:
        _said.add(said)
        logger.warning(f"art-otel: {what}", *about)
