"""What is written of a body is read back as the body itself would be, and a stream is its whole answer in pieces."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Message
from art_otel.conventions import parse_call
from art_otel.conventions.bodies.chunks import JoinedChunks, join, whole
from art_otel.conventions.exchanges import answer_attributes, messages, parameters, spoken
from art_otel.conventions.values import json_object, raw_fields
from art_otel.exchange.assembly import MessagesAssembler, ResponsesAssembler
from art_otel.testing import SpanBuilder
from tests.gaps import unread
from tests.tracing import wire

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {}}}}}

bodies = st.builds(
    lambda words, n, think, tools, order, asks: {
        "model": "m",
        "messages": [{"role": "user", "content": f"Hi #words={words} #calls={tools} #order={order}{think}"}],
        "n": n,
        **({"tools": [TOOL] * tools} if tools else {}),
        **({"logprobs": True} if "l" in asks else {}),
        **({"return_token_ids": True} if "i" in asks else {}),
    },
    st.integers(1, 30),
    st.integers(1, 3),
    st.sampled_from(["", " #think=1"]),
    st.integers(0, 3),
    st.sampled_from(["straight", "reversed"]),
    st.sampled_from(["", "l", "i", "li"]),
)

FIELDS = (
    *("id", "choices", "index", "delta", "message", "content", "text", "tool_calls", "function", "arguments", "error"),
    *("token_ids", "prompt_token_ids", "logprobs", "token", "logprob", "tokens", "token_logprobs", "finish_reason"),
    *("output", "type", "response", "item", "output_index", "content_index"),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(FIELDS), inner),
    max_leaves=12,
)


def read(attributes):
    known = {"gen_ai.operation.name": "chat", **attributes}
    return parse_call(SpanBuilder().span("chat", kind="client", attributes=known))


def without_tokens(choice):
    return {name: value for name, value in choice.items() if name not in ("logprobs", "token_ids", "prompt_token_ids")}


def without_usage(answer):
    """The answer as a stream has it that was not asked for the usage."""
    return {name: value for name, value in answer.items() if name != "usage"}


@given(bodies)
def test_a_body_is_read_back(body):
    answer = wire.chat(body, "id")
    attributes = answer_attributes(answer)
    assert json.loads(attributes["art.response.choices"]) == [without_tokens(choice) for choice in answer["choices"]]
    call = read(attributes)
    assert unread(call) == ()
    assert call.response_id == "id"
    raw = read({"input.value": json.dumps(body), "output.value": json.dumps(answer)})
    if "return_token_ids" in body:
        assert (call.choices, call.prompt_token_ids) == (raw.choices, raw.prompt_token_ids)
    else:
        assert [choice.message for choice in call.choices] == [choice.message for choice in raw.choices]


@given(bodies)
def test_a_stream_is_the_whole_answer_in_pieces(body):
    joined = JoinedChunks()
    for chunk in wire.chat_chunks({**body, "stream": True}, "id"):
        joined.add(json.loads(json.dumps(chunk)))
    assert read(answer_attributes(joined.body())) == read(answer_attributes(without_usage(wire.chat(body, "id"))))


@given(st.integers(1, 30), st.integers(1, 3), st.booleans())
def test_a_text_stream_is_the_whole_answer_in_pieces(words, n, asks):
    body = {"model": "m", "prompt": f"Hi #words={words}", "n": n}
    body |= {"logprobs": 1, "return_token_ids": True} if asks else {}
    joined = JoinedChunks()
    for chunk in wire.text_chunks(body, "id"):
        joined.add(chunk)
    assert read(answer_attributes(joined.body())) == read(answer_attributes(without_usage(wire.text(body, "id"))))


@given(st.integers(1, 30), st.integers(0, 2))
def test_a_response_stream_is_the_whole_answer_in_pieces(words, tools):
    body = {"model": "m", "input": f"Hi #words={words} #calls={tools}", "tools": [TOOL["function"]] * tools}
    events = list(wire.responses_events(body, "id"))
    for seen in (events, events[:-1]):
        joined = ResponsesAssembler()
        for event in seen:
            joined.add(json.loads(json.dumps(event)))
        found = read(answer_attributes(joined.body()))
        expected = read(answer_attributes(wire.responses(body, "id")))
        if seen is events:
            assert found == expected
            continue
        assert [choice.finish_reason for choice in found.choices] == [None]
        assert [one.message for one in found.choices] == [one.message for one in expected.choices]
        assert found.response_id == expected.response_id


def test_a_response_that_broke_off_has_what_had_come():
    joined = ResponsesAssembler()
    joined.add({"type": "response.created", "response": {"id": "r", "output": []}})
    joined.add({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "summary": []}})
    for piece in ("I ", "think"):
        where = {"output_index": 0, "summary_index": 0}
        joined.add({"type": "response.reasoning_summary_text.delta", **where, "delta": piece})
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
    joined.add({"type": "response.output_item.added", "output_index": 1, "item": call})
    for piece in ('{"x"', ": 1"):
        joined.add({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": piece})
    joined.add({"type": "response.function_call_arguments.delta", "output_index": 7, "delta": "of nothing"})
    joined.add({"type": "response.output_text.delta", "output_index": 1, "content_index": -4, "delta": "nowhere"})
    joined.add({"type": "response.audio.delta", "output_index": 1, "delta": "unknown"})
    joined.add({"type": "response.output_text.delta", "output_index": 1, "delta": {"no": "text"}})
    assert joined.body()["output"] == [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I think"}]},
        {**call, "arguments": '{"x": 1', "content": []},
    ]


def chunk(**choice):
    return {"choices": [{"index": 0, **choice}]}


def test_ids_with_a_gap_are_left_out():
    joined = JoinedChunks()
    joined.add(chunk(delta={"role": "assistant", "content": ""}))
    joined.add(chunk(delta={"content": "a"}, token_ids=[1]))
    joined.add(chunk(delta={"content": "b"}))
    joined.add(chunk(delta={}, token_ids=[3], finish_reason="stop", stop_reason=7))
    assert joined.body()["choices"] == [
        {"index": 0, "finish_reason": "stop", "stop_reason": 7, "message": {"role": "assistant", "content": "ab"}}
    ]


@pytest.mark.parametrize("reason", ["stop", None])
def test_a_stream_that_said_nothing_is_an_answer_without_content(reason):
    joined = JoinedChunks()
    joined.add(chunk(delta={}, finish_reason=reason))
    call = read(answer_attributes(joined.body()))
    assert unread(call) == ()
    assert [(choice.message, choice.finish_reason) for choice in call.choices] == [(Message(role="assistant"), reason)]


def test_pieces_of_many_kinds_are_joined():
    joined = JoinedChunks()
    joined.add(chunk(delta={"content": None, "reasoning_details": [{"a": 1}], "function_call": {"name": "f"}}))
    joined.add(chunk(delta={"reasoning_details": [{"b": 2}], "function_call": {"name": "", "arguments": "{"}}))
    joined.add(chunk(delta={"reasoning": "x", "function_call": {"arguments": "}"}}))
    joined.add(chunk(delta={"reasoning": "y", "flag": True, "tool_calls": [{"id": "c"}, "no call"]}))
    joined.add(chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": "1"}}]}))
    (choice,) = joined.body()["choices"]
    assert choice["message"] == {
        "content": None,
        "reasoning_details": [{"a": 1}, {"b": 2}],
        "function_call": {"name": "f", "arguments": "{}"},
        "reasoning": "xy",
        "tool_calls": [{"id": "c", "function": {"arguments": "1"}}, {}],
        "flag": True,
    }


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_calls_without_an_index_of_their_own_stay_apart(index):
    """As Gemini's API for OpenAI's clients streams them, and older versions of Ollama."""
    joined = JoinedChunks()
    for name in "ab":
        begins = {**index, "id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{"}}
        joined.add(chunk(delta={"tool_calls": [begins]}))
        joined.add(chunk(delta={"tool_calls": [{**index, "function": {"arguments": "}"}}]}))
    (choice,) = joined.body()["choices"]
    calls = [(call["id"], call["function"]) for call in choice["message"]["tool_calls"]]
    assert calls == [(f"call_{name}", {"name": name, "arguments": "{}"}) for name in "ab"]


def test_a_server_that_says_the_id_and_name_in_each_piece_has_one_call():
    joined = JoinedChunks()
    for piece in ('{"x"', ": 1}"):
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": piece}}
        joined.add(chunk(delta={"tool_calls": [call]}))
    (choice,) = joined.body()["choices"]
    assert choice["message"]["tool_calls"] == [{"id": "c", "function": {"name": "f", "arguments": '{"x": 1}'}}]


def test_the_pieces_of_an_audio_are_joined():
    joined = JoinedChunks()
    pieces = ({"id": "a", "transcript": "Hel"}, {"transcript": "lo"}, {"data": "UklG"}, {"data": "Rg=="})
    for piece in (*pieces, {"expires_at": 5}):
        joined.add(chunk(delta={"audio": piece}))
    (choice,) = joined.body()["choices"]
    whole_audio = {"id": "a", "transcript": "Hello", "data": "UklGRg==", "expires_at": 5}
    assert choice["message"] == {"audio": whole_audio}


def test_a_tool_that_the_server_ran_is_recorded_as_agents_send_it_back():
    """Otherwise the next prompt continues another answer, and is another conversation."""
    asked = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "otters"}}
    called = {"type": "tool_use", "id": "t", "name": "look", "input": '{"where": "here"}'}
    joined = MessagesAssembler()
    for index, block in enumerate((asked, called)):
        text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
        joined.add({"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}})
        for piece in (text[:5], text[5:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            joined.add({"type": "content_block_delta", "index": index, "delta": delta})
    assert joined.body()["content"] == [asked, called]


def test_a_long_stream_is_joined_in_linear_time():
    joined = JoinedChunks()
    for _ in range(30_000):
        joined.add(chunk(delta={"content": "word " * 20}, token_ids=[1]))
    (choice,) = joined.body()["choices"]
    assert len(choice["message"]["content"]) == 3_000_000
    assert len(choice["token_ids"]) == 30_000


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1}]}}, {"art.tokens.completion.0"}),
        ({"token_ids": [True], "logprobs": {"content": [{"logprob": -1}]}}, {"art.logprobs.completion.0"}),
        ({"token_ids": "no list"}, set()),
        ({"token_ids": [-1]}, set()),
        ({"token_ids": [2**40]}, set()),
        ({"logprobs": {"content": [{"logprob": "?"}]}}, set()),
        ({"logprobs": {"content": [{"token": "token_id:5", "logprob": "?"}]}}, {"art.tokens.completion.0"}),
        (
            {"logprobs": {"content": [{"token": "token_id:5", "logprob": math.inf}]}},
            {"art.tokens.completion.0", "art.logprobs.completion.0"},
        ),
        ({"index": 4, "token_ids": []}, {"art.tokens.completion.4"}),
    ],
)
def test_what_is_no_ids_or_logprobs_is_left_out(choice, expected):
    found = answer_attributes({"choices": [{"message": {"content": "a"}, **choice}]})
    assert {name for name in found if name.startswith(("art.tokens.c", "art.logprobs.c"))} == expected
    assert unread(read(found)) == ()


def test_prompts_that_differ_are_no_prompt():
    choices = [{"index": index, "text": "a", "prompt_token_ids": [index]} for index in range(2)]
    assert "art.tokens.prompt" not in answer_attributes({"choices": choices})


@given(json_values)
def test_no_body_is_too_strange(value):
    for body in ({"choices": value, "output": value}, value if isinstance(value, dict) else {}):
        found = json_object(json.dumps(body).encode())
        if found is not None:
            read(answer_attributes(found))
        for joined in (JoinedChunks(), ResponsesAssembler()):
            joined.add(body)
            joined.add(body)
            joined.body()


@pytest.mark.long
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), json_values)))
def test_joining_takes_anything(pieces):
    known = {}
    for piece in pieces:
        join(known, json.loads(json.dumps(piece)))
    json.dumps(whole(known))


@pytest.mark.parametrize("body", [b"", b"null", b"[1]", b"{", b"\xff", b'"text"', b"[" * 100_000])
def test_a_body_that_is_no_object_is_none(body):
    assert json_object(body) is None
    assert parameters(raw_fields(body)) == {}
    assert messages(raw_fields(body)) == {}


def test_a_body_that_only_python_would_write_is_read():
    read = json_object(b'{"a": NaN, "b": "\\ud800"}')
    assert json.dumps(read) == '{"a": NaN, "b": "\\ufffd"}'


def test_parameters_are_the_body_without_its_messages():
    asked = {"messages": [1], "input": 2, "prompt": 3, "instructions": 4}
    body = {"model": "m", "tools": [TOOL], "x": {"y": 1.50}, **asked}
    found = json.loads(parameters(raw_fields(json.dumps(body).encode()))["art.request.parameters"])
    assert found == {"model": "m", "tools": [TOOL], "x": {"y": 1.5}, "instructions": None}
    template = parameters(raw_fields(b'{"prompt": {"id": "pmpt_1"}, "input": "q"}'))
    assert json.loads(template["art.request.parameters"]) == {"prompt": {"id": "pmpt_1"}}
    assert parameters(raw_fields(b'{"messages": []}')) == {}
    assert messages(raw_fields(b'{"messages": [{"role": "user"}]}')) == {"art.request.messages": '[{"role": "user"}]'}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"input": "Hi"}, [{"role": "user", "content": "Hi"}]),
        ({"input": "Hi", "instructions": "Be brief."}, ["Be brief.", {"role": "user", "content": "Hi"}]),
        ({"input": [{"type": "item"}, 1], "instructions": None}, [{"type": "item"}, 1]),
        ({"input": [], "instructions": ""}, []),
    ],
)
def test_messages_of_a_response_are_its_instructions_and_items(asked, expected):
    found = json.loads(messages(raw_fields(json.dumps(asked).encode()))["art.request.messages"])
    assert found == [{"role": "system", "content": one} if isinstance(one, str) else one for one in expected]
    assert messages(raw_fields(b'{"instructions": "alone"}')) == {}


def test_what_is_spoken_has_no_numbers():
    choice = {"index": 0, "message": {"content": "a"}}
    numbers = {"token_ids": [1], "logprobs": {"content": [{"token": "a", "logprob": -0.5}]}}
    body = {"id": "c", "prompt_token_ids": [1], "choices": [choice | numbers]}
    assert spoken(body) == {"id": "c", "choices": [choice]}
    assert spoken({"id": "r", "output": []}) == {"id": "r", "output": []}
