"""Nested recordings: rules for a recording around another one.

The outer span is a framework's or a router's, the inner one the client's; or an instrumentor marks more than requests.
"""

from collections.abc import Sequence

from art_otel.calls import InferenceCall
from art_otel.conventions import is_method, only_asks
from art_otel.trajectories.calls.duplicates.cluster import Clusters
from art_otel.trajectories.calls.duplicates.contradictions import (
    complement,
    contradicts,
    has_same_id,
    models_differ,
    prompts_differ,
    tell_same_answer,
    usage_differs,
)
from art_otel.trajectories.calls.duplicates.recording import Recording


def attach_methods(clusters: Clusters) -> None:
    """A method around calls of its own instrumentor is no call; it belongs to the last of them (LlamaIndex)."""
    last_calls: dict[Recording, Recording] = {}
    for inner in clusters.recordings:
        outer = inner.outer
        if outer is None or outer.span.scope.name != inner.span.scope.name:
            continue
        if is_method(outer.span, outer.call) and not models_differ(outer.call, inner.call):
            last_calls[outer] = inner
    for method, call in reversed(last_calls.items()):  # the inner ones first: a method may be around a method
        clusters.attach(method, clusters.of(call))


def attach_questions(clusters: Clusters) -> None:
    """A span that only asks belongs to the call around it that knows the response.

    Of one request an instrumentor may make a span when it is sent and one when the answer has come (Logfire).
    """
    for inner in clusters.recordings:
        outer = clusters.around(inner)
        if outer is None or outer.recorder == inner.recorder or outer.call.response_id is None:
            continue
        if only_asks(inner.span, inner.call) and is_same_request(outer.call, inner.call):
            clusters.attach(inner, clusters.of(outer))


def join_nested(clusters: Clusters) -> None:
    """A recording around others of another instrumentor is of the one of them that it repeats, if it repeats any."""
    for (outer, _), inners in _recordings_below(clusters).items():
        repeated = find_repeated(outer, sorted(inners, key=lambda one: one.start))
        if repeated is not None:
            clusters.join(clusters.of(outer), clusters.of(repeated))


def _recordings_below(clusters: Clusters) -> dict[tuple[Recording, str], list[Recording]]:
    """The recordings right below another one, by who made them."""
    below: dict[tuple[Recording, str], list[Recording]] = {}
    for inner in clusters.recordings:
        outer = clusters.around(inner)
        if outer is not None:
            below.setdefault((outer, inner.span.scope.name), []).append(inner)
    return below


def find_repeated(outer: Recording, inners: Sequence[Recording]) -> Recording | None:
    """Which of the recordings that another instrumentor made below a span it repeats; they come by their start.

    A framework writes a prompt otherwise than it is sent, and tells the same answer. Such a recording can only be the
    first that was answered, as what answers again at the end of an agent's run is the agent, and no tool made it.
    Of several (a router tried again) it repeats the one it answers with, else the last that went as it did itself.
    """
    repeated: list[Recording] = []
    is_first_answer = True
    for inner in inners:
        is_passed_on = inner.boundary_depth == outer.boundary_depth
        if outer.recorder != inner.recorder and (
            is_same_request(outer.call, inner.call)
            or (is_first_answer and is_passed_on and is_same_answer(outer.call, inner.call))
        ):
            repeated.append(inner)
        is_first_answer = is_first_answer and inner.call.choices is None
    went_alike = [inner for inner in repeated if inner.call.failed == outer.call.failed]
    answered = [inner for inner in went_alike if tell_same_answer(outer.call, inner.call)]
    return next(reversed(answered or went_alike or repeated), None)


def is_same_request(outer: InferenceCall, inner: InferenceCall) -> bool:
    """Whether the response's id says that two nested recordings are of one call, or else the prompt does."""
    if contradicts(outer, inner):
        return False
    return has_same_id(outer, inner) or not (prompts_differ(outer, inner) or complement(outer, inner))


def is_same_answer(outer: InferenceCall, inner: InferenceCall) -> bool:
    """Whether two nested recordings tell the same answer of as many tokens."""
    return tell_same_answer(outer, inner) and not contradicts(outer, inner) and not usage_differs(outer, inner)
