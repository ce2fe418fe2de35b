"""One request is one call also where its recorders lose, parse or cut what was asked and answered."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import Choice, Message
from art_otel.spans import Span
from art_otel.trajectories import SpanGroup, build_trajectories
from art_otel.trajectories.lineage import recorded_call
from tests.data.rollouts import user
from tests.examples import examples
from tests.gaps import unread
from tests.trajectories.recorder import LOOK, SYSTEM, Recorder, said

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
    assert all(turn.text_untrained is None for turn in found.turns)


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
    assert turn.text_untrained is None
    assert recorded_call(made).choices == (sampled,)


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
    assert (made.gaps, made.input_messages) == ((), (user("q"),))
    assert trajectory.complete


def test_a_whole_recording_of_another_prompt_than_was_sent_does_not_make_up_for_what_was_cut():
    recorder = Recorder()
    outer = recorder.chat("framework", [user("q")], said("a"), response_id=None, lasts=(10, 100))
    recorder.chat("client", [user("Q: q")], said("a"), parent=outer, lasts=(20, 90), known=CUT_TOOLS)
    (trajectory,) = build_trajectories(SpanGroup(spans=recorder.spans)).trajectories
    (made,) = trajectory.calls
    assert made.input_messages == (user("Q: q"),)
    assert unread(made)
    assert trajectory.incomplete_reasons == {"content not understood": 1}
