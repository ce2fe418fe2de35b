"""SpanTree: the spans of one or more traces with their parents, each once, sorted by times with clock skew corrected.

Invariant: following `parent` from any span ends at a root or an orphan. A span that is its own ancestor is quarantined,
and its children become orphans.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

import msgspec

from art_otel.spans.copies import deduplicate
from art_otel.spans.span import Quarantined, Span, SpanKey

_Inherited = TypeVar("_Inherited")


class SpanTree(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Spans by key, in the order of their start.

    `parents` has the key of each span's parent, if the parent is in the tree; `orphans` are spans whose parent is
    missing. `deliveries` and `start_only` count copies, as in `UniqueSpans`; `cyclic` has an entry for each span that
    was its own ancestor. `starts` has start times in nanoseconds, corrected for different clocks of resources.
    """

    spans: Mapping[SpanKey, Span]
    parents: Mapping[SpanKey, SpanKey]
    deliveries: Mapping[SpanKey, int]
    start_only: Mapping[SpanKey, int]
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
        """The span's parent; None for roots and orphans."""
        above = self.parents.get(span.key)
        return None if above is None else self.spans[above]

    def ancestors(self, span: Span) -> Iterator[Span]:
        """The span's parent, its parent, and so on."""
        above = self.parents.get(span.key)
        while above is not None:
            yield self.spans[above]
            above = self.parents.get(above)

    @cached_property
    def _subtrees(self) -> Mapping[SpanKey, tuple[int, int]]:
        """Each span's position in pre-order, and the last position below it: a range with the whole subtree."""
        order = list(self.topological_order())
        sizes = dict.fromkeys(order, 1)
        for key in reversed(order):
            if key in self.parents:
                sizes[self.parents[key]] += sizes[key]
        firsts: dict[SpanKey | None, int] = {None: 0}
        subtrees: dict[SpanKey, tuple[int, int]] = {}
        for key in order:
            above = self.parents.get(key)
            first = firsts[above]
            firsts[above] += sizes[key]
            firsts[key] = first + 1
            subtrees[key] = first, first + sizes[key] - 1
        return subtrees

    def is_below(self, key: SpanKey, ancestor: SpanKey) -> bool:
        """Whether a span is below another one, at any depth."""
        first, last = self._subtrees[ancestor]
        return first < self._subtrees[key][0] <= last

    def topological_order(self) -> Iterator[SpanKey]:
        """All spans, each after its parent, otherwise in the order of their start."""
        return topological_order(self.spans, self.parents)

    def inherit(self, derive: Callable[[SpanKey, _Inherited | None], _Inherited]) -> dict[SpanKey, _Inherited]:
        """Compute a value for every span from its key and its parent's value (None without a parent)."""
        values: dict[SpanKey, _Inherited] = {}
        for key in self.topological_order():
            above = self.parents.get(key)
            values[key] = derive(key, None if above is None else values[above])
        return values

    def order(self, span: Span) -> tuple[int, str, str]:
        """A sort key: the corrected start, then the ids."""
        return (self.starts[span.key], span.trace_id, span.span_id)


def build_tree(spans: Iterable[Span]) -> SpanTree:
    """Build the tree of spans, given in any order and any number of times."""
    unique = deduplicate(list(spans))
    parents, orphans = find_parents(unique.spans)
    cyclic = take_out_cycles(unique.spans, parents)
    if cyclic:
        parents, orphans = find_parents(unique.spans)
    starts = correct_clock_skew(unique.spans, parents)
    ordered = sorted(zip(starts.values(), starts, strict=True))
    return SpanTree(
        spans={key: unique.spans[key] for _, key in ordered},
        parents=parents,
        deliveries=unique.deliveries,
        start_only=unique.start_only,
        starts=starts,
        orphans=frozenset(orphans),
        cyclic=cyclic,
    )


def take_out_cycles(spans: dict[SpanKey, Span], parents: Mapping[SpanKey, SpanKey]) -> tuple[Quarantined, ...]:
    """Remove spans that are their own ancestors from `spans`, and return an entry for each. `parents` is by key."""
    cyclic: list[Quarantined] = []
    for trace_id, span_id in sorted(_find_cycles(parents)):
        del spans[trace_id, span_id]
        cyclic.append(
            Quarantined(
                reason="cycle of parents",
                path=f"trace {trace_id} / span {span_id}",
                detail="the span is its own ancestor",
                trace_id=trace_id,
                span_id=span_id,
            )
        )
    return tuple(cyclic)


def find_parents(spans: Mapping[SpanKey, Span]) -> tuple[dict[SpanKey, SpanKey], list[SpanKey]]:
    """The parents of spans by key, as far as they are among the spans; and the spans whose parent is missing."""
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


def _find_cycles(parents: Mapping[SpanKey, SpanKey]) -> set[SpanKey]:
    """The keys of spans that are their own ancestors."""
    checked: set[SpanKey] = set()
    cyclic: set[SpanKey] = set()
    for key, above in parents.items():
        if above in checked or above not in parents:
            checked.add(key)
            continue
        path: dict[SpanKey, int] = {}
        at: SpanKey | None = key
        while at is not None and at not in checked and at not in path:
            path[at] = len(path)
            at = parents.get(at)
        if at is not None and at in path:
            cyclic.update(step for step, position in path.items() if position >= path[at])
        checked.update(path)
    return cyclic


def topological_order(keys: Iterable[SpanKey], parents: Mapping[SpanKey, SpanKey]) -> Iterator[SpanKey]:
    """The keys and their ancestors, each once and after its parent. There must be no cycles."""
    done: set[SpanKey] = set()
    for key in keys:
        if key in done:
            continue
        at = parents.get(key)
        if at is None or at in done:  # most are in order
            done.add(key)
            yield key
            continue
        path = [key]
        while at is not None and at not in done:
            path.append(at)
            at = parents.get(at)
        done.update(path)
        yield from reversed(path)


def correct_clock_skew(spans: Mapping[SpanKey, Span], parents: Mapping[SpanKey, SpanKey]) -> dict[SpanKey, int]:
    """Start times by span (ns), corrected so that spans of different clocks can be compared. There must be no cycles.

    Spans of one resource keep their distances. A child of another resource that starts before its parent, or after the
    end of a parent that waits for it, was timed by another clock:

        parent (host a)   10 ──────── 20
        child  (host b)                       31 ── 35      by host b's clock
                             13 ── 17                       moved into the middle, with all siblings of host b

    Everything below the child moves with it. Durations never change. (Jaeger corrects clocks in the same way.)
    """
    starts = {key: span.start_ns for key, span in spans.items()}
    resources = [span.resource for span in spans.values()]
    if all(resource is resources[0] or resource == resources[0] for resource in resources):
        return starts
    shifts: dict[SpanKey, int] = {}
    shared: dict[tuple[SpanKey, bytes], int] = {}
    for key in topological_order(sorted(spans, key=lambda key: (starts[key], key)), parents):
        above = parents.get(key)
        if above is None:
            shifts[key] = 0
            continue
        child, parent, shift = spans[key], spans[above], shifts[above]
        # No child starts before its parent, and one that is waited for (client to server) not after its parent ended.
        is_early = child.start_ns < parent.start_ns + shift
        is_waited_for = parent.kind == "client" or child.kind == "server"
        is_late = is_waited_for and parent.end_ns is not None and child.start_ns > parent.end_ns + shift
        is_same_clock = child.resource is parent.resource or child.resource == parent.resource
        if not is_same_clock and (is_early or is_late):
            group = (above, msgspec.msgpack.encode(child.resource, order="deterministic"))
            if group not in shared:
                slack = max(0, _duration(parent) - _duration(child))
                shared[group] = parent.start_ns + shift + slack // 2 - child.start_ns
            shift = shared[group]
        shifts[key] = shift
    return {key: start + shifts[key] for key, start in starts.items()}


def _duration(span: Span) -> int:
    return 0 if span.end_ns is None else span.end_ns - span.start_ns
