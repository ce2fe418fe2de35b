"""Clock: start times that can be compared between machines.

Invariant: spans of one resource keep their distances. A child of another resource that starts when it cannot have
started was timed by another clock; it and its siblings of that resource are moved together so that they begin inside
the parent, and everything below moves with them. Durations never change. (Jaeger adjusts clock skew likewise.)
"""

from collections.abc import Mapping

from art_otel.spans.span import Span, SpanKey


def adjusted_starts(spans: Mapping[SpanKey, Span], parents: Mapping[SpanKey, SpanKey | None]) -> dict[SpanKey, int]:
    """Start times in nanoseconds by span, comparable over all spans of a trace. Needs spans without cycles."""
    shifts: dict[SpanKey, int] = {}
    shared: dict[tuple[SpanKey, str], int] = {}
    for key in sorted(spans, key=lambda key: (spans[key].start_ns, key)):
        path: list[SpanKey] = []
        at: SpanKey | None = key
        while at is not None and at in spans and at not in shifts:
            path.append(at)
            at = parents[at]
        for step in reversed(path):
            above = parents[step]
            shifts[step] = 0 if above is None or above not in spans else _shift(step, above, spans, shifts, shared)
    return {key: span.start_ns + shifts[key] for key, span in spans.items()}


def _shift(
    key: SpanKey,
    above: SpanKey,
    spans: Mapping[SpanKey, Span],
    shifts: Mapping[SpanKey, int],
    shared: dict[tuple[SpanKey, str], int],
) -> int:
    child, parent = spans[key], spans[above]
    same_clock = child.resource is parent.resource or child.resource == parent.resource
    if same_clock or _possible(child, parent, shifts[above]):
        return shifts[above]
    group = (above, str(child.resource.attributes.get("service.instance.id")))
    if group not in shared:
        room = max(0, _duration(parent) - _duration(child))
        shared[group] = parent.start_ns + shifts[above] + room // 2 - child.start_ns
    return shared[group]


def _possible(child: Span, parent: Span, parent_shift: int) -> bool:
    """No child starts before its parent; one that is waited for (client to server) starts before its parent ends."""
    if child.start_ns < parent.start_ns + parent_shift:
        return False
    waited_for = parent.kind == "client" or child.kind == "server"
    return not waited_for or parent.end_ns is None or child.start_ns <= parent.end_ns + parent_shift


def _duration(span: Span) -> int:
    return 0 if span.end_ns is None else span.end_ns - span.start_ns
