"""Clusters: the recordings of a rollout, those of one call together.

Invariant: a recording is in exactly one cluster. Two clusters become one only where no instrumentor made recordings of
both and nothing that both know whole contradicts it; no rule can pass by this.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import merge_calls
from art_otel.spans import SpanKey, SpanTree
from art_otel.trajectories.calls.duplicates.contradictions import contradicts
from art_otel.trajectories.calls.duplicates.recording import Recording


class Cluster(msgspec.Struct, kw_only=True, eq=False):
    """The recordings of one call, the outermost first, and the call that they tell of together.

    `wrappers` are spans around the request that are no recording of it (see `Clusters.attach`).
    """

    recordings: list[Recording]
    call: InferenceCall
    wrappers: list[Recording] = []

    @property
    def outermost(self) -> Recording:
        """The recording whose span and times are the call's."""
        return self.recordings[0]

    @property
    def recorders(self) -> set[tuple[str, bool]]:
        """Who made the recordings."""
        return {recording.recorder for recording in self.recordings}

    @property
    def keys(self) -> Iterator[SpanKey]:
        """The spans of the call."""
        return (recording.span.key for recording in (*self.recordings, *self.wrappers))

    def take(self, recordings: Iterable[Recording], wrappers: Iterable[Recording]) -> None:
        """Add recordings that are further in, and wrappers."""
        self.recordings = [*self.recordings, *recordings]
        self.wrappers = [*self.wrappers, *wrappers]
        self.call = merge_calls([one.call for one in (*self.recordings, *self.wrappers)])


class Clusters:
    """The clusters of one rollout: each recording's own, until rules join them."""

    def __init__(self, recordings: Sequence[Recording], tree: SpanTree) -> None:
        self._tree = tree
        self._recordings = recordings
        self._cluster_of = {one.span.key: Cluster(recordings=[one], call=one.call) for one in recordings}
        self._wrappers: set[SpanKey] = set()

    def __iter__(self) -> Iterator[Cluster]:
        """Each cluster once, the outer ones first."""
        return iter(dict.fromkeys(self._cluster_of.values()))

    @property
    def recordings(self) -> list[Recording]:
        """All recordings but wrappers, the outer ones first and each level in the order of their start."""
        return [one for one in self._recordings if one.span.key not in self._wrappers]

    def of(self, recording: Recording) -> Cluster:
        """The cluster of a recording."""
        return self._cluster_of[recording.span.key]

    def around(self, recording: Recording) -> Recording | None:
        """The nearest recording around one that is no wrapper."""
        outer = recording.outer
        while outer is not None and outer.span.key in self._wrappers:
            outer = outer.outer
        return outer

    def grouped(self, key_of: Callable[[Cluster], Hashable | None]) -> Collection[list[Cluster]]:
        """The clusters of each key; without those of no key or a key of their own."""
        groups: dict[Hashable, list[Cluster]] = {}
        for cluster in self:
            key = key_of(cluster)
            if key is not None:
                groups.setdefault(key, []).append(cluster)
        return [group for group in groups.values() if len(group) > 1]

    def is_below_parent(self, outer: Cluster, inner: Cluster) -> bool:
        """Whether the outer cluster lies below the parent of the inner one, where that has a parent."""
        parent = self._tree.parent(inner.outermost.span)
        return parent is None or any(above is parent for above in self._tree.ancestors(outer.outermost.span))

    def join(self, outer: Cluster, inner: Cluster) -> bool:
        """Make one cluster of two, unless that cannot be; gives whether they became one."""
        if not outer.recorders.isdisjoint(inner.recorders) or contradicts(outer.call, inner.call):
            return False
        outer.take(inner.recordings, inner.wrappers)
        self._cluster_of.update(dict.fromkeys(inner.keys, outer))
        return True

    def attach(self, wrapper: Recording, cluster: Cluster) -> None:
        """Put a span that is no recording of its own to a call, whoever made it and whatever it says."""
        self._wrappers.add(wrapper.span.key)
        own = self.of(wrapper)
        cluster.take((), (wrapper, *own.wrappers))
        self._cluster_of.update(dict.fromkeys(own.keys, cluster))
