"""Recordings by any instrumentors: each request is of the shortest around it, or of the first that tells of it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Choice, Message, ToolCall
from art_otel.conventions import same_tool_calls
from art_otel.spans import Event, Scope, Span, SpanTree, build_tree
from art_otel.trajectories import SpanGroup, build_trajectories
from art_otel.trajectories.calls.ancestry import Ancestry
from art_otel.trajectories.calls.siblings import MAX_MAKERS, _join, _join_late, _Recording
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
    return build_tree(spans), found


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
    _join_late(copies, Ancestry(tree, {}, ()))
    assert joined(copies) == joined_one_by_one(found, tree)


def joined_to_the_shortest(found: list[_Recording], tree: SpanTree) -> set[tuple[str, ...]]:
    running: list[_Recording] = []
    for inner in sorted(found, key=lambda one: (one.start, -one.end, one.spans[0].key)):
        parent = tree.parents[inner.spans[0].key]
        fitting = [
            outer
            for outer in running
            if outer.end >= inner.end
            and not (outer.scopes & inner.scopes or (outer.has_id and inner.has_id))
            and parent in {span.key for span in tree.ancestors(outer.spans[0])}
        ]
        if fitting:
            outer = min(fitting, key=lambda one: one.end)
            running.remove(outer)
            inner.spans, inner.scopes = [*outer.spans, *inner.spans], outer.scopes | inner.scopes
            inner.has_id = outer.has_id or inner.has_id
        running.append(inner)
    return {tuple(span.span_id for span in one.spans) for one in running}


@given(recordings())
def test_each_is_given_to_the_shortest_around_it_whoever_made_that(drawn):
    tree, found = drawn
    for one in found:
        one.heard = None
    copies = [msgspec.structs.replace(one) for one in found]
    united = _join(copies, Ancestry(tree, {}, ()))
    assert {tuple(span.span_id for span in one.spans) for one in united} == joined_to_the_shortest(found, tree)


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


SAID = '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]'
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.output.messages": SAID,
    "gen_ai.input.messages": SAID.replace("assistant", "user"),
}


def chat(number: int, parent: int, scope: str, start: int, end: int, **fields) -> Span:
    place = {"trace_id": TRACE, "span_id": f"{number:016x}", "parent_span_id": f"{parent:016x}"}
    times = {"start_ns": start, "end_ns": end, "scope": Scope(name=scope)}
    return Span(**place, **times, **{"name": "chat m", "attributes": CHAT, **fields})


def work(number: int = 1, parent: int | None = None) -> Span:
    above = None if parent is None else f"{parent:016x}"
    times = {"start_ns": 1, "end_ns": 10**7}
    return Span(trace_id=TRACE, span_id=f"{number:016x}", parent_span_id=above, name="work", **times)


def test_equal_requests_at_the_same_time_that_three_instrumentors_saw_are_told_apart():
    first = [chat(2, 1, "a", 10, 110), chat(4, 1, "b", 12, 100), chat(6, 1, "c", 13, 90)]
    second = [chat(3, 1, "a", 11, 120), chat(5, 1, "b", 14, 105), chat(7, 1, "c", 15, 95)]
    (trajectory,) = build_trajectories(SpanGroup(spans=[work(), *first, *second])).trajectories
    assert len(trajectory.calls) == 2


def nested(count: int) -> SpanGroup:
    """Spans inside each other, each with an equal call, by two instrumentors in turn."""
    spans = [work()]
    for number in range(1, count + 1):
        spans.append(work(2 * number + 1, max(1, 2 * number - 1)))
        spans.append(chat(2 * number, 2 * number + 1, f"lib {number % 2}", 10 * number, 10 * number + 5))
    return SpanGroup(spans=spans)


def at_the_end_of_a_path(count: int) -> SpanGroup:
    """Requests far down, each recorded twice and unlike the others."""
    spans = [work(number, number - 1 if number > 1 else None) for number in range(1, count + 1)]
    for number in range(count):
        own = {"attributes": {**CHAT, "gen_ai.input.messages": SAID.replace('"a"', f'"{number}"')}}
        for scope, start, end in (("a", 1, 9), ("b", 2, 8)):
            place = 10**6 + 10 * number + start
            spans.append(chat(place, count, scope, 10 * number + start, 10 * number + end, **own))
    return SpanGroup(spans=spans)


def instrumentors(count: int) -> SpanGroup:
    return SpanGroup(spans=[work(), *(chat(n + 2, 1, f"lib {n}", 10 * n + 1, 10 * n + 5) for n in range(count))])


@pytest.mark.parametrize("make", [nested, at_the_end_of_a_path, instrumentors])
def test_wherever_and_by_whomever_calls_are_recorded_it_takes_linear_time(make):
    small, large = (operations(build_trajectories, make(count)) / count for count in (200, 1_600))
    assert large < 1.5 * small


def test_one_more_recording_than_instrumentors_are_joined_of_stays_a_request():
    inside = [chat(n + 2, 1, f"lib {n}", n + 1, 10**6 - n) for n in range(MAX_MAKERS + 2)]
    most, more = (build_trajectories(SpanGroup(spans=[work(), *spans])).trajectories for spans in (inside[:-1], inside))
    assert [len(one.calls) for one in (*most, *more)] == [1, 2]


def test_streams_with_other_tool_calls_are_compared_with_in_a_bounded_number():
    def streams(count: int) -> SpanGroup:
        spans = [work()]
        for number in range(count):
            called = '{"type": "tool_call", "id": "c%d", "name": "f", "arguments": {}}'
            early, late = (
                {**CHAT, "gen_ai.output.messages": f'[{{"role": "assistant", "parts": [{called % call}]}}]'}
                for call in (number, -number - 1)
            )
            heard = (Event(time_ns=10**6 + number, name="first token", attributes={}),)
            spans.append(chat(number + 2, 1, "a", 2, 3, attributes=early, events=heard))
            spans.append(chat(number + 10**5, 1, "b", 4 + number, 10**7, attributes=late))
        return SpanGroup(spans=spans)

    small, large = (operations(build_trajectories, streams(count)) / count for count in (300, 1_200))
    assert large < 1.5 * small
