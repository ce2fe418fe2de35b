"""Nested recordings: rules for a recording around another one.

The outer span is a framework's or a router's, the inner one the client's; or an instrumentor marks more than requests.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import is_request_only, is_wrapper_method
from art_otel.trajectories.calls.duplicates.cluster import Clusters
from art_otel.trajectories.calls.duplicates.contradictions import (
    has_same_id,
    have_same_answer,
    have_same_choices,
    may_be_one,
    models_differ,
    prompts_differ,
    usage_differs,
)
from art_otel.trajectories.calls.duplicates.recording import Recording


def attach_wrapper_methods(clusters: Clusters) -> None:
    """Attach each span of a method around calls of its instrumentor to the last of these calls (LlamaIndex)."""
    last_calls: dict[Recording, Recording] = {}
    for inner in clusters.recordings:
        outer = inner.outer
        if outer is None or outer.span.scope.name != inner.span.scope.name:
            continue
        if is_wrapper_method(outer.span, outer.call) and not models_differ(outer.call, inner.call):
            last_calls[outer] = inner
    for method, call in reversed(last_calls.items()):  # the inner ones first: a method may be around a method
        clusters.attach(method, clusters.of(call))


def attach_request_only_spans(clusters: Clusters) -> None:
    """Attach a span that has only the request to the call around it that has the response.

    An instrumentor may make one span when a request is sent and a second one when the answer has come (Logfire).
    """
    for inner in clusters.recordings:
        outer = clusters.enclosing(inner)
        if outer is None or outer.recorder == inner.recorder or outer.call.response_id is None:
            continue
        if is_request_only(inner.span, inner.call) and is_same_request(outer.call, inner.call):
            clusters.attach(inner, clusters.of(outer))


def attach_requests_in_one(clusters: Clusters) -> None:
    """Attach a recording of several choices to the last of the requests below it that sampled one of them each.

    A client may ask for n choices by n requests. Each is a call, and what the outer recording has is in them.
    """
    for (outer, _), inners in _recordings_below(clusters).items():
        requests = [inner for inner in inners if not inner.call.failed and not prompts_differ(outer.call, inner.call)]
        if len(requests) > 1 and have_same_choices(outer.call, [request.call for request in requests]):
            rest = msgspec.structs.replace(outer.call, choices=None, usage=None, response_id=None, parameters={})
            clusters.attach(
                msgspec.structs.replace(outer, call=rest), clusters.of(max(requests, key=lambda request: request.start))
            )


def join_nested(clusters: Clusters) -> None:
    """Join a recording with the one below it, by another instrumentor, that it repeats, if it repeats any.

    A call that failed for its caller and completed at a proxy is one failed call: the proxy's other attempts, and what
    lies below them, are attached to it.
    """
    attached: set[Recording] = set()
    for (outer, _), inners in _recordings_below(clusters).items():  # the outer ones first
        repeated = find_repeated(outer, sorted(inners, key=lambda one: one.start))
        if repeated is None:
            continue
        call = clusters.of(outer)
        if outer in attached:
            attempts = [inner for inner in inners if _repeats_request(outer, inner)]
        elif clusters.join(call, clusters.of(repeated)) and outer.call.failed and not repeated.call.failed:
            attempts = [inner for inner in inners if inner is not repeated and _repeats_request(outer, inner)]
        else:
            continue
        for attempt in attempts:
            clusters.attach(attempt, call)
        attached.update(attempts)


def _recordings_below(clusters: Clusters) -> dict[tuple[Recording, str], list[Recording]]:
    """The recordings right below another one, by that one and their instrumentor."""
    below: dict[tuple[Recording, str], list[Recording]] = {}
    for inner in clusters.recordings:
        outer = clusters.enclosing(inner)
        if outer is not None:
            below.setdefault((outer, inner.span.scope.name), []).append(inner)
    return below


def find_repeated(outer: Recording, inners: Sequence[Recording]) -> Recording | None:
    """Find which of the recordings below it, ordered by their start, the outer recording repeats.

    With the same request, any of them may be the one. With the same answer but another prompt (a framework may record
    the prompt before it formats it), only the first that was answered may be, and no tool or agent may lie between.
    Of several (a router tried again), the outer one repeats that with its answer, else the last that did not fail.
    """
    repeated: list[Recording] = []
    is_first_answer = True
    for inner in inners:
        is_passed_on = inner.boundary_depth == outer.boundary_depth
        is_same_first = is_first_answer and is_passed_on and outer.recorder != inner.recorder
        if _repeats_request(outer, inner) or (is_same_first and is_same_answer(outer.call, inner.call)):
            repeated.append(inner)
        is_first_answer = is_first_answer and inner.call.choices is None
    if len(repeated) < 2:
        return next(iter(repeated), None)
    completed = [inner for inner in repeated if not inner.call.failed]
    answered = [inner for inner in completed if have_same_answer(outer.call, inner.call)]
    return (answered or completed or repeated)[-1]


def _repeats_request(outer: Recording, inner: Recording) -> bool:
    return outer.recorder != inner.recorder and is_same_request(outer.call, inner.call)


def is_same_request(outer: InferenceCall, inner: InferenceCall) -> bool:
    """Whether two nested recordings are of one request, by the response's id or else by the prompt."""
    return may_be_one(outer, inner) and (has_same_id(outer, inner) or not prompts_differ(outer, inner))


def is_same_answer(outer: InferenceCall, inner: InferenceCall) -> bool:
    """Whether two nested recordings have the same answer and nothing in their token counts differs."""
    return have_same_answer(outer, inner) and may_be_one(outer, inner) and not usage_differs(outer, inner)
