"""Requests: which inference spans of a rollout describe one request.

Invariant: every span describes exactly one request, and two spans of one instrumentor never describe the same. Nesting
and response ids tell; where an id is unknown and nothing is nested, `alike` compares what was asked and answered.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from art_otel.calls import InferenceCall
from art_otel.conventions import same_call
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.alike import join_alike
from art_otel.trajectories.surroundings import Surroundings


def find_requests(
    parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, surroundings: Surroundings
) -> list[list[SpanKey]]:
    """Group the spans of one request, the outermost first; the groups by the start of their outermost."""
    above = _calls_above(parsed, surroundings)
    inference = [tree.spans[key] for key in parsed]
    nested = bool(above) or _repeats_ids(parsed.values())
    groups = _unite(inference, parsed, tree, above) if nested else [[span] for span in inference]
    groups = join_alike(groups, parsed, tree, surroundings)
    groups.sort(key=lambda group: tree.order(group[0]))
    return [[span.key for span in group] for group in groups]


def _calls_above(parsed: Collection[SpanKey], surroundings: Surroundings) -> dict[SpanKey, SpanKey]:
    """The nearest call of the same rollout above each call that is below one."""
    found: dict[SpanKey, SpanKey] = {}
    for key in parsed:
        at = surroundings.above(key).call
        while at is not None and at not in parsed:
            at = surroundings.above(at).call
        if at is not None:
            found[key] = at
    return found


def _repeats_ids(calls: Iterable[InferenceCall]) -> bool:
    responses = [call.response_id for call in calls if call.response_id is not None]
    return len(set(responses)) < len(responses)


def _unite(
    inference: Sequence[Span],
    parsed: Mapping[SpanKey, InferenceCall],
    tree: SpanTree,
    above: Mapping[SpanKey, SpanKey],
) -> list[list[Span]]:
    depths = _depths(parsed, above)
    # A span may start in the same nanosecond as its parent, so depth decides who is met first.
    outside_in = sorted(inference, key=lambda span: (depths[span.key], tree.order(span)))
    outer_of = _outer_spans(inference, parsed, tree, above)
    group_of: dict[SpanKey, list[Span]] = {}
    by_response: dict[str, list[Span]] = {}
    groups: list[list[Span]] = []
    for span in outside_in:
        response_id = parsed[span.key].response_id
        outer = outer_of.get(span.key)
        twins = by_response.get(response_id or "", [])
        met = outer or next((other for other in twins if _overlap(other, span)), None)
        group = [] if met is None else group_of[met.key]
        if any(member.scope.name == span.scope.name and member.name == span.name for member in group):
            group = []
        if not group:
            groups.append(group)
        group.append(span)
        group_of[span.key] = group
        if response_id is not None:
            by_response.setdefault(response_id, []).append(span)
    return groups


def _depths(keys: Iterable[SpanKey], above: Mapping[SpanKey, SpanKey]) -> dict[SpanKey, int]:
    """How many calls are above each."""
    depths: dict[SpanKey, int] = {}
    for key in keys:
        path: list[SpanKey] = []
        at: SpanKey | None = key
        while at is not None and at not in depths:
            path.append(at)
            at = above.get(at)
        depth = -1 if at is None else depths[at]
        depths.update((step, depth + place) for place, step in enumerate(reversed(path), 1))
    return depths


def _outer_spans(
    inference: Sequence[Span],
    parsed: Mapping[SpanKey, InferenceCall],
    tree: SpanTree,
    above: Mapping[SpanKey, SpanKey],
) -> dict[SpanKey, Span]:
    """For every span that repeats the request of one above it, that span.

    Of several requests below one span (a router that tried again) it stands for the last that went as it did itself.
    """
    rivals: dict[tuple[SpanKey, str], list[Span]] = {}
    outers: dict[SpanKey, Span] = {}
    for span in inference:
        outer_key = above.get(span.key)
        outer = None if outer_key is None else tree.spans[outer_key]
        if outer is not None and same_call(outer, parsed[outer.key], span, parsed[span.key]):
            outers[span.key] = outer
            rivals.setdefault((outer.key, span.scope.name), []).append(span)
    for (outer_key, _), spans in rivals.items():
        alike = [span for span in spans if parsed[span.key].failed == parsed[outer_key].failed]
        for span in spans:
            if span is not (alike or spans)[-1]:
                del outers[span.key]
    return outers


def _overlap(first: Span, second: Span) -> bool:
    """Whether two instrumentors can have seen one request: different scopes, at the same time."""
    if first.scope.name == second.scope.name or first.end_ns is None:
        return False
    return second.start_ns < first.end_ns
