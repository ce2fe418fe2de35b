"""InternalErrorHandler: faults of our own code stay out of the app it runs in.

Invariant: what goes wrong in ours is counted and logged, never raised, and never a flood; the app's own exceptions, and
what stops it, go through: also what a signal's handler of the app raises in the middle of ours. So it is with what runs
after an import of the app's, or in a call that it makes.
"""

import logging
import signal
from collections.abc import Callable
from functools import wraps
from traceback import walk_tb
from types import TracebackType
from typing import Final, ParamSpec

from wrapt import register_post_import_hook

logger = logging.getLogger(__name__)

_warned: set[str] = set()
_MAX_WARNED: Final = 1000


class InternalErrorHandler:
    """Blocks of our own code in the app, entered by any threads at once. `problem` says what a fault in them means.

    `faults` counts the exceptions kept from the app; the 1st, 2nd, 4th, 8th and so on is logged.
    """

    def __init__(self, problem: str) -> None:
        self.faults = 0
        self._problem = problem

    def __enter__(self) -> None:
        """Begin a block."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """Keep an exception of the block to ourselves."""
        if not isinstance(error, Exception):
            return False
        self.note(error)
        return True

    def note(self, error: Exception) -> None:
        """Count and log a fault, for code that runs too often for a block. Raises what is the app's."""
        if is_of_signal(error):
            raise error
        self.faults += 1  # about: of faults of several threads at once one may not count
        if self.faults & (self.faults - 1) == 0:
            logger.warning(
                "art-otel: %s (fault %d of this kind; please report it)", self._problem, self.faults, exc_info=error
            )


def is_of_signal(error: BaseException) -> bool:
    """Whether the handler of a signal raised it, as the time limits of RQ and Celery do: it is for the app's code."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__))


handle_internal_errors: Final = InternalErrorHandler("something was not recorded; the app is not affected")


def warn_once(what: str, *about: object) -> None:
    """Log a warning, once a process for each `what` and the first thing it is about."""
    warning = f"{what} {about[:1]!s:.100}"
    if warning not in _warned and len(_warned) < _MAX_WARNED:
        _warned.add(warning)
        logger.warning(f"art-otel: {what}", *about)


_P = ParamSpec("_P")


def after_import(module: str, act: Callable[[], None]) -> None:
    """Act after the import of the module, at once where it has been imported."""
    safe = guarded(act)
    register_post_import_hook(lambda _: safe(), module)


def guarded(act: Callable[_P, None]) -> Callable[_P, None]:
    """The act, which logs what goes wrong."""

    @wraps(act)
    def safely(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception as error:  # the app imports or sets something up here; no fault of ours may stop it
            if is_of_signal(error):
                raise
            logger.warning("art-otel: tracing could not be fully set up; the app continues", exc_info=True)

    return safely
