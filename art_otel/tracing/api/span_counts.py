"""Span counts: how many spans a rollout has, on its own span, so that whoever reads a dump knows whether all are there.

Invariant: it counts what this process saw of the rollout besides its own span; nothing is written where nobody counted.
"""

from opentelemetry.trace import Span

from art_otel import attributes
from art_otel.live import SpanCounts


def record_span_counts(span: Span, counts: SpanCounts | None) -> None:
    """Put the counts on the rollout's span."""
    if counts is not None:
        span.set_attribute(attributes.SPANS_STARTED, counts.started)
        span.set_attribute(attributes.SPANS_ENDED, counts.ended)
