"""InternalErrorHandler: keeps faults of our own code out of the app in which it runs.

    with handle_internal_errors:
        span.set_attribute(…)          an Exception here is counted and logged; the app goes on

Invariant: a fault of ours is never raised into the app, and never floods the log. Other exceptions go through: those of
the app, KeyboardInterrupt and the like, and an exception that a signal handler of the app raises while our code runs.
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
    """A context manager for blocks of our own code in the app. Any threads may enter it at once.

    `problem` says in the log what a fault means for the user. `faults` counts the exceptions that were kept from the
    app; the 1st, 2nd, 4th, 8th and so on is logged.
    """

    def __init__(self, problem: str) -> None:
        self.faults = 0
        self._problem = problem

    def __enter__(self) -> None:
        """Begin a block; nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """Note an exception of the block, and do not raise it."""
        if not isinstance(error, Exception):
            return False
        self.note(error)
        return True

    def note(self, error: Exception) -> None:
        """Count and log a fault, for code where a `with` block costs too much.

        Raises it if a signal handler of the app raised it.
        """
        if is_of_signal(error):
            raise error
        self.faults += 1  # without a lock: of faults in several threads at once, one may not be counted
        if self.faults & (self.faults - 1) == 0:
            logger.warning(
                "art-otel: %s (fault %d of this kind; please report it)", self._problem, self.faults, exc_info=error
            )


def is_of_signal(error: BaseException) -> bool:
    """Whether a signal handler raised the exception, as the time limits of RQ and Celery do: then it is the app's."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__))


handle_internal_errors: Final = InternalErrorHandler("something was not recorded; the app is not affected")


def warn_once(what: str, *about: object) -> None:
    """Log a warning `what % about`, once in a process for each `what` and first value of `about`."""
    warning = f"{what} {about[:1]!s:.100}"
    if warning not in _warned and len(_warned) < _MAX_WARNED:
        _warned.add(warning)
        logger.warning(f"art-otel: {what}", *about)


_P = ParamSpec("_P")


def after_import(module: str, act: Callable[[], None]) -> None:
    """Call `act` after the app has imported the module; at once if it has."""
    safe = guarded(act)
    register_post_import_hook(lambda _: safe(), module)


def guarded(act: Callable[_P, None]) -> Callable[_P, None]:
    """Wrap a function so that its exceptions are logged instead of raised."""

    @wraps(act)
    def safely(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception as error:  # the app imports or sets something up here; no fault of ours may stop it
            if is_of_signal(error):
                raise
            logger.warning("art-otel: tracing could not be fully set up; the app continues", exc_info=True)

    return safely
