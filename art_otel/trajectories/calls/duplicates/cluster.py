"""Clusters: the recordings of a rollout, those of one call together.

Invariant: a recording is in exactly one cluster. Two clusters are merged only if they share no instrumentor and nothing
contradicts; `join` enforces it.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import merge_calls
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.calls.duplicates.contradictions import complement, content_key, contradicts, has_same_id
from art_otel.trajectories.calls.duplicates.recording import Recording


class Cluster(msgspec.Struct, kw_only=True, eq=False):
    """The recordings of one call, the outermost first, and what is attached to them.

    `wrappers` are spans around the request that are no recording of it (see `Clusters.attach`). `recorders` says who
    made the recordings. `merged` is the call that they describe together, None until somebody asks for `call`: to merge
    after each of many recordings would be quadratic.
    """

    recordings: list[Recording]
    recorders: set[tuple[str, str]]
    wrappers: list[Recording] = []
    merged: InferenceCall | None = None

    @property
    def outermost(self) -> Recording:
        """The recording whose span and times are the call's."""
        return self.recordings[0]

    @property
    def call(self) -> InferenceCall:
        """The call that the recordings and wrappers describe together."""
        if self.merged is None:
            self.merged = merge_calls([one.call for one in (*self.recordings, *self.wrappers)])
        return self.merged

    @property
    def spans(self) -> list[Span]:
        """The spans of the recordings and of the wrappers."""
        return [recording.span for recording in (*self.recordings, *self.wrappers)]

    def add(self, recordings: Iterable[Recording], wrappers: Iterable[Recording]) -> None:
        """Add recordings that are further in, and wrappers."""
        for recording in recordings:
            self.recordings.append(recording)
            self.recorders.add(recording.recorder)
        self.wrappers.extend(wrappers)
        self.merged = None


_Item = TypeVar("_Item")


def grouped(items: Iterable[_Item], key_of: Callable[[_Item], Hashable | None]) -> list[list[_Item]]:
    """The items that share a key with another one, one list per key. Items without a key are left out."""
    groups: dict[Hashable, list[_Item]] = {}
    for item in items:
        key = key_of(item)
        if key is not None:
            groups.setdefault(key, []).append(item)
    return [group for group in groups.values() if len(group) > 1]


class Clusters:
    """The clusters of one rollout: at first one per recording, until rules join them."""

    def __init__(self, recordings: Sequence[Recording], tree: SpanTree) -> None:
        self._tree = tree
        self._recordings = recordings
        self._cluster_of = {
            one.span.key: Cluster(recordings=[one], recorders={one.recorder}, merged=one.call) for one in recordings
        }
        self._contents: dict[SpanKey, Hashable | None] = {}
        self._wrappers: dict[SpanKey, Recording | None] = {}
        """Each wrapper's key, and a recording around it: the nearest one, or one further out."""

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
        passed: list[SpanKey] = []
        while outer is not None and outer.span.key in self._wrappers:
            passed.append(outer.span.key)
            outer = self._wrappers[outer.span.key]
        for key in passed:  # the next search from here is one step
            self._wrappers[key] = outer
        return outer

    def grouped(self, key_of: Callable[[Cluster], Hashable | None]) -> list[list[Cluster]]:
        """The clusters that share a key, one list per key. Clusters without a key are left out."""
        return grouped(self, key_of)

    def content_of(self, cluster: Cluster) -> Hashable | None:
        """What was asked and answered, as a key of equal contents; None where unknown, or the call never ended."""
        if cluster.outermost.end is None:
            return None
        for recording in cluster.recordings:
            key = recording.span.key
            if key not in self._contents:
                self._contents[key] = content_key(recording.call)
            if self._contents[key] is not None:
                return self._contents[key]
        return None

    def is_below_parent(self, outer: Cluster, inner: Cluster) -> bool:
        """Whether the outer cluster lies below the parent of the inner one, where that has a parent."""
        parent = self._tree.parents.get(inner.outermost.span.key)
        return parent is None or self._tree.is_below(outer.outermost.span.key, parent)

    def nearest_ancestors(self, cluster: Cluster, limit: int) -> list[SpanKey]:
        """The keys of the spans above a cluster, the nearest first and no more than `limit`."""
        return [span.key for span in islice(self._tree.ancestors(cluster.outermost.span), limit)]

    def parent_of(self, cluster: Cluster) -> SpanKey | None:
        """The key of the span above a cluster."""
        return self._tree.parents.get(cluster.outermost.span.key)

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
        self._wrappers[wrapper.span.key] = wrapper.outer
        attached = self.of(wrapper)
        cluster.add((), (wrapper, *attached.wrappers))
        self._cluster_of.update((span.key, cluster) for span in attached.spans)


def _complement_by_id(outer: Cluster, inner: Cluster) -> bool:
    """Whether one has the prompt, the other the answer, and both the same response id."""
    pairs = ((one.call, other.call) for one in outer.recordings for other in inner.recordings)
    return any(has_same_id(one, other) and complement(one, other) for one, other in pairs)
