"""ProcessRollout: the process's own rollout, which gathers the calls that nothing is around.

Invariant: it begins with the first such call, so a process without any leaves no trace of it, and ends once, in the
process that began it. A forked child's calls carry its id; the child does not end it.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from opentelemetry.context import Context
from opentelemetry.trace import Span, Tracer

from art_otel import attributes
from art_otel.forks import after_fork
from art_otel.live import RolloutBuffer
from art_otel.tracing.api.recorder import record_span_counts
from art_otel.tracing.internal_errors import handle_internal_errors


class ProcessRollout:
    """`tracer` makes its span, `rollouts` knows how many spans it has.

    Nobody asks for its trajectory while it runs, which is as long as the process does, so `rollouts` only counts it.
    """

    def __init__(
        self,
        tracer: Callable[[], Tracer],
        rollouts: RolloutBuffer,
        name: str | None = None,
    ) -> None:
        self._tracer = tracer
        self._rollouts = rollouts
        self._name = name or Path(sys.argv[0] if sys.argv else "").name or "python"
        self._lock = threading.RLock()
        self._span: Span | None = None
        self._id: str | None = None
        self._joined_ns = 0
        self._pid = os.getpid()
        after_fork(self._after_fork)

    def join(self) -> str:
        """Begin the rollout if it has not begun, and give its id."""
        with self._lock:
            self._joined_ns = time.time_ns()
            if self._id is None:
                self._id = os.urandom(16).hex()
                named = {attributes.ROLLOUT_ID: self._id, attributes.ROLLOUT_NAME: self._name}
                self._span = self._tracer().start_span(
                    f"{attributes.ROLLOUT_SPAN_PREFIX}{self._name}", context=Context(), attributes=named
                )
                self._rollouts.count_only(self._id)
                self._pid = os.getpid()
            return self._id

    def was_joined_since(self, time_ns: int) -> bool:
        """Whether a call joined it at that time or later."""
        return self._id is not None and self._joined_ns >= time_ns

    def end(self) -> None:
        """End it, with its span counts; a call that comes later begins another."""
        with self._lock:
            span, rollout_id = self._span, self._id
            self._span = self._id = None
            if span is None or rollout_id is None or self._pid != os.getpid():
                return
            with handle_internal_errors:
                record_span_counts(span, self._rollouts.counts(rollout_id))
            with handle_internal_errors:  # the app's span processors may raise
                span.end()

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
