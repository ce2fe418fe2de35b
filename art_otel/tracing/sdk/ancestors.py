"""Ancestors: the spans of this process around a span, as long as somebody holds them.

Invariant: spans are found by their ids, so also where a proxy of one is current, and none is kept alive from here. The
parent of a request that this process got is no ancestor: it may be of this process too, and waits in other code.
"""

from collections.abc import Iterator
from typing import Final
from weakref import WeakValueDictionary

from opentelemetry.sdk.trace import Span
from opentelemetry.trace import SpanContext

from art_otel.tracing.sdk.rollout_registry import Key, key_of

_spans: Final[WeakValueDictionary[Key, Span]] = WeakValueDictionary()


def remember(span: Span) -> None:
    """Remember a span that starts."""
    _spans[key_of(span)] = span


def path_up(context: SpanContext | None) -> Iterator[Span]:
    """The span with these ids and those around it, the innermost first."""
    while context is not None and not context.is_remote:
        span = _spans.get((context.trace_id, context.span_id))
        if span is None:
            return
        yield span
        context = span.parent
