"""Duplicates: which recordings of a rollout are one call. The only place that decides it.

Several instrumentors record one request, and some mark more than requests. `RULES` are applied one after another; each
joins the recordings that it shows to be of one call. `Clusters` lets no rule join recordings that contradict each
other, or two recordings of one instrumentor.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import InferenceCall
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.calls.ancestry import Ancestry
from art_otel.trajectories.calls.duplicates.cluster import Clusters
from art_otel.trajectories.calls.duplicates.contradictions import contradicts, has_same_id
from art_otel.trajectories.calls.duplicates.nested import attach_request_only_spans, attach_wrapper_methods, join_nested
from art_otel.trajectories.calls.duplicates.overlapping import join_enclosed, join_late_streams, join_one_response
from art_otel.trajectories.calls.duplicates.recording import read_recordings

Rule: TypeAlias = Callable[[Clusters], None]


def mark_contradicting(clusters: Clusters) -> None:
    """Mark two recordings with one response id that contradict each other, so that neither is trained."""
    for inner in clusters.recordings:
        outer = clusters.enclosing(inner)
        if outer is None:
            continue
        first, second = clusters.of(outer), clusters.of(inner)
        is_joined = first is second or not first.recorders.isdisjoint(second.recorders)
        if is_joined or not has_same_id(outer.call, inner.call):
            continue
        if contradicts(first.call, second.call):
            for cluster in (first, second):
                cluster.call = msgspec.structs.replace(cluster.call, contradicted=True)


RULES: Final[tuple[Rule, ...]] = (
    attach_wrapper_methods,
    attach_request_only_spans,
    join_nested,
    join_one_response,
    join_enclosed,
    join_late_streams,
)
"""The rules that join recordings, the surest first; each works with the clusters that those before it left."""


class DeduplicatedCall(NamedTuple):
    """A call and its spans, the outermost recording first, the wrappers last."""

    call: InferenceCall
    spans: Sequence[Span]


def find_calls(parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, ancestry: Ancestry) -> list[DeduplicatedCall]:
    """Find the calls that the inference spans of a rollout describe; both are in the order of their start."""
    if _is_each_one_call(parsed, tree, ancestry):
        return [DeduplicatedCall(call, (tree.spans[key],)) for key, call in parsed.items()]
    clusters = Clusters(read_recordings(parsed, tree, ancestry), tree)
    for rule in RULES:
        rule(clusters)
    mark_contradicting(clusters)
    calls = [DeduplicatedCall(cluster.call, cluster.spans) for cluster in clusters]
    return sorted(calls, key=lambda call: tree.order(call.spans[0]))


def _is_each_one_call(parsed: Collection[SpanKey], tree: SpanTree, ancestry: Ancestry) -> bool:
    """Whether no two recordings can be of one call, as in most rollouts: one instrumentor, no span inside another."""
    scopes = {tree.spans[key].scope.name for key in parsed}
    return len(scopes) < 2 and all(ancestry.context_above(key).call is None for key in parsed)
