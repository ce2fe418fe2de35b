"""Overlapping recordings: rules for recordings that overlap in time, wherever they are in the tree.

Some instrumentors do not make their spans current (LangChain), so the client's span lies beside them or further up.

Invariant: each rule first joins recordings of equal contents and then those of which a recorder lost something. A
recording is compared with few others that contradict it, so that no rule is quadratic where a server repeats ids or
every call says the same.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeAlias

from art_otel.calls import InferenceCall
from art_otel.conventions import ART_OTEL, request_key
from art_otel.spans import SpanKey
from art_otel.trajectories.calls.duplicates.cluster import Cluster, Clusters, grouped
from art_otel.trajectories.calls.duplicates.contradictions import (
    content_key,
    contradicts,
    has_same_id,
    have_same_answer,
    prompts_differ,
)
from art_otel.trajectories.calls.duplicates.recording import Recording

MAX_COMPARED: Final = 32
"""Recordings that contradict a recording before no other is compared with it: servers that repeat no ids give few."""

_MAX_DEPTH: Final = 64
"""How far above a framework's span the parent of the client's span may be."""


def attach_doubles(clusters: Clusters) -> None:
    """Attach a recording that its own instrumentor made twice to the outer one of the two, else to the first.

    An instrumentor that was set up twice, or exports through two providers, gives both spans the response's id, one
    around the other in time or in the tree; LiteLLM writes the same span twice, with the same times. Equal calls
    without an id may be samples of one batch, and stay.
    """
    around: set[SpanKey] = set()
    for inner in clusters.recordings:
        outer = clusters.enclosing(inner)
        if outer is not None:
            around.add(outer.span.key)
        if outer is None or outer.recorder != inner.recorder or not has_same_id(outer.call, inner.call):
            continue
        is_double = have_same_answer(outer.call, inner.call) and not contradicts(outer.call, inner.call)
        if is_double and _are_at_once(outer, inner):
            clusters.attach(inner, clusters.of(outer))
    for same in grouped(clusters.recordings, _double_key):
        # The one around other recordings first: they are joined with it, not with what is attached to another.
        first, *others = sorted(
            same, key=lambda one: (one.start, -(one.end or one.start), one.span.key not in around, one.span.key)
        )
        for one in others:
            if (one.end or one.start) > (first.end or first.start):
                first = one
            else:
                clusters.attach(one, clusters.of(first))


def join_one_response(clusters: Clusters) -> None:
    """Join recordings with one response id that ran at the same time: servers repeat ids."""
    for of_one_id in clusters.grouped(_response_id):
        for same in _surest_first(clusters, of_one_id, clusters.content_of):
            running = _Running(clusters, _last_end)
            for inner in same:
                _join_first(clusters, running, inner, running.at_once(inner))


def join_enclosed(clusters: Clusters) -> None:
    """Join a recording with the shortest one that encloses it in time, below its parent, and has the same content.

    At most one of the two has the response's id. Each outer takes one inner, so n equal requests stay n calls.
    """
    if all(cluster.call.response_id is not None for cluster in clusters):
        return
    for of_one_content in clusters.grouped(clusters.content_of):
        for same in _surest_first(clusters, of_one_content, _tool_call_ids):
            running = _Running(clusters, _end, below_parent=True)
            for inner in same:
                _join_first(clusters, running, inner, running.enclosing(inner))


def _surest_first(
    clusters: Clusters, same: list[Cluster], key_of: Callable[[Cluster], Hashable | None]
) -> Iterator[list[Cluster]]:
    """The clusters that also share a second key, one list per key, then all that no rule has joined; by start."""
    parts = grouped(same, key_of)
    if len(parts) == 1 and len(parts[0]) == len(same):
        parts = []
    for part in (*parts, same):
        yield sorted((one for one in part if clusters.of(one.outermost) is one), key=_by_start)


def _join_first(clusters: Clusters, running: "_Running", inner: Cluster, candidates: Iterator["_Ending"]) -> None:
    """Join a cluster with the first candidate that may be of the same call, which from then on has the inner's end."""
    for one in islice(candidates, MAX_COMPARED):
        recorders = frozenset(one.cluster.recorders)
        if clusters.join(one.cluster, inner):
            running.remove(one, recorders)
            running.add(one.cluster, inner)
            return
    running.add(inner, inner)


class _Ending(NamedTuple):
    """A cluster and when it ends. `order` tells apart those that end at once."""

    end: int
    order: int
    cluster: Cluster
    has_id: bool


_Class: TypeAlias = tuple[frozenset[tuple[str, str]], bool]


class _Running:
    """Clusters by who recorded them and whether they have a response id, and of these by their end.

    Most may not be joined because of their recorders. With `below_parent` those are found that lie below a cluster's
    parent.
    """

    def __init__(self, clusters: Clusters, end_of: Callable[[Cluster], int], *, below_parent: bool = False) -> None:
        self._clusters = clusters
        self._end_of = end_of
        self._below_parent = below_parent
        self._count = 0
        self._classes: dict[SpanKey | None, dict[_Class, list[_Ending]]] = {}

    def add(self, cluster: Cluster, innermost: Cluster) -> None:
        """Add a cluster under the end of its innermost recording."""
        self._count += 1
        one = _Ending(self._end_of(innermost), self._count, cluster, cluster.call.response_id is not None)
        for key in self._keys(cluster):
            insort(self._classes.setdefault(key, {}).setdefault(_class_of(one, cluster.recorders), []), one)

    def remove(self, one: _Ending, recorders: frozenset[tuple[str, str]]) -> None:
        """Remove a cluster that was added with these recorders."""
        for key in self._keys(one.cluster):
            group = self._classes[key][_class_of(one, recorders)]
            del group[bisect_left(group, one)]

    def enclosing(self, inner: Cluster) -> Iterator[_Ending]:
        """Those that end no earlier, the shortest first."""
        end = (self._end_of(inner),)
        yield from merge(*(_from(group, bisect_left(group, end)) for group in self._groups(inner)))

    def at_once(self, inner: Cluster) -> Iterator[_Ending]:
        """Those that run when the inner one starts: first those that end no earlier, then the last to end."""
        start, end = inner.outermost.start, (self._end_of(inner),)
        for one in islice(self.enclosing(inner), MAX_COMPARED):
            if one.end > start or one.cluster.outermost.start == start:
                yield one
        groups = [_back_from(group, bisect_left(group, end)) for group in self._groups(inner)]
        yield from takewhile(lambda one: one.end > start, merge(*groups, reverse=True))

    def _groups(self, inner: Cluster) -> list[list[_Ending]]:
        classes = self._classes.get(self._clusters.parent_of(inner) if self._below_parent else None, {})
        has_id = inner.call.response_id is not None
        return [
            group
            for (recorders, others_have_id), group in classes.items()
            if inner.recorders.isdisjoint(recorders) and not (self._below_parent and has_id and others_have_id)
        ]

    def _keys(self, cluster: Cluster) -> Iterable[SpanKey | None]:
        """Below which spans a cluster is found: None for those that have no parent here."""
        return (None, *self._clusters.nearest_ancestors(cluster, _MAX_DEPTH)) if self._below_parent else (None,)


def _class_of(one: _Ending, recorders: Iterable[tuple[str, str]]) -> _Class:
    return frozenset(recorders), one.has_id


def _from(group: list[_Ending], start: int) -> Iterator[_Ending]:
    return (group[at] for at in range(start, len(group)))  # a slice would copy all of them


def _back_from(group: list[_Ending], end: int) -> Iterator[_Ending]:
    return (group[at] for at in range(end - 1, -1, -1))


class LatestOpen:
    """Recordings that wait for their counterpart, by what they asked; the latest that fits is taken."""

    def __init__(self) -> None:
        self._open: dict[Hashable, dict[SpanKey, Recording]] = {}

    def add(self, one: Recording, kind: Hashable) -> None:
        """Add a recording, which began no earlier than those before it."""
        for key in _asked_keys(one, kind):
            self._open.setdefault(key, {})[one.span.key] = one

    def take(self, like: Recording, kind: Hashable, fits: Callable[[Recording], bool]) -> Recording | None:
        """Take the latest that fits, first of those with the same prompt. None where none does."""
        for key in _asked_keys(like, kind):
            waiting, passed = self._open.get(key, {}), list[Recording]()
            taken = None
            while taken is None and waiting and len(passed) < MAX_COMPARED:
                _, one = waiting.popitem()
                if fits(one):
                    taken = one
                else:
                    passed.append(one)
            waiting.update((one.span.key, one) for one in reversed(passed))
            if taken is not None:
                self.remove(taken, kind)
                return taken
        return None

    def remove(self, one: Recording, kind: Hashable) -> None:
        """Remove a recording that waits no more."""
        for key in _asked_keys(one, kind):
            self._open[key].pop(one.span.key, None)


def _asked_keys(one: Recording, kind: Hashable) -> tuple[Hashable, Hashable]:
    return (kind, request_key(one.call)), kind


def join_unsurrounded(clusters: Clusters) -> None:
    """Join a recording of art-otel's with the last one that began before it, below its parent, and asked the same.

    art-otel records a request that no span of a call surrounds. OpenLLMetry makes one afterwards that begins before the
    request, and knows neither id nor answer where the request failed or its stream was left.
    """
    recordings = sorted((one for one in clusters if one.recorders == {(ART_OTEL, "")}), key=_by_start)
    if not recordings:
        return
    others = [one for one in clusters if one.call.response_id is None and one.outermost.span.scope.name != ART_OTEL]
    waiting = sorted(others, key=_by_start, reverse=True)
    ends = sorted((_last_end(one), one.outermost.span.key, one) for one in others)
    ended = 0
    running = LatestOpen()
    for inner in recordings:
        start = inner.outermost.start
        while waiting and waiting[-1].outermost.start <= start:
            outer = waiting.pop()
            running.add(outer.outermost, outer.call.request_model)
        while ended < len(ends) and ends[ended][0] <= start:
            running.remove(ends[ended][2].outermost, ends[ended][2].call.request_model)
            ended += 1
        model = inner.call.request_model
        if model is not None:
            running.take(inner.outermost, model, partial(_join_asked, clusters, inner))


def _join_asked(clusters: Clusters, inner: Cluster, outer: Recording) -> bool:
    """Join a cluster with the recording around it if that has no other prompt and lies below its parent."""
    around = clusters.of(outer)
    return not prompts_differ(around.call, inner.call) and _join_beside(clusters, around, inner)


def join_late_streams(clusters: Clusters) -> None:
    """Join a span that has an event after its end with the call that ran at the time of that event.

    LlamaIndex ends a stream's span where the generator is made, before the request is sent; the event is at the first
    token.
    """
    if not any(map(_late_event, clusters)) or all(cluster.call.response_id is not None for cluster in clusters):
        return
    for same in clusters.grouped(clusters.content_of):
        late = sorted(
            (moment, order, one) for order, one in enumerate(same) if (moment := _late_event(one)) is not None
        )
        moments = [moment for moment, _, _ in late]
        for inner in sorted((one for one in same if _late_event(one) is None), key=_end):
            first, last = bisect_left(moments, inner.outermost.start), bisect_right(moments, _end(inner))
            for at in range(first, min(last, first + MAX_COMPARED)):
                if _join_beside(clusters, late[at][2], inner):
                    del late[at], moments[at]
                    break


def _join_beside(clusters: Clusters, outer: Cluster, inner: Cluster) -> bool:
    return clusters.is_below_parent(outer, inner) and clusters.join(outer, inner)


def _response_id(cluster: Cluster) -> str | None:
    return cluster.call.response_id


def _tool_call_ids(cluster: Cluster) -> Hashable:
    """The ids of the tool calls that were sampled."""
    return tuple(call.id for choice in cluster.call.choices or () for call in choice.message.tool_calls)


def _double_key(one: Recording) -> Hashable | None:
    """What two recordings of one instrumentor and one response have in common; None without an id or content."""
    response_id = one.call.response_id
    content = None if response_id is None else content_key(one.call)
    return None if content is None else (one.recorder, response_id, content, _tokens(one.call))


def _tokens(call: InferenceCall) -> Hashable:
    return call.prompt_token_ids, tuple((choice.token_ids, choice.logprobs) for choice in call.choices or ())


def _are_at_once(outer: Recording, inner: Recording) -> bool:
    """Whether the inner recording began before the outer one ended, or both began at once."""
    return outer.end is None or inner.start < outer.end or inner.start == outer.start


def _by_start(cluster: Cluster) -> tuple[int, int, SpanKey]:
    return cluster.outermost.start, -_end(cluster), cluster.outermost.span.key


def _end(cluster: Cluster) -> int:
    """When the outermost recording ended; its start where it has not."""
    return cluster.outermost.start if cluster.outermost.end is None else cluster.outermost.end


def _last_end(cluster: Cluster) -> int:
    """When the last recording ended."""
    return max((one.end for one in cluster.recordings if one.end is not None), default=_end(cluster))


def _late_event(cluster: Cluster) -> int | None:
    """The time of the last event after the end of its span; None without such an event."""
    return max(filter(None, map(_last_event_after_end, cluster.recordings)), default=None)


def _last_event_after_end(recording: Recording) -> int | None:
    span = recording.span
    if not span.events or span.end_ns is None or span.events[-1].time_ns <= span.end_ns:
        return None
    return recording.start + span.events[-1].time_ns - span.start_ns
