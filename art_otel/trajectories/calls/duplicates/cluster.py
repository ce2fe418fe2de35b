"""Clusters: the recordings of a rollout, those of one call together.

Invariant: a recording is in exactly one cluster. Two clusters are merged only if they share no instrumentor and nothing
contradicts; `join` enforces it.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import merge_calls
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.calls.duplicates.contradictions import complement, contradicts, has_same_id
from art_otel.trajectories.calls.duplicates.recording import Recording


class Cluster(msgspec.Struct, kw_only=True, eq=False):
    """The recordings of one call, the outermost first, and the call that they describe together.

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
    def recorders(self) -> set[tuple[str, str]]:
        """Who made the recordings."""
        return {recording.recorder for recording in self.recordings}

    @property
    def spans(self) -> list[Span]:
        """The spans of the recordings and of the wrappers."""
        return [recording.span for recording in (*self.recordings, *self.wrappers)]

    def add(self, recordings: Iterable[Recording], wrappers: Iterable[Recording]) -> None:
        """Add recordings that are further in, and wrappers."""
        self.recordings = [*self.recordings, *recordings]
        self.wrappers = [*self.wrappers, *wrappers]
        self.call = merge_calls([one.call for one in (*self.recordings, *self.wrappers)])


class Clusters:
    """The clusters of one rollout: at first one per recording, until rules join them."""

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

    def enclosing(self, recording: Recording) -> Recording | None:
        """The nearest recording around this one that is no wrapper."""
        outer = recording.outer
        while outer is not None and outer.span.key in self._wrappers:
            outer = outer.outer
        return outer

    def grouped(self, key_of: Callable[[Cluster], Hashable | None]) -> Collection[list[Cluster]]:
        """The clusters that share a key, one list per key. Clusters without a key are left out."""
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
        """Merge two clusters if that is allowed; returns whether it was."""
        if not outer.recorders.isdisjoint(inner.recorders) or contradicts(outer.call, inner.call):
            return False
        if complement(outer.call, inner.call) and not _complement_by_id(outer, inner):
            return False
        outer.add(inner.recordings, inner.wrappers)
        self._cluster_of.update((span.key, outer) for span in inner.spans)
        return True

    def attach(self, wrapper: Recording, cluster: Cluster) -> None:
        """Add a span that is no recording of its own to a call, whoever made it and whatever it contains."""
        self._wrappers.add(wrapper.span.key)
        attached = self.of(wrapper)
        cluster.add((), (wrapper, *attached.wrappers))
        self._cluster_of.update((span.key, cluster) for span in attached.spans)


def _complement_by_id(outer: Cluster, inner: Cluster) -> bool:
    """Whether one has the prompt, the other the answer, and both the same response id."""
    pairs = ((one.call, other.call) for one in outer.recordings for other in inner.recordings)
    return any(has_same_id(one, other) and complement(one, other) for one, other in pairs)
