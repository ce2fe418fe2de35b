"""Duplicates: which recordings of a rollout are one call. The only place that decides it.

Several instrumentors record one request, and some mark more than requests. `RULES` are applied one after another; each
joins the recordings that it shows to be of one call. `Clusters` lets no rule join recordings that contradict each
other, or two recordings of one instrumentor.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Gap, InferenceCall
from art_otel.conventions import recorder_of
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.calls.ancestry import Ancestry
from art_otel.trajectories.calls.duplicates.cluster import Clusters
from art_otel.trajectories.calls.duplicates.contradictions import (
    contradicts,
    has_same_id,
    ids_differ,
    models_differ,
    prompts_differ,
)
from art_otel.trajectories.calls.duplicates.nested import (
    attach_request_only_spans,
    attach_requests_in_one,
    attach_wrapper_methods,
    join_nested,
)
from art_otel.trajectories.calls.duplicates.overlapping import (
    attach_doubles,
    join_enclosed,
    join_late_streams,
    join_one_response,
    join_unsurrounded,
)
from art_otel.trajectories.calls.duplicates.recording import Recording, read_recordings
from art_otel.trajectories.calls.duplicates.split_streams import join_split_streams

Rule: TypeAlias = Callable[[Clusters], None]


def mark_contradicting(clusters: Clusters) -> None:
    """Mark two nested recordings of one request that contradict each other, so that neither is trained.

    They are of one request by the response's id, or by the prompt where no tool or agent runs between them.
    """
    for inner in clusters.recordings:
        outer = clusters.enclosing(inner)
        if outer is None:
            continue
        first, second = clusters.of(outer), clusters.of(inner)
        is_joined = first is second or not first.recorders.isdisjoint(second.recorders)
        if is_joined or not (has_same_id(outer.call, inner.call) or _has_same_prompt(outer, inner)):
            continue
        if contradicts(first.call, second.call):
            for cluster in (first, second):
                gap = Gap(kind="contradicted", field="call", evidence="another recording of the call")
                cluster.merged = msgspec.structs.replace(cluster.call, gaps=(*cluster.call.gaps, gap))


def _has_same_prompt(outer: Recording, inner: Recording) -> bool:
    """Whether both know the prompt, nothing shows two requests, and the outer one passed it on itself."""
    one, other = outer.call, inner.call
    if outer.boundary_depth != inner.boundary_depth or ids_differ(one, other) or models_differ(one, other):
        return False
    return bool(one.input_messages and other.input_messages) and not prompts_differ(one, other)


RULES: Final[tuple[Rule, ...]] = (
    attach_doubles,
    attach_wrapper_methods,
    attach_request_only_spans,
    attach_requests_in_one,
    join_split_streams,
    join_nested,
    join_one_response,
    join_unsurrounded,
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


def _is_each_one_call(parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, ancestry: Ancestry) -> bool:
    """Whether no two recordings can be of one call, as in most rollouts.

    One instrumentor made all of them, none inside another, and no two have one response id.
    """
    recorders = {recorder_of(tree.spans[key]) for key in parsed}
    if len(recorders) > 1 or any(ancestry.context_above(key).call is not None for key in parsed):
        return False
    response_ids = [call.response_id for call in parsed.values() if call.response_id is not None]
    return len(set(response_ids)) == len(response_ids)
