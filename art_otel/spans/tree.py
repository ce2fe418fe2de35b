"""SpanTree: the spans of one or more traces with their parents, each span once.

Invariant: following `parent` from any span ends at a root or an orphan. Of a span delivered several times the richest
copy stays, whatever the order of delivery, with what it lacks and others have: a copy may come by way of a store that
keeps less. Spans that are their own ancestors are taken out as Quarantined, and what hung below them is an orphan.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from art_otel.spans.clock_skew import correct_clock_skew, topological_order
from art_otel.spans.quarantine import Quarantined
from art_otel.spans.span import Resource, Span, SpanKey, Value

_Inherited = TypeVar("_Inherited")


class SpanTree(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Spans by key, in the order of their start.

    `parents` leads to the key of a span's parent where that is here; `deliveries` counts how often each span came,
    `begun` how often only its start came of one that also came ended; `orphans` are the spans whose parent is not here;
    `cyclic` is one Quarantined for each span that was its own ancestor. `starts` holds start times in nanoseconds, corrected
    for clocks that differ between resources (`art_otel.spans.clock_skew`).
    """

    spans: Mapping[SpanKey, Span]
    parents: Mapping[SpanKey, SpanKey]
    deliveries: Mapping[SpanKey, int]
    begun: Mapping[SpanKey, int]
    starts: Mapping[SpanKey, int]
    orphans: frozenset[SpanKey]
    cyclic: tuple[Quarantined, ...]

    @cached_property
    def children(self) -> Mapping[SpanKey, tuple[SpanKey, ...]]:
        """The keys of the spans below a span, in the order of their start."""
        children: dict[SpanKey, list[SpanKey]] = {}
        for key in self.spans:
            if key in self.parents:
                children.setdefault(self.parents[key], []).append(key)
        return {key: tuple(below) for key, below in children.items()}

    def parent(self, span: Span) -> Span | None:
        """The span's parent, None for roots and orphans."""
        above = self.parents.get(span.key)
        return None if above is None else self.spans[above]

    def ancestors(self, span: Span) -> Iterator[Span]:
        """The span's parent, its parent, and so on."""
        above = self.parents.get(span.key)
        while above is not None:
            yield self.spans[above]
            above = self.parents.get(above)

    def topological_order(self) -> Iterator[SpanKey]:
        """Every span after its parent, else in the order of their start."""
        return topological_order(self.spans, self.parents)

    def inherit(self, derive: Callable[[SpanKey, _Inherited | None], _Inherited]) -> dict[SpanKey, _Inherited]:
        """A value for every span, derived from its key and from the value of its parent (None: it has no parent)."""
        values: dict[SpanKey, _Inherited] = {}
        for key in self.topological_order():
            above = self.parents.get(key)
            values[key] = derive(key, None if above is None else values[above])
        return values

    def order(self, span: Span) -> tuple[int, str, str]:
        """A sort key: when it started, then its ids."""
        return (self.starts[span.key], span.trace_id, span.span_id)


class UniqueSpans(msgspec.Struct, frozen=True, kw_only=True):
    """Each span once, in any order. The other fields are those of the tree that would grow of them."""

    spans: Mapping[SpanKey, Span]
    parents: Mapping[SpanKey, SpanKey]
    deliveries: Mapping[SpanKey, int]
    begun: Mapping[SpanKey, int]
    orphans: frozenset[SpanKey]
    cyclic: tuple[Quarantined, ...]


def deduplicate(spans: Iterable[Span]) -> UniqueSpans:
    """Keep each span once, without those that are their own ancestors."""
    unique, deliveries, begun = _deduplicate(list(spans))
    parents, orphans = _parents(unique)
    cyclic = sorted(_cycles(parents))
    if cyclic:
        for key in cyclic:
            del unique[key]
        parents, orphans = _parents(unique)
    return UniqueSpans(
        spans=unique,
        parents=parents,
        deliveries=deliveries,
        begun=begun,
        orphans=frozenset(orphans),
        cyclic=tuple(map(_cyclic_damage, cyclic)),
    )


def build_tree(spans: Iterable[Span]) -> SpanTree:
    """Build the tree of spans given in any order and any number of times."""
    united = deduplicate(spans)
    starts = correct_clock_skew(united.spans, united.parents)
    ordered = sorted(zip(starts.values(), starts, strict=True))
    return SpanTree(
        spans={key: united.spans[key] for _, key in ordered},
        parents=united.parents,
        deliveries=united.deliveries,
        begun=united.begun,
        starts=starts,
        orphans=united.orphans,
        cyclic=united.cyclic,
    )


def _parents(spans: Mapping[SpanKey, Span]) -> tuple[dict[SpanKey, SpanKey], list[SpanKey]]:
    """The parents that are among the spans, and the spans whose parent is not."""
    parents: dict[SpanKey, SpanKey] = {}
    orphans: list[SpanKey] = []
    for key, span in spans.items():
        if span.parent_span_id is not None:
            above = (span.trace_id, span.parent_span_id)
            if above in spans:
                parents[key] = above
            else:
                orphans.append(key)
    return parents, orphans


def _deduplicate(spans: Sequence[Span]) -> tuple[dict[SpanKey, Span], dict[SpanKey, int], dict[SpanKey, int]]:
    """Each span once, how often it came, and how often only its start came of one that came ended."""
    unique = {(span.trace_id, span.span_id): span for span in spans}
    if len(unique) == len(spans):
        return unique, dict.fromkeys(unique, 1), {}
    keys = [(span.trace_id, span.span_id) for span in spans]
    deliveries = Counter(keys)
    copies: dict[SpanKey, list[Span]] = {}
    for key, span in zip(keys, spans, strict=True):
        if deliveries[key] > 1:
            copies.setdefault(key, []).append(span)
    begun: dict[SpanKey, int] = {}
    for key, found in copies.items():
        unique[key] = _united(found)
        started = sum(copy.end_ns is None for copy in found)
        if started and unique[key].end_ns is not None:
            begun[key] = started
    return unique, deliveries, begun


def is_same(one: Span, other: Span) -> bool:
    """Whether both say the same in the same types: to Python 1, 1.0 and True are equal."""
    return one is other or (one == other and _encoded(one) == _encoded(other))


def _encoded(span: Span) -> bytes:
    return msgspec.msgpack.encode(span, order="deterministic")


def _united(copies: Sequence[Span]) -> Span:
    """The richest copy with what it lacks: each field is one copy's, so nothing is told twice; of resources, each name.

    The SDK counts what it dropped before anybody exports, so a copy without the count lost it.
    """
    if all(is_same(copy, copies[0]) for copy in copies):
        return copies[0]
    of_resource = frozenset(name for copy in copies for name in copy.resource.attributes)
    ranked = sorted(copies, key=lambda copy: _richness(copy, of_resource), reverse=True)
    best = ranked[0]
    settled = next((copy for copy in ranked if copy.status != "unset"), best)
    dropped = max(copy.dropped_attributes_count for copy in ranked)
    return msgspec.structs.replace(
        best,
        kind=next((copy.kind for copy in ranked if copy.kind != "unspecified"), best.kind),
        attributes=_with_start(ranked) if dropped else best.attributes,
        events=max(ranked, key=_told_by_events).events,
        links=max(ranked, key=lambda copy: len(copy.links)).links,
        status=settled.status,
        status_message=settled.status_message,
        scope=next((copy.scope for copy in ranked if copy.scope.name), best.scope),
        resource=_joined_resource(ranked),
        dropped_attributes_count=dropped,
        dropped_events_count=max(copy.dropped_events_count for copy in ranked),
        dropped_links_count=max(copy.dropped_links_count for copy in ranked),
    )


def _with_start(ranked: Sequence[Span]) -> dict[str, Value]:
    """The SDK drops the oldest attributes first, the rollout's id among them; the record of the start has those."""
    best = ranked[0]
    started = next((copy for copy in ranked if copy.end_ns is None), best)
    return {**started.attributes, **best.attributes}


def _joined_resource(ranked: Sequence[Span]) -> Resource:
    best = ranked[0].resource
    joined = {name: value for copy in reversed(ranked) for name, value in copy.resource.attributes.items()}
    return best if joined == best.attributes else Resource(attributes=joined)


def _richness(span: Span, of_resource: frozenset[str]) -> tuple[bool, int, int, int, int, int, bytes]:
    """Ended beats started, more beats less, and bytes decide between equals, so order never does.

    Attributes count first, but for those `of_resource`: some stores put those among the span's. Some make a text of
    every value, and some round times to microseconds.
    """
    attributes = span.attributes
    return (
        span.end_ns is not None,
        len(attributes) - sum(name in of_resource for name in attributes),
        _told_by_events(span),
        len(span.links) + bool(span.scope.name) + (span.kind != "unspecified") + (span.status != "unset"),
        sum(not isinstance(value, str) for value in attributes.values()),
        (span.start_ns % 1000 > 0) + ((span.end_ns or 0) % 1000 > 0),
        _encoded(span),
    )


def _told_by_events(span: Span) -> int:
    return sum(1 + len(event.attributes) for event in span.events)


def _cycles(parents: Mapping[SpanKey, SpanKey]) -> set[SpanKey]:
    """The keys of spans that are their own ancestors."""
    settled: set[SpanKey] = set()
    cyclic: set[SpanKey] = set()
    for key, above in parents.items():
        if above in settled or above not in parents:
            settled.add(key)
            continue
        path: dict[SpanKey, int] = {}
        at: SpanKey | None = key
        while at is not None and at not in settled and at not in path:
            path[at] = len(path)
            at = parents.get(at)
        if at is not None and at in path:
            cyclic.update(step for step, place in path.items() if place >= path[at])
        settled.update(path)
    return cyclic


def _cyclic_damage(key: SpanKey) -> Quarantined:
    trace_id, span_id = key
    return Quarantined(
        reason="cycle of parents",
        path=f"trace {trace_id} / span {span_id}",
        detail="the span is its own ancestor",
        trace_id=trace_id,
        span_id=span_id,
    )
