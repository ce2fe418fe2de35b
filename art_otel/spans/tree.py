"""SpanTree: the spans of one or more traces with their parents, each span once.

Invariant: following `parent` from any span ends at a root or an orphan. Of a span delivered several times the richest
copy stays, whatever the order of delivery; spans that are their own ancestors are taken out as Damage, and what hung
below them is an orphan.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from art_otel.spans.clock import adjusted_starts
from art_otel.spans.damage import Damage
from art_otel.spans.span import Span, SpanKey


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanTree:
    """Spans by key, in the order of their start.

    `children` lists keys in the same order; `deliveries` counts how often each span came; `orphans` are the spans whose
    parent is not here; `cyclic` is one Damage for each span that was its own ancestor. `starts` holds start times in
    nanoseconds, corrected for clocks that differ between resources (`art_otel.spans.clock`).
    """

    spans: Mapping[SpanKey, Span]
    children: Mapping[SpanKey, tuple[SpanKey, ...]]
    deliveries: Mapping[SpanKey, int]
    starts: Mapping[SpanKey, int]
    orphans: frozenset[SpanKey]
    cyclic: tuple[Damage, ...]

    def parent(self, span: Span) -> Span | None:
        """The span's parent, None for roots and orphans."""
        if span.parent_span_id is None:
            return None
        return self.spans.get((span.trace_id, span.parent_span_id))

    def ancestors(self, span: Span) -> Iterator[Span]:
        """The span's parent, its parent, and so on."""
        above = self.parent(span)
        while above is not None:
            yield above
            above = self.parent(above)

    def order(self, span: Span) -> tuple[int, str, str]:
        """A sort key: when it started, then its ids."""
        return (self.starts[span.key], span.trace_id, span.span_id)


def grow_tree(spans: Iterable[Span]) -> SpanTree:
    """Build the tree of spans given in any order and any number of times."""
    unique, deliveries = _deduplicate(spans)
    cyclic = _cycles(unique)
    for key in cyclic:
        del unique[key]
    parents = {key: _parent_key(span) for key, span in unique.items()}
    orphans = frozenset(key for key, above in parents.items() if above is not None and above not in unique)
    starts = adjusted_starts(unique, parents)
    ordered = sorted(unique, key=lambda key: (starts[key], key))
    children: dict[SpanKey, list[SpanKey]] = {}
    for key in ordered:
        above = parents[key]
        if above is not None and above in unique:
            children.setdefault(above, []).append(key)
    return SpanTree(
        spans={key: unique[key] for key in ordered},
        children={key: tuple(below) for key, below in children.items()},
        deliveries=deliveries,
        starts=starts,
        orphans=orphans,
        cyclic=tuple(_cyclic_damage(key) for key in sorted(cyclic)),
    )


def _parent_key(span: Span) -> SpanKey | None:
    return None if span.parent_span_id is None else (span.trace_id, span.parent_span_id)


def _deduplicate(spans: Iterable[Span]) -> tuple[dict[SpanKey, Span], Counter[SpanKey]]:
    unique: dict[SpanKey, Span] = {}
    deliveries: Counter[SpanKey] = Counter()
    for span in spans:
        key = span.key
        deliveries[key] += 1
        known = unique.get(key)
        if known is None or (known != span and _richness(span) > _richness(known)):
            unique[key] = span
    return unique, deliveries


def _richness(span: Span) -> tuple[bool, int, int, bytes]:
    """Ended beats started, more attributes and events beat fewer; bytes decide between equals, so order never does."""
    encoded = msgspec.msgpack.encode(span, order="deterministic")
    return (span.end_ns is not None, len(span.attributes), len(span.events), encoded)


def _cycles(spans: Mapping[SpanKey, Span]) -> set[SpanKey]:
    """The keys of spans that are their own ancestors."""
    settled: set[SpanKey] = set()
    cyclic: set[SpanKey] = set()
    for key in spans:
        path: dict[SpanKey, int] = {}
        at: SpanKey | None = key
        while at is not None and at in spans and at not in settled and at not in path:
            path[at] = len(path)
            at = _parent_key(spans[at])
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
