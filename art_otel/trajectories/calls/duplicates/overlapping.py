"""Overlapping recordings: rules for recordings that overlap in time, wherever they are in the tree.

Some instrumentors do not make their spans current (LangChain), so the client's span lies beside them or further up.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from heapq import merge
from typing import NamedTuple

from art_otel.conventions import ART_OTEL
from art_otel.trajectories.calls.duplicates.cluster import Cluster, Clusters
from art_otel.trajectories.calls.duplicates.contradictions import content_key, prompts_differ
from art_otel.trajectories.calls.duplicates.recording import Recording


class _Enclosing(NamedTuple):
    """A cluster and when its innermost recording ended. `order` tells apart those that ended at once."""

    end: int
    order: int
    cluster: Cluster


class _Running:
    """Clusters by who recorded them and, of these, by their end: most may not be joined because of their recorders."""

    def __init__(self) -> None:
        self._by_recorders: dict[frozenset[tuple[str, str]], list[_Enclosing]] = {}

    def add(self, one: _Enclosing) -> None:
        """Add a cluster as its recorders are."""
        insort(self._by_recorders.setdefault(frozenset(one.cluster.recorders), []), one)

    def around(self, inner: Cluster) -> Iterator[_Enclosing]:
        """Those that other instrumentors recorded and that end no earlier, the shortest first."""
        end, recorders = (_end(inner),), inner.recorders
        groups = [group for others, group in self._by_recorders.items() if recorders.isdisjoint(others)]
        yield from merge(*(_from(group, bisect_left(group, end)) for group in groups))

    def remove(self, one: _Enclosing, recorders: frozenset[tuple[str, str]]) -> None:
        """Remove a cluster that was added with these recorders."""
        group = self._by_recorders[recorders]
        del group[bisect_left(group, one)]


def _from(group: list[_Enclosing], start: int) -> Iterator[_Enclosing]:
    return (group[at] for at in range(start, len(group)))  # a slice would copy all of them


def join_one_response(clusters: Clusters) -> None:
    """Join recordings with one response id that ran at the same time: servers repeat ids."""
    for of_one_id in clusters.grouped(lambda cluster: cluster.call.response_id):
        running: list[Cluster] = []
        for cluster in sorted(of_one_id, key=_by_start):
            running = [outer for outer in running if _last_end(outer) > cluster.outermost.start]
            if not any(clusters.join(outer, cluster) for outer in running):
                running.append(cluster)


def join_enclosed(clusters: Clusters) -> None:
    """Join a recording with the shortest one that encloses it in time, below its parent, and has the same content.

    At most one of the two has the response's id. Each outer takes one inner, so n equal requests stay n calls.
    """
    for same in _with_one_content(clusters):
        running = _Running()
        for order, inner in enumerate(sorted(same, key=_by_start)):
            outer = _join_shortest(clusters, running, inner)
            running.add(_Enclosing(_end(inner), order, outer or inner))


def _join_shortest(clusters: Clusters, running: _Running, inner: Cluster) -> Cluster | None:
    """Join a cluster with the shortest that may be of the same call, which then runs no longer under its old end."""
    for one in running.around(inner):
        recorders = frozenset(one.cluster.recorders)
        if _join_beside(clusters, one.cluster, inner):
            running.remove(one, recorders)
            return one.cluster
    return None


def join_unsurrounded(clusters: Clusters) -> None:
    """Join a recording of art-otel's with the last one that began before it, below its parent, and asked the same.

    art-otel records a request that no span of a call surrounds. OpenLLMetry makes one afterwards that begins before the
    request, and knows neither id nor answer where the request failed or its stream was left.
    """
    free = [one for one in clusters if one.call.response_id is None and one.outermost.span.scope.name != ART_OTEL]
    for recording in sorted((one for one in clusters if one.recorders == {(ART_OTEL, "")}), key=_by_start):
        start = recording.outermost.start
        around = [
            one for one in free if one.outermost.start <= start < _last_end(one) and _is_one_request(one, recording)
        ]
        for outer in sorted(around, key=_by_start, reverse=True):
            if _join_beside(clusters, outer, recording):
                free.remove(outer)
                break


def _is_one_request(outer: Cluster, recording: Cluster) -> bool:
    """Whether both asked one model, and no other prompt."""
    asked = outer.call.request_model
    return (
        asked is not None and asked == recording.call.request_model and not prompts_differ(outer.call, recording.call)
    )


def join_late_streams(clusters: Clusters) -> None:
    """Join a span that has an event after its end with the call that ran at the time of that event.

    LlamaIndex ends a stream's span where the generator is made, before the request is sent; the event is at the first
    token.
    """
    if not any(map(_late_event, clusters)):
        return
    for same in _with_one_content(clusters):
        late_events = {id(cluster): moment for cluster in same if (moment := _late_event(cluster)) is not None}
        late = sorted((one for one in same if id(one) in late_events), key=lambda one: late_events[id(one)])
        for inner in sorted((one for one in same if id(one) not in late_events), key=_end):
            start, end = inner.outermost.start, _end(inner)
            fitting = [one for one in late if start <= late_events[id(one)] <= end]
            outer = next((one for one in fitting if _join_beside(clusters, one, inner)), None)
            if outer is not None:
                late.remove(outer)


def _join_beside(clusters: Clusters, outer: Cluster, inner: Cluster) -> bool:
    return clusters.is_below_parent(outer, inner) and clusters.join(outer, inner)


def _with_one_content(clusters: Clusters) -> Collection[list[Cluster]]:
    """The clusters that share a content; none if every cluster has a response id, because then none may be joined."""
    if all(cluster.call.response_id is not None for cluster in clusters):
        return ()
    return clusters.grouped(_content)


def _content(cluster: Cluster) -> object:
    """What was asked and answered; None where that is unknown, or the call never ended."""
    if cluster.outermost.end is None:
        return None
    return next(filter(None, (content_key(recording.call) for recording in cluster.recordings)), None)


def _by_start(cluster: Cluster) -> tuple[int, int, tuple[str, str]]:
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
