"""Duplicates: which recordings of a rollout are one call. The only place that decides it.

Several instrumentors record one request, and some mark more than requests. `RULES` say, one after another, what shows
that recordings are of one call; `Clusters` lets no rule join what contradicts itself or what one instrumentor recorded
twice.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import InferenceCall
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.calls.ancestry import Ancestry
from art_otel.trajectories.calls.duplicates.cluster import Clusters
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


class FoundCall(NamedTuple):
    """A call and its spans, the outermost recording first, the wrappers last."""

    call: InferenceCall
    spans: Sequence[Span]


def find_calls(parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, ancestry: Ancestry) -> list[FoundCall]:
    """The calls that the inference spans of a rollout describe. Takes and gives them in the order of their start."""
    if _is_each_one_call(parsed, tree, ancestry):
        return [FoundCall(call, (tree.spans[key],)) for key, call in parsed.items()]
    clusters = Clusters(read_recordings(parsed, tree, ancestry), tree)
    for rule in RULES:
        rule(clusters)
    calls = [FoundCall(cluster.call, cluster.spans) for cluster in clusters]
    return sorted(calls, key=lambda found: tree.order(found.spans[0]))


def _is_each_one_call(parsed: Collection[SpanKey], tree: SpanTree, ancestry: Ancestry) -> bool:
    """Whether no recordings can be of one call, as in most rollouts: one instrumentor made them, none in another."""
    scopes = {tree.spans[key].scope.name for key in parsed}
    return len(scopes) < 2 and all(ancestry.above(key).call is None for key in parsed)
