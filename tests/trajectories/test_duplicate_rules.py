"""Each rule that joins recordings of one call, alone."""

import pytest
from msgspec import structs

from art_otel.calls import Message, Usage
from art_otel.spans import Scope, Span
from art_otel.trajectories import SpanGroup, build_trajectories
from art_otel.trajectories.duplicate_rules import (
    RULES,
    attach_request_only_spans,
    attach_wrapper_methods,
    join_enclosed,
    join_failures,
    join_late_streams,
    join_nested,
    join_one_response,
    join_unanswered,
    mark_contradicting,
)
from tests.operations import operations
from tests.trajectories.recordings import TRACE, Tree, call

METHOD = {"openinference.span.kind": "LLM", "input.value": "arguments"}
NOTHING = call(None, None, request_model=None)


def test_a_method_belongs_to_the_last_call_of_its_own_instrumentor():
    tree = Tree()
    tree.record(2, "a", NOTHING, attributes=METHOD)
    tree.record(3, "a", NOTHING, parent=2, attributes=METHOD)
    tree.record(4, "a", call(), parent=3, start=1)
    tree.record(5, "a", call(), parent=3, start=2)
    tree.record(6, "b", call(), parent=3, start=3)
    assert tree.joined_by(attach_wrapper_methods) == [[4], [5, 3, 2], [6]]


def test_a_question_belongs_to_the_call_around_it_that_knows_the_response():
    tree = Tree()
    tree.record(2, "a", call(response_id="r"))
    tree.record(3, "b", call("a", None), parent=2)
    tree.record(4, "b", call("c", None), parent=2)
    tree.record(5, "b", call("a", None))
    assert tree.joined_by(attach_request_only_spans) == [[2, 3], [4], [5]]


@pytest.mark.parametrize(
    ("outer", "inner", "joined"),
    [
        (call("a", "b", response_id="r"), call("c d", "b", response_id="r"), True),
        (call("a", None, response_id="r"), call(None, "b", response_id="r"), True),
        (call("a", "b", response_id="r"), call("c", "d", response_id="r"), False),
        (call("a", None), call("a", "b"), True),
        (call("a", None), call("c", "b"), False),
        (call("a", "b"), call("a", "d"), False),
        (call("a", None), call(None, "b"), False),
        (call("a", "b"), call("c d", "b"), True),
        (call("a", "b", usage=Usage(output_tokens=5)), call("c d", "b", usage=Usage(output_tokens=6)), False),
    ],
)
def test_what_shows_that_a_nested_recording_is_of_the_call_around_it(outer, inner, joined):
    tree = Tree()
    tree.record(2, "a", outer)
    tree.record(3, "b", inner, parent=2)
    assert tree.joined_by(join_nested) == ([[2, 3]] if joined else [[2], [3]])


@pytest.mark.parametrize("role", ["tool", "agent"])
def test_an_answer_beyond_a_tool_or_agent_is_another_call_s(role):
    tree = Tree()
    tree.record(2, "a", call("a", "b"))
    tree.add(3, 2, role=role)
    tree.record(4, "b", call("c d", "b"), parent=3)
    assert tree.joined_by(join_nested) == [[2], [4]]


@pytest.mark.parametrize(("first", "joined"), [("look", [[2], [3], [4]]), ("b", [[2, 3], [4]])])
def test_of_answers_to_other_prompts_only_the_first_is_the_call_s(first, joined):
    """An agent that was recorded as a call does not swallow its last one, nor a call the one of a sub-agent."""
    tree = Tree()
    tree.record(2, "a", call("task", "b"))
    tree.record(3, "b", call("brief task", first), parent=2, start=1)
    tree.record(4, "b", call("brief task look found", "b"), parent=2, start=2)
    assert tree.joined_by(join_nested) == joined


def test_of_several_attempts_the_one_it_answers_with_is_repeated_else_the_last_that_went_so():
    tree = Tree()
    tree.record(2, "router", call("a", "b"))
    tree.record(3, "client", call("a", None, error_type="x"), parent=2, start=1)
    tree.record(4, "client", call("a", "b"), parent=2, start=2)
    tree.record(5, "client", call("a", None), parent=2, start=3)
    assert tree.joined_by(join_nested) == [[2, 4], [3], [5]]
    tree.calls[tree.spans[1].key] = call("a", None)
    assert tree.joined_by(join_nested) == [[2, 5], [3], [4]]


def test_a_call_that_failed_for_its_caller_and_completed_at_a_proxy_is_one_failed_call():
    failed = call("a", None, error_type="x")
    tree = Tree()
    tree.record(2, "client", failed)
    tree.record(3, "proxy", failed, parent=2, start=1)
    tree.record(4, "proxy", call("a", "b"), parent=2, start=2)
    tree.record(5, "proxy", failed, parent=2, start=3)
    tree.record(6, "proxy", call("c", "d"), parent=2, start=4)
    tree.record(7, "provider", failed, parent=3, start=1)
    tree.record(8, "provider", call("a", "b"), parent=4, start=2)
    assert tree.joined_by(join_nested) == [[2, 4, 8, 3, 5, 7], [6]]


def test_what_lies_below_attached_attempts_is_of_the_failed_call():
    tree = Tree()
    tree.record(2, "client", call("a", None, error_type="x"))
    tree.record(3, "proxy", call("a", "b"), parent=2, start=1)
    tree.record(4, "proxy", call("a", "c"), parent=2, start=2)
    tree.record(5, "provider", call("a", "b"), parent=3, start=1)
    tree.record(6, "provider", call("a", "c"), parent=4, start=2)
    assert tree.joined_by(join_nested) == [[2, 4, 6, 3, 5]]


def test_an_instrumentor_records_a_call_once():
    tree = Tree()
    tree.record(2, "a", call())
    tree.record(3, "b", call(), parent=2)
    tree.record(4, "a", call(), parent=3, name="another name")
    assert tree.joined_by(join_nested) == [[2, 3], [4]]


@pytest.mark.parametrize(("start", "joined"), [(8, True), (10, False), (20, False)])
def test_one_response_id_is_one_call_where_they_ran_at_once(start, joined):
    tree = Tree()
    tree.record(2, "a", call("a", None, response_id="r"), start=5, end=10)
    tree.record(3, "b", call("a", "b", response_id="r"), start=start, end=30)
    assert tree.joined_by(join_one_response) == ([[2, 3]] if joined else [[2], [3]])


def test_one_response_id_joins_neither_contradicting_recordings_nor_two_of_one_instrumentor():
    tree = Tree()
    tree.record(2, "a", call("a", "b", response_id="r"))
    tree.record(3, "b", call("a", "c", response_id="r"))
    tree.record(4, "a", call("a", "b", response_id="r"))
    assert tree.joined_by(join_one_response) == [[2], [3], [4]]


def test_each_is_given_to_the_shortest_around_it():
    tree = Tree()
    for number, (scope, start, end) in enumerate(
        [("a", 10, 110), ("a", 11, 120), ("b", 12, 100), ("b", 14, 105), ("c", 13, 90), ("c", 15, 95)], 2
    ):
        tree.record(number, scope, call(), start=start, end=end)
    assert tree.joined_by(join_enclosed) == [[2, 4, 6], [3, 5, 7]]


@pytest.mark.parametrize(
    "inner",
    [
        {"told": call("a", "c")},
        {"told": call("c", "b")},
        {"told": call(request_model="n")},
        {"told": call(response_id="r2")},
        {"end": 95},
        {"parent": 4},
        {"scope": "a"},
    ],
    ids=["answer", "prompt", "model", "response id", "end", "parent", "instrumentor"],
)
def test_what_differs_in_anything_is_not_enclosed(inner):
    tree = Tree()
    tree.record(2, "a", call(response_id="r1"), start=1, end=90)
    tree.add(4)
    tree.record(3, **({"scope": "b", "told": call(), "start": 2, "end": 80} | inner))
    assert tree.joined_by(join_enclosed) == [[2], [3]]


ASKED = call("a", None, response_id="r", usage=Usage(output_tokens=5))


def test_requests_without_an_answer_are_those_of_the_calls_around_them():
    tree = Tree()
    recorded = [
        ("a", call("a", "b"), 10, 90),
        ("a", call("a", "c"), 11, 80),
        ("b", call("a", None, response_id="r1"), 12, 70),
        ("b", call("a", None, response_id="r2"), 13, 85),
        ("b", call("a", None, response_id="r3"), 14, 60),
    ]
    for number, (scope, told, start, end) in enumerate(recorded, 2):
        tree.record(number, scope, told, start=start, end=end)
    assert tree.joined_by(join_unanswered) == [[2, 5], [3, 4], [6]]


@pytest.mark.parametrize(
    ("inner", "joined"),
    [
        ({}, True),
        ({"told": structs.replace(ASKED, input_messages=call("c d", None).input_messages)}, False),
        ({"told": structs.replace(ASKED, request_model="n")}, False),
        ({"told": structs.replace(ASKED, usage=Usage(output_tokens=6))}, False),
        ({"told": structs.replace(ASKED, error_type="E")}, False),
        ({"end": 95}, False),
        ({"parent": 4}, False),
        ({"scope": "a"}, False),
    ],
    ids=["alike", "prompt", "model", "count", "failed", "end", "parent", "instrumentor"],
)
def test_what_shows_that_a_request_is_of_the_call_around_it(inner, joined):
    tree = Tree()
    tree.record(2, "a", call("a", "b", usage=Usage(output_tokens=5)), start=1, end=90)
    tree.add(4)
    tree.record(3, **({"scope": "b", "told": ASKED, "start": 2, "end": 80} | inner))
    assert tree.joined_by(join_unanswered) == ([[2, 3]] if joined else [[2], [3]])


def test_messages_of_the_user_that_a_framework_joins_as_it_sends_them_are_the_same():
    def user(*texts):
        return tuple(Message(role="user", content=text) for text in texts)

    tree = Tree()
    tree.record(2, "a", structs.replace(call("a", "b"), input_messages=user("c1", "c2")), start=1, end=90)
    tree.record(3, "b", structs.replace(ASKED, input_messages=user("c1c2")), start=2, end=80)
    assert tree.joined_by(join_unanswered) == [[2, 3]]


REFUSED = call("a", None, error_type="BadRequestError")
NOT_CAPTURED = call(None, None, error_type="invalid_request_error")


def test_failures_without_content_are_those_of_the_calls_around_them():
    tree = Tree()
    for number, (scope, told, start, end) in enumerate(
        [("a", REFUSED, 10, 90), ("a", REFUSED, 11, 80), ("b", NOT_CAPTURED, 12, 70), ("b", NOT_CAPTURED, 13, 85)], 2
    ):
        tree.record(number, scope, told, start=start, end=end)
    assert tree.joined_by(join_failures) == [[2, 5], [3, 4]]


@pytest.mark.parametrize(
    ("inner", "joined"),
    [
        ({}, True),
        ({"told": REFUSED}, False),
        ({"told": call(None, None)}, False),
        ({"told": structs.replace(NOT_CAPTURED, response_id="r")}, False),
        ({"told": structs.replace(NOT_CAPTURED, request_model="n")}, False),
        ({"end": 95}, False),
        ({"parent": 4}, False),
        ({"scope": "a"}, False),
    ],
    ids=["alike", "content", "no failure", "response id", "model", "end", "parent", "instrumentor"],
)
def test_what_shows_that_a_failure_is_of_the_call_around_it(inner, joined):
    tree = Tree()
    tree.record(2, "a", REFUSED, start=1, end=90)
    tree.add(4)
    tree.record(3, **({"scope": "b", "told": NOT_CAPTURED, "start": 2, "end": 80} | inner))
    assert tree.joined_by(join_failures) == ([[2, 3]] if joined else [[2], [3]])


def test_a_span_that_ended_early_is_of_the_call_that_ran_when_its_first_token_came():
    tree = Tree()
    tree.record(2, "a", call(), start=1, end=5, heard=30)
    tree.record(3, "b", call(), start=6, end=20)
    tree.record(4, "b", call(), start=25, end=40)
    assert tree.joined_by(join_late_streams) == [[2, 4], [3]]


def marked(tree: Tree) -> list[bool]:
    seen: list[bool] = []

    def mark(groups) -> None:
        for rule in RULES:
            rule(groups)
        mark_contradicting(groups)
        seen.extend(group.call.has_gap("contradicted") for group in groups)

    tree.joined_by(mark)
    return seen


def test_nested_recordings_of_one_response_that_contradict_each_other_are_marked():
    tree = Tree()
    tree.record(2, "a", call("plan?", "plan", response_id="r"))
    tree.record(3, "b", call("poem?", "rose", response_id="r"), parent=2)
    assert marked(tree) == [True, True]


def test_one_that_has_its_recording_is_not_marked_for_another():
    """Another attempt, to which the server gave the same id."""
    tree = Tree()
    tree.record(2, "a", call("plan?", "plan", response_id="r"))
    tree.record(3, "b", call("plan?", "rose", response_id="r"), parent=2, start=1)
    tree.record(4, "b", call("plan?", "plan", response_id="r"), parent=2, start=2)
    assert marked(tree) == [False, False]


@pytest.mark.parametrize(
    ("inner", "marks"),
    [
        (call("a", "c", response_id="r"), True),
        (call("d", "c"), False),
        (call(None, "c"), False),
        (call("a", "c", request_model="n"), False),
    ],
    ids=["prompt", "other prompt", "no prompt", "other model"],
)
def test_nested_recordings_of_one_prompt_with_two_answers_are_marked(inner, marks):
    tree = Tree()
    tree.record(2, "a", call("a", "b"))
    tree.record(3, "b", inner, parent=2)
    assert marked(tree) == [marks, marks]


@pytest.mark.parametrize("role", ["tool", "agent"])
def test_recordings_of_one_prompt_with_a_tool_or_agent_between_them_are_two_calls(role):
    tree = Tree()
    tree.record(2, "a", call("a", "b"))
    tree.add(3, 2, role=role)
    tree.record(4, "b", call("a", "c"), parent=3)
    assert marked(tree) == [False, False]


def test_two_response_ids_are_two_calls():
    tree = Tree()
    tree.record(2, "a", call("a", "b", response_id="r1"))
    tree.record(3, "b", call("a", "c", response_id="r2"), parent=2)
    assert marked(tree) == [False, False]


def test_siblings_that_contradict_each_other_are_two_calls():
    tree = Tree()
    tree.record(2, "a", call("plan?", "plan", response_id="r"))
    tree.record(3, "b", call("poem?", "rose", response_id="r"))
    assert marked(tree) == [False, False]


SAID = '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]'
EQUAL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.input.messages": SAID.replace("assistant", "user"),
    "gen_ai.output.messages": SAID,
}


def equal_calls(count: int, *, apart: int = 10, **known: str) -> SpanGroup:
    """Equal calls, each recorded by two instrumentors and begun so long after the one before; 0 is at once."""
    spans = [Span(trace_id=TRACE, span_id=f"{1:016x}", name="work", start_ns=1, end_ns=10**6)]
    for number in range(count):
        for scope, start, end in (("a", 1, 9), ("b", 2, 8)):
            span = Span(
                trace_id=TRACE,
                span_id=f"{10 * number + start + 10:016x}",
                parent_span_id=f"{1:016x}",
                name="chat",
                attributes=EQUAL | known,
                scope=Scope(name=scope),
                start_ns=apart * number + start,
                end_ns=apart * number + end,
            )
            spans.append(span)
    return SpanGroup(spans=spans)


@pytest.mark.parametrize("known", [{}, {"gen_ai.response.id": "r"}], ids=["no id", "one id"])
def test_equal_calls_one_after_another_take_linear_time(known):
    (trajectory,) = build_trajectories(equal_calls(20, **known)).trajectories
    assert len(trajectory.calls) == 20
    small, large = (operations(build_trajectories, equal_calls(count, **known)) / count for count in (100, 800))
    assert large < 1.3 * small


def test_equal_calls_at_once_take_linear_time():
    (trajectory,) = build_trajectories(equal_calls(20, apart=0)).trajectories
    assert len(trajectory.calls) == 20
    small, large = (operations(build_trajectories, equal_calls(count, apart=0)) / count for count in (50, 400))
    assert large < 1.3 * small


def test_recordings_of_many_instrumentors_are_one_call():
    tree = Tree()
    for number in range(2, 12):
        tree.record(number, f"lib {number}", structs.replace(call(), response_id="r"), start=number, end=100 - number)
    assert tree.joined_by(join_one_response) == [list(range(2, 12))]
    assert tree.joined_by(join_enclosed) == [[number] for number in range(2, 12)]


def test_an_answer_is_not_brought_to_a_prompt_by_the_id_of_a_recording_that_has_neither():
    tree = Tree()
    tree.record(2, "a", call(None, None, response_id="r"))
    tree.record(3, "b", call(None, "b"), parent=2)
    tree.record(4, "c", call("a", None, response_id="r"))

    def join_both(groups) -> None:
        join_nested(groups)
        join_one_response(groups)

    assert tree.joined_by(join_both) == [[2, 3], [4]]
