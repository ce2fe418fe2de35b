"""Requests: which inference spans of a rollout describe one request.

Invariant: every span describes exactly one request; two spans of one instrumentor that tell of an answer never
describe the same, nor do two that contradict each other. Nesting and response ids tell (`twins` are beside each other);
where an id is unknown and nothing is nested, `alike` compares what was asked and answered.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from art_otel.calls import InferenceCall
from art_otel.conventions import is_method, only_asks, same_answer, same_call, same_model
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.alike import join_alike
from art_otel.trajectories.surroundings import Surroundings
from art_otel.trajectories.twins import Group, join_twins


class Requests(NamedTuple):
    """The spans of each request, the outermost first, and the spans that contradict one around them or in them.

    Those are of one request by nesting and response id, and cannot be by what they say.
    """

    groups: list[list[SpanKey]]
    contradicting: frozenset[SpanKey]


def find_requests(parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, surroundings: Surroundings) -> Requests:
    """Group the spans of one request; the groups by the start of their outermost."""
    above = _calls_above(parsed, surroundings)
    beside = _find_beside(parsed, tree, above) if above else {}
    told = {key: call for key, call in parsed.items() if key not in beside} if beside else parsed
    contradicting: set[SpanKey] = set()
    groups = join_alike(_group(told, tree, surroundings, above, beside, contradicting), told, tree, surroundings)
    groups.sort(key=lambda group: tree.order(group[0]))
    found = [[span.key for span in group] for group in groups]
    _put_beside(found, beside)
    return Requests(found, frozenset(contradicting))


def _group(
    told: Mapping[SpanKey, InferenceCall],
    tree: SpanTree,
    surroundings: Surroundings,
    above: Mapping[SpanKey, SpanKey],
    beside: Collection[SpanKey],
    contradicting: set[SpanKey],
) -> list[list[Span]]:
    inference = [tree.spans[key] for key in told]
    if beside:
        above = _calls_above(told, surroundings)
    if not above and not _repeats_ids(told.values()):
        return [[span] for span in inference]
    return _unite(inference, told, tree, above, surroundings, contradicting)


def _calls_above(parsed: Collection[SpanKey], surroundings: Surroundings) -> dict[SpanKey, SpanKey]:
    """The nearest call of the same rollout above each call that is below one."""
    found: dict[SpanKey, SpanKey] = {}
    known: dict[SpanKey, SpanKey | None] = {}  # of calls that are passed by
    for key in parsed:
        passed: list[SpanKey] = []
        at = surroundings.above(key).call
        while at is not None and at not in parsed and at not in known:
            passed.append(at)
            at = surroundings.above(at).call
        if at in known:
            at = known[at]
        known.update(dict.fromkeys(passed, at))
        if at is not None:
            found[key] = at
    return found


def _find_beside(
    parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, above: Mapping[SpanKey, SpanKey]
) -> dict[SpanKey, SpanKey]:
    """The spans that are no request of their own, and that of whose request each is part.

    A method around a call of its own instrumentor is part of the last such call. A span that only asks is part of the
    call around it that knows the response: of one request another instrumentor may make a span when it is sent and one
    when the answer has come.
    """
    found: dict[SpanKey, SpanKey] = {}
    for key, outer_key in above.items():
        span, outer = tree.spans[key], tree.spans[outer_key]
        call, outer_call = parsed[key], parsed[outer_key]
        if span.scope.name == outer.scope.name:
            if is_method(outer, outer_call) and same_model(outer_call, call):
                found[outer_key] = key
        elif outer_call.response_id is not None and only_asks(span, call) and same_call(outer, outer_call, span, call):
            found[key] = outer_key
    return found


def _put_beside(groups: list[list[SpanKey]], beside: Mapping[SpanKey, SpanKey]) -> None:
    """Add each to the request that it is part of, behind those that tell of it."""
    place = {key: group for group in groups for key in group} if beside else {}
    for key in beside:
        path: list[SpanKey] = []
        part_of = key
        while part_of not in place:
            path.append(part_of)
            part_of = beside[part_of]
        group = place[part_of]
        group.append(key)
        place.update(dict.fromkeys(path, group))


def _repeats_ids(calls: Iterable[InferenceCall]) -> bool:
    responses = [call.response_id for call in calls if call.response_id is not None]
    return len(set(responses)) < len(responses)


def _unite(
    inference: Sequence[Span],
    parsed: Mapping[SpanKey, InferenceCall],
    tree: SpanTree,
    above: Mapping[SpanKey, SpanKey],
    surroundings: Surroundings,
    contradicting: set[SpanKey],
) -> list[list[Span]]:
    depths = _depths(parsed, above)
    # A span may start in the same nanosecond as its parent, so depth decides who is met first.
    outside_in = sorted(inference, key=lambda span: (depths[span.key], tree.order(span)))
    outer_of = _outer_spans(inference, parsed, tree, above, surroundings)
    group_of: dict[SpanKey, Group] = {}
    groups: list[Group] = []
    for span in outside_in:
        call, outer = parsed[span.key], outer_of.get(span.key)
        group = None if outer is None else group_of[outer.key]
        around = above.get(span.key)
        if around is not None and tree.spans[around].scope.name != span.scope.name:
            contradicting.update(_contradicting(group_of[around], call, span.key, parsed))
        if group is None or (span.scope.name, span.name) in group.makers or group.contradicts(call):
            group = Group()
            groups.append(group)
        group.add(span, call)
        group_of[span.key] = group
    joined = join_twins(groups, parsed, tree) if _repeats_ids(parsed.values()) else groups
    for group in joined:
        group.spans.sort(key=lambda span: (depths[span.key], tree.order(span)))
    return [group.spans for group in joined]


def _contradicting(
    outer: Group, call: InferenceCall, key: SpanKey, parsed: Mapping[SpanKey, InferenceCall]
) -> Collection[SpanKey]:
    """The spans of a request that contradict one in it although they have its response id, and that one."""
    if call.response_id is None:
        return ()
    of_response = [span.key for span in outer.spans if parsed[span.key].response_id == call.response_id]
    return (*of_response, key) if of_response and outer.contradicts(call) else ()


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
    surroundings: Surroundings,
) -> dict[SpanKey, Span]:
    """For every span that repeats the request of one above it, that span.

    Of several requests below one span (a router that tried again) it stands for the one it answers with, else for the
    last that went as it did itself. One that was asked otherwise can be that request only when nothing below the span
    answered before, as what answers again at the end of an agent's run is the agent, and no tool made it.
    """
    rivals: dict[tuple[SpanKey, str], list[Span]] = {}
    outers: dict[SpanKey, Span] = {}
    answered: set[tuple[SpanKey, str]] = set()
    for span in inference:
        outer_key = above.get(span.key)
        if outer_key is None:
            continue
        outer, place = tree.spans[outer_key], (outer_key, span.scope.name)
        recordings = (outer, parsed[outer_key], span, parsed[span.key])
        repeats = place not in answered and same_answer(*recordings)
        if same_call(*recordings) or (repeats and surroundings.is_passed_on(span.key, outer_key)):
            outers[span.key] = outer
            rivals.setdefault(place, []).append(span)
        if parsed[span.key].choices is not None:
            answered.add(place)
    for (outer_key, _), spans in rivals.items():
        if len(spans) > 1:
            kept = _repeated(tree.spans[outer_key], spans, parsed)
            for span in spans:
                if span is not kept:
                    del outers[span.key]
    return outers


def _repeated(outer: Span, rivals: Sequence[Span], parsed: Mapping[SpanKey, InferenceCall]) -> Span:
    """Which of several requests below a span it stands for."""
    call = parsed[outer.key]
    alike = [span for span in rivals if parsed[span.key].failed == call.failed]
    with_its_answer = [span for span in alike if same_answer(outer, call, span, parsed[span.key])]
    return (with_its_answer or alike or rivals)[-1]
