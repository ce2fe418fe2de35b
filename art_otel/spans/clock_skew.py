"""Clock skew: start times that can be compared between machines.

Invariant: spans of one resource keep their distances. A child of another resource that starts outside the time its
parent allows was timed by another clock; it and all its siblings of that resource are moved together so that they
begin inside the parent, and everything below moves with them. Durations never change. (Jaeger does the same.)
"""

from collections.abc import Iterable, Mapping

import msgspec

from art_otel.spans.order import topological_order
from art_otel.spans.span import Resource, Span, SpanKey


def correct_clock_skew(spans: Mapping[SpanKey, Span], parents: Mapping[SpanKey, SpanKey]) -> dict[SpanKey, int]:
    """Start times in nanoseconds by span, comparable over all spans of a trace.

    `parents` leads from each span to its parent where that is among `spans`. Needs spans without cycles.
    """
    starts = {key: span.start_ns for key, span in spans.items()}
    if _of_one_resource(spans.values()):
        return starts
    shifts: dict[SpanKey, int] = {}
    shared: dict[tuple[SpanKey, bytes], int] = {}
    by_start = sorted(spans, key=lambda key: (starts[key], key))
    for key in topological_order(by_start, parents):
        above = parents.get(key)
        shifts[key] = 0 if above is None else _shift(key, above, spans, shifts, shared)
    return {key: start + shifts[key] for key, start in starts.items()}


def _of_one_resource(spans: Iterable[Span]) -> bool:
    first: Resource | None = None
    for span in spans:
        if first is None:
            first = span.resource
        elif span.resource is not first and span.resource != first:
            return False
    return True


def _shift(
    key: SpanKey,
    above: SpanKey,
    spans: Mapping[SpanKey, Span],
    shifts: Mapping[SpanKey, int],
    shared: dict[tuple[SpanKey, bytes], int],
) -> int:
    child, parent = spans[key], spans[above]
    same_clock = child.resource is parent.resource or child.resource == parent.resource
    if same_clock or _possible(child, parent, shifts[above]):
        return shifts[above]
    group = (above, msgspec.msgpack.encode(child.resource, order="deterministic"))
    if group not in shared:
        slack = max(0, _duration(parent) - _duration(child))
        shared[group] = parent.start_ns + shifts[above] + slack // 2 - child.start_ns
    return shared[group]


def _possible(child: Span, parent: Span, parent_shift: int) -> bool:
    """No child starts before its parent; one that is waited for (client to server) starts before its parent ends."""
    if child.start_ns < parent.start_ns + parent_shift:
        return False
    waited_for = parent.kind == "client" or child.kind == "server"
    return not waited_for or parent.end_ns is None or child.start_ns <= parent.end_ns + parent_shift


def _duration(span: Span) -> int:
    return 0 if span.end_ns is None else span.end_ns - span.start_ns
