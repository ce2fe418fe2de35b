"""Law 8: what several instrumentors recorded of one request is one call, and no call is made of two requests."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel import histories
from art_otel.calls import Choice, Message, ToolCall
from art_otel.spans import Scope, Span
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, Trajectory, build_trajectories
from tests.examples import examples

MS = 1_000_000
SYSTEM = Message(role="system", content="be brief")
LOOK = ToolCall(id="c1", name="look", arguments='{"city":"Paris","days":2}')


def user(content: str) -> Message:
    return Message(role="user", content=content)


def said(content: str | None, finish: str | None = "stop", **fields) -> Choice:
    return Choice(index=0, message=Message(role="assistant", content=content, **fields), finish_reason=finish)


class Recorder:
    """Spans of chat calls at times of our choice, by scopes of our choice."""

    def __init__(self) -> None:
        self.builder = SpanBuilder()
        self.root = self.builder.rollout("r")
        self.spans = [self.root]

    def chat(
        self,
        scope: str,
        prompt: list[Message],
        answer: Choice | None,
        *,
        parent: Span | None = None,
        response_id: str | None = "chatcmpl-7",
        lasts: tuple[int, int] = (10, 20),
        known: dict[str, object] | None = None,
        without: tuple[str, ...] = (),
        **fields,
    ) -> Span:
        span = self.builder.chat(parent or self.root, prompt, [] if answer is None else [answer])
        attributes = {name: value for name, value in span.attributes.items() if name != "gen_ai.response.id"}
        if response_id is not None:
            attributes["gen_ai.response.id"] = response_id
        if answer is None:
            del attributes["gen_ai.output.messages"], attributes["gen_ai.response.finish_reasons"]
        attributes = {name: value for name, value in attributes.items() if name not in without} | (known or {})
        begin, end = (self.root.start_ns + at * MS for at in lasts)
        span = structs.replace(
            span, scope=Scope(name=scope), attributes=attributes, start_ns=begin, end_ns=end, **fields
        )
        self.spans.append(span)
        return span

    def trajectory(self) -> Trajectory:
        (found,) = build_trajectories(SpanGroup(spans=self.spans)).trajectories
        return found


def texts(trajectory: Trajectory) -> list[tuple[str, str | None]]:
    """The last message of each call's prompt, and what was answered."""
    return sorted(
        (call.input_messages[-1].content, call.choices[0].message.content if call.choices else None)
        for call in trajectory.calls
    )


def trained(trajectory: Trajectory) -> list[str]:
    return [
        entry.message.content for history in histories(trajectory) for entry in history.messages or () if entry.trained
    ]


TWO = [("plan?", "plan"), ("poem?", "rose")]


def test_nested_calls_of_one_response_id_with_other_contents_are_two_and_neither_is_trained():
    recorder = Recorder()
    outer = recorder.chat("framework", [user("plan?")], said("plan"), lasts=(10, 40))
    recorder.chat("client", [user("poem?")], said("rose"), parent=outer, lasts=(15, 30))
    found = recorder.trajectory()
    assert texts(found) == TWO
    assert [turn.untrained for turn in found.turns] == ["contradicting recordings"] * 2
    assert trained(found) == []
    assert found.complete


@pytest.mark.parametrize("question", ["plan?", "poem?"])
def test_one_contradiction_is_enough(question):
    recorder = Recorder()
    outer = recorder.chat("framework", [user("plan?")], said("plan"), lasts=(10, 40))
    recorder.chat("client", [user(question)], said("rose"), parent=outer, lasts=(15, 30))
    assert texts(recorder.trajectory()) == [("plan?", "plan"), (question, "rose")]


@pytest.mark.parametrize("lasts", [(15, 30), (40, 50)], ids=["overlapping", "disjoint"])
def test_siblings_of_one_response_id_with_other_contents_are_two_calls(lasts):
    recorder = Recorder()
    recorder.chat("one", [user("plan?")], said("plan"), lasts=(10, 40))
    recorder.chat("other", [user("poem?")], said("rose"), lasts=lasts)
    found = recorder.trajectory()
    assert texts(found) == TWO
    assert sorted(trained(found)) == ["plan", "rose"]


def test_siblings_of_one_response_id_that_did_not_run_at_once_are_two_calls():
    recorder = Recorder()
    recorder.chat("one", [user("a")], said("b"), lasts=(10, 20))
    recorder.chat("other", [user("a")], said("b"), lasts=(20, 30))
    assert texts(recorder.trajectory()) == [("a", "b"), ("a", "b")]


def test_calls_that_ran_before_a_deeper_one_of_their_response_id_are_no_recordings_of_it():
    recorder = Recorder()
    around = recorder.chat("framework", [user("x")], said("y"), response_id="other", lasts=(40, 80))
    recorder.chat("one", [user("plan?")], said("plan"), parent=around, lasts=(50, 60))
    recorder.chat("other", [user("plan?")], said("plan"), lasts=(10, 20))
    assert len(recorder.trajectory().calls) == 3


def test_siblings_that_ran_at_once_and_agree_are_one_call():
    recorder = Recorder()
    recorder.chat("one", [SYSTEM, user("a")], said("b"), lasts=(10, 30))
    recorder.chat("other", [user("a")], said("b"), lasts=(15, 35))
    assert texts(recorder.trajectory()) == [("a", "b")]


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


def test_a_stream_that_broke_for_its_caller_is_the_call_that_a_proxy_saw_whole():
    recorder = Recorder()
    failed = {"status": "error", "status_message": "dropped"}
    outer = recorder.chat("client", [user("a")], said("ro", None), lasts=(10, 40), **failed)
    recorder.chat("proxy", [user("a")], said("rose"), parent=outer, lasts=(12, 30))
    (call,) = recorder.trajectory().calls
    assert call.failed


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


# One call by recorders with their usual losses.

PROMPT = [SYSTEM, Message(role="user", content="weather?", name="ann")]
ANSWER = said("Let me look.", "tool_calls", reasoning="hm", tool_calls=(LOOK,))


def whole(recorder: Recorder, answer: Choice, **where) -> Span:
    return recorder.chat("whole", PROMPT, answer, **where)


def without_names(recorder: Recorder, answer: Choice, **where) -> Span:
    """It loses names and reasoning."""
    prompt = [structs.replace(message, name=None) for message in PROMPT]
    message = structs.replace(answer.message, reasoning=None)
    return recorder.chat("without names", prompt, structs.replace(answer, message=message), **where)


def parsing(recorder: Recorder, answer: Choice, **where) -> Span:
    """It parses the arguments of tool calls."""
    parts = [{"type": "text", "content": answer.message.content}] if answer.message.content else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": json.loads(call.arguments)}
        for call in answer.message.tool_calls
    ]
    message = {"role": "assistant", "parts": parts, "finish_reason": answer.finish_reason}
    return recorder.chat("parsing", PROMPT, answer, known={"gen_ai.output.messages": json.dumps([message])}, **where)


def cutting(recorder: Recorder, answer: Choice, **where) -> Span:
    """It cuts long texts, which is seen from their JSON."""
    span = recorder.chat("cutting", PROMPT, answer, **where)
    cut = structs.replace(
        span, attributes={name: value[:60] if "messages" in name else value for name, value in span.attributes.items()}
    )
    recorder.spans[-1] = cut
    return cut


def without_id(recorder: Recorder, answer: Choice, **where) -> Span:
    return recorder.chat("without id", PROMPT, answer, response_id=None, **where)


def without_instructions(recorder: Recorder, answer: Choice, **where) -> Span:
    return recorder.chat("framework", PROMPT[1:], answer, **where)


RECORDERS = [whole, without_names, parsing, cutting, without_id, without_instructions]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from(RECORDERS), min_size=2, max_size=3, unique=True),
    st.sampled_from([ANSWER, said("Sunny.")]),
    st.lists(st.booleans(), min_size=2, max_size=2),
)
def test_a_call_that_several_recorded_with_their_losses_is_one_call(recorders, answer, nested):
    recorder = Recorder()
    spans: list[Span] = []
    for depth, record in enumerate(recorders):
        # Beside each other recordings are told by their id, or by equal content.
        is_nested = depth > 0 and (nested[depth - 1] or without_id in recorders)
        parent = spans[-1] if is_nested else None
        spans.append(record(recorder, answer, parent=parent, lasts=(10 + depth, 40 - depth)))
    found = recorder.trajectory()
    assert len(found.calls) == 1
    assert all(turn.untrained is None for turn in found.turns)


@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("as_text", [True, False], ids=["a recorder took it for text", "a recorder lost it"])
def test_a_refusal_that_one_recorder_did_not_understand_is_one_call(is_nested, as_text):
    recorder = Recorder()
    answer = said("I cannot." if as_text else None)
    outer = recorder.chat("loses refusals", PROMPT, answer, lasts=(10, 40))
    message = {"role": "assistant", "content": None, "refusal": "I cannot."}
    body = {"id": "chatcmpl-7", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    request = {"model": "policy", "messages": [{"role": one.role, "content": one.content} for one in PROMPT]}
    bodies = {"openinference.span.kind": "LLM", "input.value": json.dumps(request), "output.value": json.dumps(body)}
    known = {**bodies, "input.mime_type": "application/json", "output.mime_type": "application/json"}
    inner = recorder.chat("bodies", [], None, parent=outer if is_nested else None, lasts=(12, 38))
    recorder.spans[-1] = structs.replace(inner, attributes=known)
    (call,) = recorder.trajectory().calls
    assert call.choices[0].message.refusal == "I cannot."


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
    wanted = sorted(turn.message.content for turn in found.turns if turn.untrained is None)
    assert sorted(trained(found)) == wanted


# Any calls whose recorders lose what they like. Ids are honest here: nobody gives one to two calls.

LOSSES = {
    "nothing": (),
    "prompt": ("gen_ai.input.messages",),
    "answer": ("gen_ai.output.messages", "gen_ai.response.finish_reasons"),
    "content": ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.response.finish_reasons"),
    "model": ("gen_ai.request.model", "gen_ai.response.model"),
}


@st.composite
def lossy_programs(draw) -> tuple[Recorder, list[tuple[str, str]]]:
    recorder, asked, made = Recorder(), [], []
    for number in range(draw(st.integers(1, 5))):
        question, answer = f"q{number}", draw(st.sampled_from(["yes", f"a{number}"]))
        asked.append((question, answer))
        begin = draw(st.integers(1, 8))
        end = begin + draw(st.integers(1, 8))
        for scope in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)):
            lost = LOSSES[draw(st.sampled_from(sorted(LOSSES)))]
            framed = [SYSTEM] * draw(st.booleans())
            span = recorder.chat(
                scope,
                [*framed, user(question)],
                said(answer),
                parent=draw(st.none() | st.sampled_from(made)) if made else None,
                response_id=draw(st.sampled_from([f"r{number}", None])),
                lasts=(begin, end),
                without=lost,
            )
            made.append(span)
    return recorder, asked


@settings(max_examples=examples(500), deadline=None)
@given(lossy_programs(), st.randoms(use_true_random=False))
def test_no_answer_is_joined_with_the_prompt_of_another_call_whatever_recorders_lose(program, random):
    recorder, asked = program
    found = recorder.trajectory()
    known = {
        (call.input_messages[-1].content, call.choices[0].message.content)
        for call in found.calls
        if call.input_messages and call.choices
    }
    assert known <= set(asked)
    random.shuffle(recorder.spans)
    assert recorder.trajectory() == found


@pytest.mark.parametrize("outer_id", [None, "x1"])
@pytest.mark.parametrize(
    ("shown", "sampled"),
    [
        (said("rose"), said("<think>x</think>rose")),
        (said('{"city": "Paris", "days": 2}'), said(None, "tool_calls", tool_calls=(LOOK,))),
        (said(None, "tool_calls", tool_calls=(LOOK,)), said('{"city": "Paris", "days": 2}')),
    ],
    ids=["thinking", "tool call", "JSON text"],
)
def test_an_answer_that_a_framework_shows_otherwise_is_kept_as_it_was_sampled(outer_id, shown, sampled):
    recorder = Recorder()
    outer = recorder.chat("framework", [user("q")], shown, response_id=outer_id, lasts=(10, 100))
    recorder.chat("client", [user("q")], sampled, response_id="x1", parent=outer, lasts=(20, 90))
    (trajectory,) = build_trajectories(SpanGroup(spans=recorder.spans)).trajectories
    ((turn,), (made,)) = trajectory.turns, trajectory.calls
    assert turn.untrained is None
    assert made.choices == (sampled,)


def test_a_timeout_during_a_proxy_s_retries_is_one_failed_call():
    recorder = Recorder()
    error = {"status": "error", "response_id": None}
    outer = recorder.chat("client", [user("q")], None, lasts=(10, 100), known={"error.type": "timeout"}, **error)
    recorder.chat("proxy", [user("q")], None, parent=outer, lasts=(20, 40), known={"error.type": "500"}, **error)
    recorder.chat("proxy", [user("q")], said("hello"), response_id="x1", parent=outer, lasts=(50, 120))
    (trajectory,) = build_trajectories(SpanGroup(spans=recorder.spans)).trajectories
    ((turn,), (made,)) = trajectory.turns, trajectory.calls
    assert turn.untrained == "failed"
    assert (made.error_type, made.response_id) == ("timeout", "x1")


CUT = {"gen_ai.input.messages": '[{"role":"user","parts":[{"type":"te'}
CUT_TOOLS = {"gen_ai.tool.definitions": '[{"type":"fu'}


@pytest.mark.parametrize(
    "cut", [{"known": CUT}, {"known": CUT_TOOLS}, {"dropped_attributes_count": 5}], ids=["prompt", "tools", "dropped"]
)
@pytest.mark.parametrize("is_outer_cut", [True, False], ids=["outer", "inner"])
def test_what_was_cut_does_not_count_where_another_recording_is_whole(cut, is_outer_cut):
    recorder = Recorder()
    outer_cut, inner_cut = (cut, {}) if is_outer_cut else ({}, cut)
    outer = recorder.chat("framework", [user("q")], said("a"), response_id=None, lasts=(10, 100), **outer_cut)
    recorder.chat("client", [user("q")], said("a"), parent=outer, lasts=(20, 90), **inner_cut)
    (trajectory,) = build_trajectories(SpanGroup(spans=recorder.spans)).trajectories
    (made,) = trajectory.calls
    assert (made.cut, made.dropped_attributes, made.input_messages) == ((), 0, (user("q"),))
    assert trajectory.complete


def test_a_whole_recording_of_another_prompt_than_was_sent_does_not_make_up_for_what_was_cut():
    recorder = Recorder()
    outer = recorder.chat("framework", [user("q")], said("a"), response_id=None, lasts=(10, 100))
    recorder.chat("client", [user("Q: q")], said("a"), parent=outer, lasts=(20, 90), known=CUT_TOOLS)
    (trajectory,) = build_trajectories(SpanGroup(spans=recorder.spans)).trajectories
    (made,) = trajectory.calls
    assert made.input_messages == (user("Q: q"),)
    assert made.cut
    assert trajectory.incomplete_reasons == {"cut JSON": 1}
