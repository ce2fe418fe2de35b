"""Spans that ended before their request, by any instrumentors: each request is of the first that tells of it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Choice, Message, ToolCall
from art_otel.conventions import same_tool_calls
from art_otel.spans import Event, Scope, Span, SpanTree, grow_tree
from art_otel.trajectories import SpanGroup, build_trajectories
from art_otel.trajectories.alike import _join_late, _Recording
from art_otel.trajectories.surroundings import Surroundings
from tests.batches.test_peer_errors import operations

TRACE = "1" * 32


def answer(call_id: str) -> list[Choice]:
    return [
        Choice(index=0, message=Message(role="assistant", tool_calls=(ToolCall(id=call_id, name="f", arguments="{}"),)))
    ]


@st.composite
def recordings(draw) -> tuple[SpanTree, list[_Recording]]:
    """Recordings below few spans, about half of which tell of a moment after their end."""
    spans = [Span(trace_id=TRACE, span_id=f"{1:016x}", name="root", start_ns=0, end_ns=99)]
    for number in range(2, draw(st.integers(2, 14))):
        above = spans[draw(st.integers(0, min(3, len(spans) - 1)))]
        start = draw(st.integers(0, 5))
        place = {"trace_id": TRACE, "span_id": f"{number:016x}", "parent_span_id": above.span_id}
        spans.append(Span(**place, name="chat", start_ns=start, end_ns=start + draw(st.integers(0, 5))))
    found = [
        _Recording(
            spans=[span],
            scopes=frozenset(draw(st.sampled_from(["a", "b", "c", "ab"]))),
            has_id=draw(st.booleans()),
            model=None,
            choices=draw(st.sampled_from([(), answer("f"), answer("g")])),
            start=span.start_ns,
            end=span.end_ns or 0,
            heard=draw(st.none() | st.integers(0, 9)),
        )
        for span in spans[1:]
    ]
    return grow_tree(spans), found


def may_be_one(outer: _Recording, inner: _Recording) -> bool:
    if (outer.has_id and inner.has_id) or outer.scopes & inner.scopes:
        return False
    return same_tool_calls(outer.choices, inner.choices)


def joined_one_by_one(found: list[_Recording], tree: SpanTree) -> list[tuple[list[str], bool]]:
    late = sorted((one for one in found if one.heard is not None), key=lambda one: one.heard)
    for inner in sorted((one for one in found if one.heard is None), key=lambda one: one.end):
        for outer in late:
            is_below = tree.parents[inner.spans[0].key] in {span.key for span in tree.ancestors(outer.spans[0])}
            if inner.start <= outer.heard <= inner.end and is_below and may_be_one(outer, inner):
                inner.spans = [*outer.spans, *inner.spans]
                outer.joined = True
                late.remove(outer)
                break
    return joined(found)


def joined(found: list[_Recording]) -> list[tuple[list[str], bool]]:
    return [([span.span_id for span in one.spans], one.joined) for one in found]


@given(recordings())
def test_each_is_given_to_the_first_that_tells_of_it_whoever_made_that(drawn):
    tree, found = drawn
    copies = [msgspec.structs.replace(one) for one in found]
    _join_late(copies, tree, Surroundings(tree, {}, ()))
    assert joined(copies) == joined_one_by_one(found, tree)


def one_instrumentor(count: int) -> SpanGroup:
    """Streams that ended early and requests that ran when they were heard of, all but one by one instrumentor."""
    said = '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]'
    own = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.output.messages": said}
    own["gen_ai.input.messages"] = said.replace("assistant", "user")
    above = {"trace_id": TRACE, "parent_span_id": f"{1:016x}", "name": "chat m", "attributes": own}
    spans = [Span(trace_id=TRACE, span_id=f"{1:016x}", name="work", start_ns=1, end_ns=10**7)]
    for number in range(2, count + 2):
        heard = (Event(time_ns=10**6 + number, name="first token", attributes={}),)
        early, late = f"{number:016x}", f"{10**6 + number:016x}"
        spans.append(Span(**above, span_id=early, start_ns=2, end_ns=3, events=heard, scope=Scope(name="lib")))
        spans.append(Span(**above, span_id=late, start_ns=4 + number, end_ns=10**7, scope=Scope(name="lib")))
    spans.append(Span(**above, span_id=f"{10**7:016x}", start_ns=2, end_ns=3, scope=Scope(name="other")))
    return SpanGroup(spans=spans)


def test_what_one_instrumentor_made_is_not_compared_with_each_other():
    small, large = (operations(build_trajectories, one_instrumentor(count)) / count for count in (100, 800))
    assert large < 1.5 * small
