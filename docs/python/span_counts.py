"""Counts the spans of each rollout that begins here, for programs with OpenTelemetry's SDK alone."""

import threading
from collections import Counter

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor


class SpanCounts(SpanProcessor):
    """Counts spans by `art.rollout.id`, besides those that are named `rollout …`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 # as SpanProcessor
        """Count a span."""
        rollout_id = (span.attributes or {}).get("art.rollout.id")
        if rollout_id is not None and not span.name.startswith("rollout "):
            with self._lock:
                self._counts[str(rollout_id)] += 1

    def put_on(self, rollout: Span) -> None:
        """Put the count on a rollout's own span, as the last thing before it ends."""
        rollout_id = str((rollout.attributes or {}).get("art.rollout.id"))
        with self._lock:
            rollout.set_attribute("art.rollout.spans.started", self._counts.pop(rollout_id, 0))
