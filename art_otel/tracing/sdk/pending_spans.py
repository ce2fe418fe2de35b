"""PendingSpans: spans that ended in traces which are no rollout yet and may become one.

Invariant: only traces whose outermost span still runs wait, and in all at most `MAX_SPANS` spans with
`MAX_BYTES` of text; the oldest traces go first. What goes is none of a rollout's business as far as anybody knows.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, cast

from opentelemetry.sdk.trace import ReadableSpan

MAX_SPANS: Final = 2_000
MAX_BYTES: Final = 16 << 20


class PendingSpans:
    """Ended spans by trace."""

    def __init__(self) -> None:
        self._traces: OrderedDict[int, list[ReadableSpan]] = OrderedDict()
        self._count = 0
        self._bytes = 0

    def add(self, span: ReadableSpan) -> None:
        """Keep a span until its trace becomes a rollout or its outermost span ends."""
        context = span.get_span_context()
        trace_id = 0 if context is None else context.trace_id
        if span.parent is None or span.parent.is_remote:
            self.pop(trace_id)
            return
        self._traces.setdefault(trace_id, []).append(span)
        self._count += 1
        self._bytes += _size(span)
        while self._count > MAX_SPANS or (self._bytes > MAX_BYTES and self._traces):
            self.pop(next(iter(self._traces)))

    def pop(self, trace_id: int) -> list[ReadableSpan]:
        """The spans of a trace, which wait no longer."""
        spans = self._traces.pop(trace_id, [])
        self._count -= len(spans)
        self._bytes -= sum(map(_size, spans))
        return spans


def _size(span: ReadableSpan) -> int:
    """About how much text a span holds; what has ended does not change."""
    mappings = [span.attributes or {}, *(event.attributes or {} for event in span.events)]
    return sum(_length(value) for attributes in mappings for value in attributes.values())


def _length(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(_length, cast(Sequence[object], value))) if isinstance(value, Sequence) else 8
