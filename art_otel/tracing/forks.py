"""Forks: what a forked child has of its parent's spans.

Invariant: a span is written by the process that started it. A child's copy of one still runs, and nobody will see it.
"""

import os
import time

from opentelemetry.trace import Span

_forked_at = 0


def runs_here(span: Span) -> bool:
    """Whether what is put on the span now is recorded."""
    return span.is_recording() and not is_inherited(span)


def is_inherited(span: Span) -> bool:
    """Whether the span is a copy of one that started before this process was forked."""
    started: object = getattr(span, "start_time", None)
    return isinstance(started, int) and started < _forked_at


def _after_fork() -> None:
    global _forked_at  # noqa: PLW0603 # one a process
    _forked_at = time.time_ns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
