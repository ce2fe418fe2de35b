"""Deduplicate: each span once, however often it was delivered.

Invariant: of a span delivered several times the richest copy stays, whatever the order of delivery, with what it lacks
and others have: a copy may come by way of a store that keeps less. Events and links are those of
one copy, so none is there twice.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from art_otel.spans.span import Resource, Span, SpanKey, Value


class UniqueSpans(msgspec.Struct, frozen=True, kw_only=True):
    """Each span once, in any order.

    `deliveries` counts how often each span came, `start_only` how often only its start came of one that also ended.
    """

    spans: dict[SpanKey, Span]
    deliveries: Mapping[SpanKey, int]
    start_only: Mapping[SpanKey, int]


def deduplicate(spans: Sequence[Span]) -> UniqueSpans:
    """Keep each span once."""
    unique = {(span.trace_id, span.span_id): span for span in spans}  # `span.key` takes twice as long
    if len(unique) == len(spans):
        return UniqueSpans(spans=unique, deliveries=dict.fromkeys(unique, 1), start_only={})
    deliveries = Counter(span.key for span in spans)
    copies: dict[SpanKey, list[Span]] = {}
    for span in spans:
        if deliveries[span.key] > 1:
            copies.setdefault(span.key, []).append(span)
    start_only: dict[SpanKey, int] = {}
    for key, several in copies.items():
        unique[key] = _merged(several)
        starts = sum(copy.end_ns is None for copy in several)
        if starts and unique[key].end_ns is not None:
            start_only[key] = starts
    return UniqueSpans(spans=unique, deliveries=deliveries, start_only=start_only)


def is_same(one: Span, other: Span) -> bool:
    """Whether both have the same values of the same types: to Python 1, 1.0 and True are equal."""
    return one is other or (one == other and _encoded(one) == _encoded(other))


def _encoded(span: Span) -> bytes:
    return msgspec.msgpack.encode(span, order="deterministic")


def _merged(copies: Sequence[Span]) -> Span:
    """Merge the copies: the richest one, with what it lacks.

    The SDK counts what it dropped before anybody exports, so a copy without the count lost it.
    """
    if all(is_same(copy, copies[0]) for copy in copies):
        return copies[0]
    resource_names = frozenset(name for copy in copies for name in copy.resource.attributes)
    ranked = sorted(copies, key=lambda copy: _richness(copy, resource_names), reverse=True)
    best = ranked[0]
    with_status = next((copy for copy in ranked if copy.status != "unset"), best)
    dropped = max(copy.dropped_attributes_count for copy in ranked)
    return msgspec.structs.replace(
        best,
        kind=next((copy.kind for copy in ranked if copy.kind != "unspecified"), best.kind),
        attributes=_with_start(ranked) if dropped else best.attributes,
        events=max(ranked, key=_size_of_events).events,
        links=max(ranked, key=lambda copy: len(copy.links)).links,
        status=with_status.status,
        status_message=with_status.status_message,
        scope=next((copy.scope for copy in ranked if copy.scope.name), best.scope),
        resource=_merged_resource(ranked),
        dropped_attributes_count=dropped,
        dropped_events_count=max(copy.dropped_events_count for copy in ranked),
        dropped_links_count=max(copy.dropped_links_count for copy in ranked),
    )


def _with_start(ranked: Sequence[Span]) -> dict[str, Value]:
    """The SDK drops the oldest attributes first, the rollout's id among them; the record of the start has those."""
    best = ranked[0]
    started = next((copy for copy in ranked if copy.end_ns is None), best)
    return {**started.attributes, **best.attributes}


def _merged_resource(ranked: Sequence[Span]) -> Resource:
    best = ranked[0].resource
    merged = {name: value for copy in reversed(ranked) for name, value in copy.resource.attributes.items()}
    return best if merged == best.attributes else Resource(attributes=merged)


def _richness(span: Span, resource_names: frozenset[str]) -> tuple[bool, int, int, int, int, int, bytes]:
    """The key by which the richest copy is chosen: an ended span beats its start, and the copy with more data wins.

    Bytes decide between equals, so that order never does.
    Attributes count first, but for those of a resource: some stores put those among the span's. Some make a text of
    every value, and some round times to microseconds.
    """
    attributes = span.attributes
    return (
        span.end_ns is not None,
        len(attributes) - sum(name in resource_names for name in attributes),
        _size_of_events(span),
        len(span.links) + bool(span.scope.name) + (span.kind != "unspecified") + (span.status != "unset"),
        sum(not isinstance(value, str) for value in attributes.values()),
        (span.start_ns % 1000 > 0) + ((span.end_ns or 0) % 1000 > 0),
        _encoded(span),
    )


def _size_of_events(span: Span) -> int:
    return sum(1 + len(event.attributes) for event in span.events)
