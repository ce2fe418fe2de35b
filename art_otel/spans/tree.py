"""SpanTree: the spans of one or more traces with their parents, each span once.

Invariant: following `parent` from any span ends at a root or an orphan. Of a span delivered several times the richest
copy stays, whatever the order of delivery, with what only a record of its start still has of attributes it dropped;
spans that are their own ancestors are taken out as Damage, and what hung below them is an orphan.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from art_otel.spans.clock import adjusted_starts, parents_first
from art_otel.spans.damage import Damage
from art_otel.spans.span import Span, SpanKey


class SpanTree(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Spans by key, in the order of their start.

    `parents` leads to the key of a span's parent where that is here; `deliveries` counts how often each span came,
    `begun` how often only its start came of one that also came ended; `orphans` are the spans whose parent is not here;
    `cyclic` is one Damage for each span that was its own ancestor. `starts` holds start times in nanoseconds, corrected
    for clocks that differ between resources (`art_otel.spans.clock`).
    """

    spans: Mapping[SpanKey, Span]
    parents: Mapping[SpanKey, SpanKey]
    deliveries: Mapping[SpanKey, int]
    begun: Mapping[SpanKey, int]
    starts: Mapping[SpanKey, int]
    orphans: frozenset[SpanKey]
    cyclic: tuple[Damage, ...]

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

    def outside_in(self) -> Iterator[SpanKey]:
        """Every span after its parent, else in the order of their start."""
        return parents_first(self.spans, self.parents)

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
    cyclic: tuple[Damage, ...]


def unite_deliveries(spans: Iterable[Span]) -> UniqueSpans:
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


def grow_tree(spans: Iterable[Span]) -> SpanTree:
    """Build the tree of spans given in any order and any number of times."""
    united = unite_deliveries(spans)
    starts = adjusted_starts(united.spans, united.parents)
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
    """The richest copy of each span, how often it came, and how often only its start came of one that came ended."""
    unique = {(span.trace_id, span.span_id): span for span in spans}
    if len(unique) == len(spans):
        return unique, dict.fromkeys(unique, 1), {}
    unique.clear()
    deliveries: dict[SpanKey, int] = {}
    begun: dict[SpanKey, int] = {}
    starts: dict[SpanKey, Span] = {}
    for span in spans:
        key = (span.trace_id, span.span_id)
        if span.end_ns is None:
            begun[key] = begun.get(key, 0) + 1
            starts[key] = _richer(starts.get(key, span), span)
        known = unique.get(key)
        if known is None:
            unique[key] = span
            deliveries[key] = 1
            continue
        deliveries[key] += 1
        unique[key] = _richer(known, span)
    begun = {key: count for key, count in begun.items() if unique[key].end_ns is not None}
    for key in begun:
        unique[key] = _with_start(unique[key], starts[key])
    return unique, deliveries, begun


def _with_start(ended: Span, started: Span) -> Span:
    """The SDK drops the oldest attributes first, the rollout's id among them; the record of the start has those."""
    if not ended.dropped_attributes_count or started.attributes.keys() <= ended.attributes.keys():
        return ended
    return msgspec.structs.replace(ended, attributes={**started.attributes, **ended.attributes})


def _richer(known: Span, span: Span) -> Span:
    return span if known != span and _richness(span) > _richness(known) else known


def _richness(span: Span) -> tuple[bool, int, int, bytes]:
    """Ended beats started, more attributes and events beat fewer; bytes decide between equals, so order never does."""
    encoded = msgspec.msgpack.encode(span, order="deterministic")
    return (span.end_ns is not None, len(span.attributes), len(span.events), encoded)


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


def _cyclic_damage(key: SpanKey) -> Damage:
    trace_id, span_id = key
    return Damage(
        reason="cycle of parents",
        path=f"trace {trace_id} / span {span_id}",
        detail="the span is its own ancestor",
        trace_id=trace_id,
        span_id=span_id,
    )
