"""SpanTree: the spans of one or more traces with their parents, each span once, in the order of comparable times.

Invariant: following `parent` from any span ends at a root or an orphan. Spans that are their own ancestors are
quarantined, and what hung below them is an orphan.

Start times can be compared between machines. Spans of one resource keep their distances. A child of another resource
that starts outside the time its parent allows was timed by another clock: it and all its siblings of that resource are
moved together so that they begin inside the parent, and everything below moves with them. Durations never change.
(Jaeger does the same.)
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import Generic, TypeVar

import msgspec

from art_otel.attributes import ROLLOUT_EDITION
from art_otel.spans.span import Event, Quarantined, Resource, Span, SpanKey, Value

_Inherited = TypeVar("_Inherited")
_Item = TypeVar("_Item")


class SpanTree(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Spans by key, in the order of their start.

    `parents` leads to the key of a span's parent where that is here; `orphans` are the spans whose parent is not here.
    `deliveries` and `start_only` count copies, as in `UniqueSpans`; `cyclic` has an entry for each span that was its
    own ancestor. `starts` holds start times in nanoseconds, corrected for clocks that differ between resources.
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
        """The span's parent, None for roots and orphans."""
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
        """The position of each span where every span stands before those below it, and the last position below it."""
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


def build_tree(spans: Iterable[Span]) -> SpanTree:
    """Build the tree of spans, which may come in any order and any number of times."""
    unique = deduplicate(list(spans))
    cyclic = take_out_cycles(unique.spans)
    parents, orphans = _find_parents(unique.spans)
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


def take_out_cycles(spans: dict[SpanKey, Span]) -> tuple[Quarantined, ...]:
    """Take the spans that are their own ancestors out of `spans`."""
    parents, _ = _find_parents(spans)
    cyclic = sorted(_find_cycles(parents))
    for key in cyclic:
        del spans[key]
    return tuple(map(_quarantined_cycle, cyclic))


def _find_parents(spans: Mapping[SpanKey, Span]) -> tuple[dict[SpanKey, SpanKey], list[SpanKey]]:
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


def _quarantined_cycle(key: SpanKey) -> Quarantined:
    trace_id, span_id = key
    return Quarantined(
        reason="cycle of parents",
        path=f"trace {trace_id} / span {span_id}",
        detail="the span is its own ancestor",
        trace_id=trace_id,
        span_id=span_id,
    )


def topological_order(keys: Iterable[SpanKey], parents: Mapping[SpanKey, SpanKey]) -> Iterator[SpanKey]:
    """The keys and everything above them, each once and after its parent. Needs spans without cycles."""
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


class IntervalIndex(Generic[_Item]):
    """Finds items by the time they ran: O(n log n) to build, O(log n) per query."""

    def __init__(self, times: Iterable[tuple[int, int | None, _Item]]) -> None:
        """Take each item with its first and last moment in nanoseconds; a last moment of None has not come yet."""
        self._items: list[_Item] = []
        changes: list[tuple[int, int, int]] = []
        for position, (first, last, item) in enumerate(times):
            self._items.append(item)
            changes.append((first, 1, position))
            if last is not None:
                changes.append((last + 1, -1, -position))
        changes.sort()
        self._moments = [moment for moment, _, _ in changes]
        self._counts = list(accumulate(count for _, count, _ in changes))
        # While one item runs, the sum of the positions of all that run is its position.
        self._positions = list(accumulate(position for _, _, position in changes))

    def only_at(self, moment: int) -> _Item | None:
        """The item that was running at a moment, if just one was."""
        last_change = bisect_right(self._moments, moment) - 1
        if last_change < 0 or self._counts[last_change] != 1:
            return None
        return self._items[self._positions[last_change]]

    def count_at(self, moment: int) -> int:
        """How many items were running at a moment."""
        last_change = bisect_right(self._moments, moment) - 1
        return 0 if last_change < 0 else self._counts[last_change]


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
    """Merge the copies: those of one edition are equal or cut, and of several, as gateways write them, all count."""
    editions: dict[int, list[Span]] = {}
    for copy in copies:
        editions.setdefault(edition_of(copy), []).append(copy)
    if len(editions) == 1:
        return _merged_copies(copies)
    return _merged_editions([_merged_copies(editions[number]) for number in sorted(editions)])


def edition_of(span: Span) -> int:
    """The number of a copy's edition; 0 for all but gateways' own spans."""
    number = span.attributes.get(ROLLOUT_EDITION, 0)
    try:
        return int(number)  # of which some stores make a text
    except (TypeError, ValueError, OverflowError):
        return 0


def _merged_editions(editions: Sequence[Span]) -> Span:
    """Merge the editions of a span, the oldest first: what each says, and where several say it the newest.

    Its end is the one that somebody said, which a status shows. Where nobody did it is the last that a gateway saw.
    """
    ended = [edition for edition in editions if edition.end_ns is not None]
    said = [edition for edition in ended if edition.status != "unset"]
    newest = (said or ended or editions)[-1]
    attributes: dict[str, Value] = {}
    events: dict[tuple[str, int], list[Event]] = {}
    for edition in editions:
        attributes |= edition.attributes
        events |= _events_by_moment(edition)
    return msgspec.structs.replace(
        newest,
        start_ns=min(edition.start_ns for edition in editions),
        end_ns=newest.end_ns if said else max((edition.end_ns or 0 for edition in ended), default=None),
        attributes=attributes,
        events=tuple(_without_repeats(events)),
        dropped_attributes_count=max(edition.dropped_attributes_count for edition in editions),
        dropped_events_count=max(edition.dropped_events_count for edition in editions),
        dropped_links_count=max(edition.dropped_links_count for edition in editions),
    )


def _events_by_moment(span: Span) -> dict[tuple[str, int], list[Event]]:
    """The events of a span by name and microsecond, to which some stores round: those of one are an edition's."""
    events: dict[tuple[str, int], list[Event]] = {}
    for event in span.events:
        events.setdefault((event.name, event.time_ns // 1000), []).append(event)
    return events


def _without_repeats(events: Mapping[tuple[str, int], Sequence[Event]]) -> Iterator[Event]:
    """The events in the order of time, but for those that say what the last of their name said.

    A client that got no answer sends the end of a rollout again, maybe to another gateway.
    """
    last: dict[str, list[dict[str, Value]]] = {}
    for name, moment in sorted(events, key=itemgetter(1, 0)):
        at_once = events[name, moment]
        if (says := [event.attributes for event in at_once]) != last.get(name):
            last[name] = says
            yield from at_once


def _merged_copies(copies: Sequence[Span]) -> Span:
    """Merge the copies of one edition: the richest one, with what it lacks.

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
