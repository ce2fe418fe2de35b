"""Duplicates: which recordings of a rollout are one call. The only place that decides it.

Several instrumentors record one request, and some mark more than requests. `RULES` say, one after another, what shows
that recordings are of one call; `Clusters` lets no rule join what contradicts itself or what one instrumentor recorded
twice.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from art_otel.calls import InferenceCall
from art_otel.spans import SpanKey, SpanTree
from art_otel.trajectories.calls.ancestry import Ancestry
from art_otel.trajectories.calls.duplicates.cluster import Cluster, Clusters
from art_otel.trajectories.calls.duplicates.contradictions import contradicts, has_same_id
from art_otel.trajectories.calls.duplicates.nested import attach_methods, attach_questions, join_nested
from art_otel.trajectories.calls.duplicates.overlapping import join_enclosed, join_heard_later, join_one_response
from art_otel.trajectories.calls.duplicates.recording import read_recordings

Rule: TypeAlias = Callable[[Clusters], None]


def mark_contradicting(clusters: Clusters) -> None:
    """Where nesting and response id say one call and what was asked or answered says two, none is trained."""
    for inner in clusters.recordings:
        outer = clusters.around(inner)
        if outer is None:
            continue
        one, other = clusters.of(outer), clusters.of(inner)
        if one is other or not has_same_id(outer.call, inner.call) or not one.recorders.isdisjoint(other.recorders):
            continue
        if contradicts(one.call, other.call):
            for cluster in (one, other):
                cluster.call = msgspec.structs.replace(cluster.call, contradicted=True)


RULES: Final[tuple[Rule, ...]] = (
    attach_methods,
    attach_questions,
    join_nested,
    join_one_response,
    join_enclosed,
    join_heard_later,
    mark_contradicting,
)
"""What joins recordings, the surest first; each works with what those before it joined."""


def find_calls(parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, ancestry: Ancestry) -> list[Cluster]:
    """The calls that the inference spans of a rollout describe, by the start of their outermost recording."""
    recordings = read_recordings(parsed, tree, ancestry)
    clusters = Clusters(recordings, tree)
    if any(one.depth for one in recordings) or len({one.span.scope.name for one in recordings}) > 1:
        for rule in RULES:
            rule(clusters)
    return sorted(clusters, key=lambda cluster: tree.order(cluster.outermost.span))
