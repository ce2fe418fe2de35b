"""Origins: a chat, whose calls go on with each other, is told as any other forest of calls is."""

import msgspec
from art_otel.trajectories.origins import _look_up_origins, _preference, _Rivals, find_origins
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Choice, InferenceCall, Message, TokenIds
from tests.batches.test_peer_errors import operations
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


@st.composite
def rivals(draw) -> tuple[list[InferenceCall], list[int]]:
    """Calls that ask and answer the same, of some agents and in some order with calls that go on with them."""
    question, said = Message(role="user", content="hi"), Message(role="assistant", content="yes")
    calls: list[InferenceCall] = []
    for number, goes_on in enumerate(draw(st.lists(st.booleans(), min_size=1, max_size=9))):
        told = [
            Choice(index=at, message=msgspec.structs.replace(said, reasoning=thought))
            for at, thought in enumerate(draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=3)))
        ]
        prompt = (question, told[0].message, question) if goes_on else (question,)
        call = asked(number + 1, prompt, None, () if goes_on else tuple(told))
        calls.append(
            msgspec.structs.replace(
                call,
                agent=draw(st.sampled_from([None, "x", "y"])),
                response_id=draw(st.sampled_from([None, "r", "s"])),
                previous_response_id=draw(st.sampled_from([None, "r", "s", "t"])),
            )
        )
    return calls, [index for index, call in enumerate(calls) if len(call.input_messages) > 1]


@given(rivals())
def test_of_equal_paths_the_preferred_one_is_found_without_ordering_them(drawn):
    calls, going_on = drawn
    samples = [(at, place) for at, call in enumerate(calls) for place, _ in enumerate(call.choices or ())]
    for index in going_on if samples else ():
        ranked = sorted(samples, key=lambda sample: _preference(sample, index, calls), reverse=True)
        known = _Rivals(samples, calls)
        assert [known.preferred(index), *known.others(index)] == ranked


def repeated_chat(count: int) -> list[InferenceCall]:
    """Calls that ask and answer the same, and as many that go on with one of them."""
    question, said = Message(role="user", content="hi"), Message(role="assistant", content="yes")
    first = [asked(at + 1, (question,), None, (Choice(index=0, message=said),)) for at in range(count)]
    more = [asked(count + at + 1, (question, said, question), None, ()) for at in range(count)]
    return [*first, *more]


def test_any_number_of_equal_paths_takes_linear_time():
    small, large = (operations(find_origins, repeated_chat(count)) / count for count in (100, 800))
    assert large < 1.2 * small
