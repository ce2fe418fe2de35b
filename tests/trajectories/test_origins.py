"""Origins: a chat, whose calls go on with each other, is told as any other forest of calls is."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Choice, InferenceCall, Message, TokenIds
from art_otel.trajectories.origins import _look_up_origins, find_origins
from tests.trajectories.agents import agent_calls, given_message, sampled_message
from tests.trajectories.token_calls import asked

IDS = st.lists(st.integers(0, 1), max_size=2).map(TokenIds.of)


@st.composite
def chats(draw) -> list[InferenceCall]:
    """Calls each of which has the prompt and the sample of the one before it, and token ids that may drift."""
    prompt = tuple(draw(st.lists(given_message(), max_size=2)))
    path = TokenIds()
    calls: list[InferenceCall] = []
    for number in range(draw(st.integers(0, 6))):
        ids = draw(st.one_of(st.none(), IDS, st.just(path), IDS.map(path.__add__)))
        choice = Choice(index=0, message=draw(sampled_message()), token_ids=draw(st.one_of(st.none(), IDS)))
        calls.append(asked(number + 1, prompt, ids, (choice,)))
        prompt = (*prompt, choice.message, *draw(st.lists(given_message() | sampled_message(), max_size=2)))
        path = (ids or path) + (choice.token_ids or TokenIds())
    if calls and draw(st.booleans()):
        last = draw(st.none() | st.lists(sampled_message(), max_size=3))
        choices = None if last is None else tuple(Choice(index=at, message=said) for at, said in enumerate(last))
        calls[-1] = msgspec.structs.replace(calls[-1], choices=choices)
    return calls


def places(origins) -> list[tuple[object, object]]:
    return [(origin.parent, origin.drifted_from) for origin in origins]


@given(chats())
def test_the_calls_of_a_chat_continue_what_looking_up_finds(calls):
    origins = find_origins(calls)
    assert places(origins) == places(_look_up_origins(calls))
    assert all(origin.verbatim for origin in origins if origin.parent is not None)


@given(st.one_of(agent_calls(), agent_calls(with_tokens=True), chats().flatmap(st.permutations)))
def test_so_do_the_calls_of_any_agent_in_any_order(calls):
    origins = find_origins(calls)
    assert places(origins) == places(_look_up_origins(calls))
    for call, origin in zip(calls, origins, strict=True):
        if origin.verbatim:
            above, choice = calls[origin.parent[0]], origin.parent[1]
            path = (*above.input_messages, above.choices[choice].message)
            assert call.input_messages[: len(path)] == path


def test_a_message_that_is_the_same_in_other_words_is_no_verbatim_repetition():
    question, answer = Message(role="user", content="hi"), Message(role="assistant", content="yes", reasoning="why")
    repeated = msgspec.structs.replace(answer, reasoning=None)
    fields = {"trace_id": "ab" * 16, "operation_name": "chat", "end_ns": None}
    asked = InferenceCall(
        **fields, span_id="1", start_ns=1, input_messages=(question,), choices=(Choice(index=0, message=answer),)
    )
    again = InferenceCall(**fields, span_id="2", start_ns=2, input_messages=(question, repeated, question))
    origins = find_origins([asked, again])
    assert places(origins) == [(None, None), ((0, 0), None)]
    assert not origins[1].verbatim
