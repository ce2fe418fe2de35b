"""PendingSpans: spans that ended in traces which are no rollout yet and may become one.

Invariant: only traces whose outermost span still runs wait, and at most `MAX_SPANS` spans in all; the oldest traces go
first. What goes is none of a rollout's business as far as anybody knows.
"""

from collections import OrderedDict
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

MAX_SPANS: Final = 2_000


class PendingSpans:
    """Ended spans by trace."""

    def __init__(self) -> None:
        self._traces: OrderedDict[int, list[ReadableSpan]] = OrderedDict()
        self._count = 0

    def add(self, span: ReadableSpan) -> None:
        """Keep a span until its trace becomes a rollout or its outermost span ends."""
        context = span.get_span_context()
        trace_id = 0 if context is None else context.trace_id
        if span.parent is None or span.parent.is_remote:
            self.pop(trace_id)
            return
        self._traces.setdefault(trace_id, []).append(span)
        self._count += 1
        while self._count > MAX_SPANS:
            self.pop(next(iter(self._traces)))

    def pop(self, trace_id: int) -> list[ReadableSpan]:
        """The spans of a trace, which wait no longer."""
        spans = self._traces.pop(trace_id, [])
        self._count -= len(spans)
        return spans
