"""Forks: what a forked child does anew, and what it has of its parent's spans.

Invariant: an object that acts in each child is not kept alive by that. A span is written by the process that started
it: a child's copy of one still runs, and nobody will see it.
"""

import os
import time
from types import MethodType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Span

_JUMP: Final = 1_000_000_000
"""Nanoseconds that a clock is set back by, and not only kept right."""

_forked_at = 0
_forked_after = 0
"""The fork on the clock that spans have, and on the one that nobody sets."""


class WeakMethods:
    """Calls a method of each object, in the order in which they were added, as long as the objects live."""

    def __init__(self) -> None:
        self._functions: WeakKeyDictionary[object, Callable[[Any], None]] = WeakKeyDictionary()

    def add(self, method: MethodType) -> None:
        """Call this method of its object too; the object is not kept alive."""
        self._functions[method.__self__] = method.__func__

    def call(self) -> None:
        """Call the methods of the objects that live."""
        for owner, function in list(self._functions.items()):
            function(owner)


_in_children: Final = WeakMethods()


def after_fork(method: MethodType) -> None:
    """Call a method of an object in each process that is forked from this one while the object lives."""
    _in_children.add(method)


def runs_here(span: "Span") -> bool:
    """Whether what is put on the span now is recorded."""
    return span.is_recording() and not is_inherited(span)


def is_inherited(span: "Span") -> bool:
    """Whether the span is a copy of one that started before this process was forked."""
    started: object = getattr(span, "start_time", None)
    return isinstance(started, int) and started < _fork_time()


def _fork_time() -> int:
    """When the fork was, by the clock as it is set now: by that of then this process's spans may be older."""
    if not _forked_at:
        return 0
    by_now = time.time_ns() - (time.monotonic_ns() - _forked_after)
    return by_now if _forked_at - by_now > _JUMP else _forked_at


def _note_fork() -> None:
    global _forked_at, _forked_after  # one a process
    _forked_at, _forked_after = time.time_ns(), time.monotonic_ns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
    os.register_at_fork(after_in_child=_in_children.call)
