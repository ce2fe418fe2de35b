"""Law 8: what several instrumentors recorded of one request is one call, and no call is made of two requests."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel.spans import Scope
from tests.data.rollouts import user
from tests.examples import examples
from tests.trajectories.recorder import MS, Recorder, said, texts, trained

TWO = [("plan?", "plan"), ("poem?", "rose")]


def test_nested_calls_of_one_response_id_with_other_contents_are_two_and_neither_is_trained():
    recorder = Recorder()
    outer = recorder.chat("framework", [user("plan?")], said("plan"), lasts=(10, 40))
    recorder.chat("client", [user("poem?")], said("rose"), parent=outer, lasts=(15, 30))
    found = recorder.trajectory()
    assert texts(found) == TWO
    assert [turn.text_untrained for turn in found.turns] == ["contradicting recordings"] * 2
    assert trained(found) == []
    assert found.complete


@pytest.mark.parametrize("lasts", [(15, 30), (40, 50)], ids=["overlapping", "disjoint"])
def test_siblings_of_one_response_id_with_other_contents_are_two_calls(lasts):
    recorder = Recorder()
    recorder.chat("one", [user("plan?")], said("plan"), lasts=(10, 40))
    recorder.chat("other", [user("poem?")], said("rose"), lasts=lasts)
    found = recorder.trajectory()
    assert texts(found) == TWO
    assert sorted(trained(found)) == ["plan", "rose"]


def test_one_that_says_nothing_does_not_bring_two_together_that_contradict_each_other():
    recorder = Recorder()
    outer = recorder.chat("framework", [user("plan?")], said("plan"), lasts=(10, 60))
    silent = ("gen_ai.input.messages",)
    middle = recorder.chat("router", [], None, parent=outer, lasts=(15, 50), without=silent)
    recorder.chat("client", [user("poem?")], said("rose"), parent=middle, lasts=(20, 40))
    found = recorder.trajectory()
    assert texts(found) == TWO
    assert trained(found) == []


def test_one_that_says_nothing_does_not_bring_a_prompt_to_the_answer_of_another():
    recorder = Recorder()
    answer, prompt = ("gen_ai.output.messages", "gen_ai.response.finish_reasons"), ("gen_ai.input.messages",)
    outer = recorder.chat("a", [user("plan?")], said("plan"), response_id=None, without=answer)
    silent = recorder.chat("b", [], said(None), parent=outer, response_id=None, without=(*answer, *prompt))
    recorder.chat("c", [user("poem?")], said("rose"), parent=silent, response_id=None, without=prompt)
    assert [call.choices is None for call in recorder.trajectory().calls] == [True, False]


def test_what_failed_for_its_caller_and_completed_at_a_proxy_is_one_failed_call():
    recorder = Recorder()
    failed = {"status": "error", "status_message": "timed out"}
    outer = recorder.chat("client", [user("a")], None, response_id=None, lasts=(10, 20), **failed)
    recorder.chat("proxy", [user("a")], said("b"), parent=outer, lasts=(12, 40))
    (call,) = recorder.trajectory().calls
    assert (call.failed, call.error, call.choices[0].message.content) == (True, "timed out", "b")
    assert trained(recorder.trajectory()) == []


@pytest.mark.parametrize("scope", ["framework", "client"])
@pytest.mark.parametrize("second", ["rose", "lily"])
def test_choices_that_were_sampled_by_a_request_each_are_trained_once_each(scope, second):
    recorder = Recorder()
    both = said("rose"), structs.replace(said(second), index=1)
    outer = recorder.builder.chat(recorder.root, [user("poem?")], both)
    outer = structs.replace(outer, scope=Scope(name=scope), start_ns=recorder.root.start_ns + MS)
    recorder.spans.append(structs.replace(outer, end_ns=recorder.root.start_ns + 90 * MS))
    for number, text in enumerate(("rose", second)):
        request = {"parent": outer, "response_id": f"chatcmpl-{number}", "lasts": (10 + number, 30 + number)}
        recorder.chat("client", [user("poem?")], said(text), **request)
    found = recorder.trajectory()
    assert texts(found) == sorted([("poem?", "rose"), ("poem?", second)])
    assert sorted(trained(found)) == sorted(["rose", second])
    assert [(call.response_id, len(call.choices)) for call in found.calls] == [("chatcmpl-0", 1), ("chatcmpl-1", 1)]


# Any calls, nested, at once and after each other, whose server repeats ids.


@st.composite
def programs(draw) -> tuple[Recorder, list[tuple[str, str]]]:
    """Requests, each recorded whole by one instrumentor or by several nested ones, and what they asked and answered."""
    recorder, asked, made = Recorder(), [], []
    for number in range(draw(st.integers(1, 5))):
        question, answer = f"q{number}", draw(st.sampled_from(["yes", f"a{number}"]))
        asked.append((question, answer))
        parent = draw(st.none() | st.sampled_from(made)) if made else None
        begin = draw(st.integers(1, 8))
        end = begin + draw(st.integers(1, 8))
        response_id = draw(st.sampled_from(["chatcmpl-7", "chatcmpl-8", None]))
        for scope in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)):
            parent = recorder.chat(
                scope, [user(question)], said(answer), parent=parent, response_id=response_id, lasts=(begin, end)
            )
            made.append(parent)
    return recorder, asked


@settings(max_examples=examples(300), deadline=None)
@given(programs())
def test_no_answer_is_joined_with_the_prompt_of_another_call(program):
    recorder, asked = program
    assert set(texts(recorder.trajectory())) <= set(asked)


@settings(max_examples=examples(300), deadline=None)
@given(programs(), st.randoms(use_true_random=False))
def test_calls_that_answer_otherwise_all_stay_in_any_order(program, random):
    recorder, asked = program
    found = recorder.trajectory()
    answered = [answer for _, answer in asked]
    if all(one != other for one, other in pairwise(sorted(answered))):
        assert set(texts(found)) == set(asked)
    random.shuffle(recorder.spans)
    assert recorder.trajectory() == found


@settings(max_examples=examples(100), deadline=None)
@given(programs())
def test_what_is_untrained_is_trained_in_no_view_and_all_else_once(program):
    found = program[0].trajectory()
    wanted = sorted(turn.message.content for turn in found.turns if turn.text_untrained is None)
    assert sorted(trained(found)) == wanted
