"""Token ids and logprobs come through whole or not at all."""

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions.bodies.tokens import (
    decode_ids,
    decode_logprobs,
    decode_prompt_ids,
    encode_ids,
    encode_logprobs,
    parse_ids,
    parse_logprobs,
)
from art_otel.errors import ParseError
from tests.conventions.builders import call, openinference
from tests.gaps import unread

either_decoder = pytest.mark.parametrize("decode", [decode_ids, decode_prompt_ids])
ids = st.lists(st.integers(0, 2**31 - 1), max_size=50)
floats = st.lists(st.floats(min_value=-9998, allow_infinity=False, width=32), max_size=50)


@either_decoder
@given(numbers=ids)
def test_ids_survive_the_attribute(decode, numbers):
    packed = parse_ids(numbers)
    assert decode(encode_ids(packed)) == packed
    assert packed.tolist() == numbers


@given(floats)
def test_logprobs_survive_the_attribute(numbers):
    packed = parse_logprobs(numbers)
    assert decode_logprobs(encode_logprobs(packed)) == packed
    assert packed.tolist() == numbers


@given(st.lists(ids, max_size=6))
def test_prompts_that_go_on_with_each_other_come_through(added):
    numbers = []
    for more in added:
        numbers = numbers + more
        assert decode_prompt_ids(encode_ids(parse_ids(numbers))).tolist() == numbers


@either_decoder
@given(numbers=ids.filter(bool), lost=st.integers(1, 20))
def test_a_cut_attribute_is_never_half_read(decode, numbers, lost):
    text = encode_ids(parse_ids(numbers))
    with pytest.raises(ParseError):
        decode(text[:-lost])


@pytest.mark.parametrize(
    "value",
    [None, 5, b"i4:0:", "", "i4", "i4:0", "i4:1:", "f4:0:", "i4:-1:AAAA", "i4:1:AAAA", "i4:1:AAAAAA==!", "i4:٣:AAAA"],
)
@either_decoder
def test_what_is_no_ids_attribute_is_refused(decode, value):
    with pytest.raises(ParseError):
        decode(value)


@pytest.mark.parametrize("value", ["i4:01:AAAAAA==", "i4:1://///w==", "i4:1:AAAAAA==:"])
@either_decoder
def test_ids_that_are_not_as_written_are_refused(decode, value):
    with pytest.raises(ParseError):
        decode(value)


@either_decoder
def test_an_empty_completion_has_no_ids(decode):
    assert decode("i4:0:") == TokenIds()


@given(st.floats(min_value=-9998, allow_infinity=False, width=32))
def test_a_logprob_however_large_comes_through(number):
    assert decode_logprobs(encode_logprobs(Logprobs(struct.pack("<f", number)))).tolist() == [number]


# vLLM writes -9999.0 for minus infinity, SGLang the smallest float32.
@pytest.mark.parametrize("none", [-9999.0, -1e4, -3.4028234663852886e38, math.nan, math.inf, -math.inf])
def test_what_is_no_logprob_is_unknown_and_the_others_stay(none):
    recorded = Logprobs(struct.pack("<3f", -0.5, none, -8500.0))
    for found in (decode_logprobs(encode_logprobs(recorded)), parse_logprobs([-0.5, none, -8500.0])):
        assert found[0] == -0.5
        assert math.isnan(found[1])
        assert found[2] == -8500.0
    assert math.isnan(parse_logprobs([None])[0])


@pytest.mark.parametrize("value", [None, "1", 5, [1.0], ["1"], [True], [-1], [2**31], [2**80], [None], [[1]]])
def test_what_is_no_list_of_ids_is_refused(value):
    with pytest.raises(ParseError):
        parse_ids(value)


@pytest.mark.parametrize("value", [None, "1", ["-0.1"], [True], [1e300], [10**400]])
def test_what_is_no_list_of_logprobs_is_refused(value):
    with pytest.raises(ParseError):
        parse_logprobs(value)


def choice(**fields):
    return {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a"}, **fields}


def content(*tokens):
    return {"content": [{"token": token, "logprob": -1.0} for token in tokens]}


def answered(*choices, **fields):
    return openinference({"model": "m", "messages": []}, {"id": "r", "choices": list(choices), **fields})


@pytest.mark.parametrize(
    "tokens", [("token_id:5", "x"), ("token_id:", "token_id:5"), ("token_id:-5",), ("token_id:٣",), ()]
)
def test_tokens_not_all_spelled_as_ids_are_no_ids(tokens):
    assert answered(choice(logprobs=content(*tokens))).choices[0].token_ids is None


def test_token_ids_win_over_tokens():
    found = answered(choice(token_ids=[1], logprobs=content("token_id:5"))).choices[0]
    assert found.token_ids.tolist() == [1]


def test_logprobs_of_another_length_are_unknown_and_said_to_be_cut():
    found = answered(choice(token_ids=[1, 2], logprobs=content("a")))
    assert found.choices[0].token_ids.tolist() == [1, 2]
    assert found.choices[0].logprobs is None
    assert unread(found) == ("output.value",)


@pytest.mark.parametrize("token_ids", [[-1], ["a"], [2**31], "text"])
def test_bad_ids_are_unknown_and_said_to_be_cut(token_ids):
    found = answered(choice(token_ids=token_ids))
    assert found.choices[0].token_ids is None
    assert found.choices[0].message.content == "a"
    assert unread(found) == ("output.value",)


def test_nan_logprobs_are_unknown():
    body = json.dumps({"choices": [choice(token_ids=[1], logprobs={"content": [{"token": "a", "logprob": math.nan}]})]})
    found = call({"openinference.span.kind": "LLM", "output.value": body})
    assert "NaN" in body
    assert list(map(math.isnan, found.choices[0].logprobs)) == [True]
    assert found.choices[0].message.content == "a"
    assert unread(found) == ()


def test_prompt_ids_of_chat_and_of_completions():
    assert answered(choice(), prompt_token_ids=[1, 2]).prompt_token_ids.tolist() == [1, 2]
    assert answered(choice(prompt_token_ids=[1, 2])).prompt_token_ids.tolist() == [1, 2]
    assert answered(choice(prompt_token_ids=[1]), choice(prompt_token_ids=[2])).prompt_token_ids is None
    assert answered(choice(), prompt_token_ids=[-2]).prompt_token_ids is None
    assert answered(choice()).prompt_token_ids is None


def test_token_logprobs_of_completions():
    recorded = {
        "index": 0,
        "text": "a b",
        "logprobs": {"tokens": ["token_id:1", "token_id:2"], "token_logprobs": [-1, -2.0]},
    }
    found = answered(recorded).choices[0]
    assert (found.token_ids.tolist(), found.logprobs.tolist()) == ([1, 2], [-1.0, -2.0])
    assert found.message.content == "a b"


OURS = {
    "art.tokens.prompt": encode_ids(TokenIds.of([1, 2, 3])),
    "art.tokens.completion.0": encode_ids(TokenIds.of([4, 5])),
    "art.logprobs.completion.0": encode_logprobs(Logprobs.of([-0.5, -0.25])),
    "art.response.choices": json.dumps(
        [
            choice(
                message={
                    "role": "assistant",
                    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a":1}'}}],
                }
            )
        ]
    ),
    "art.request.parameters": json.dumps(
        {"model": "m", "top_k": 20, "extra_body": {"x": 1}, "stream": True, "tools": []}
    ),
    "art.policy.version": "step-3",
}


def test_our_own_attributes_give_the_exact_tokens():
    found = call(OURS)
    assert found.prompt_token_ids.tolist() == [1, 2, 3]
    assert found.choices[0].token_ids.tolist() == [4, 5]
    assert found.choices[0].logprobs.tolist() == [-0.5, -0.25]
    assert found.choices[0].message.tool_calls[0].arguments == '{"a":1}'
    assert found.choices[0].message.tool_calls[0].exact
    assert found.choices[0].finish_reason == "stop"
    assert found.parameters == {"top_k": 20, "extra_body": {"x": 1}}
    assert (found.policy_version, found.stream, found.tools, found.request_model) == ("step-3", True, (), "m")
    assert found.conventions == ("art",)


def test_our_exact_arguments_join_another_conventions_reasoning():
    parts = [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}},
    ]
    messages = json.dumps([{"role": "assistant", "parts": parts, "finish_reason": "tool_call"}])
    (found,) = call({**OURS, "gen_ai.output.messages": messages}).choices
    assert found.message.reasoning == "hm"
    assert found.message.tool_calls[0].arguments == '{"a":1}'
    assert found.token_ids.tolist() == [4, 5]


def test_tokens_without_content_are_kept():
    found = call({"art.tokens.completion.1": encode_ids(TokenIds.of([4]))})
    assert [(one.index, one.token_ids.tolist(), one.message.content) for one in found.choices] == [(1, [4], None)]


@pytest.mark.parametrize(
    ("name", "value", "unknown"),
    [
        ("art.tokens.prompt", "i4:3:AAAA", lambda found: found.prompt_token_ids),
        ("art.tokens.completion.0", "i4:2:AAAA", lambda found: found.choices[0].token_ids),
        ("art.logprobs.completion.0", "f4:2:AAAA", lambda found: found.choices[0].logprobs),
        ("art.logprobs.completion.0", encode_logprobs(Logprobs.of([-1.0])), lambda found: found.choices[0].logprobs),
        ("art.response.choices", '[{"index": 0', lambda found: found.choices[0].finish_reason),
        ("art.response.choices", "[5]", lambda found: found.choices[0].finish_reason),
        ("art.response.choices", '[{"message": 5}]', lambda found: found.choices[0].finish_reason),
        ("art.request.parameters", '{"top_k": 2', lambda found: found.stream),
        ("art.tokens.completion.x", encode_ids(TokenIds.of([1])), lambda _: None),
    ],
)
def test_our_own_attributes_that_were_cut_are_unknown(name, value, unknown):
    found = call({**OURS, name: value})
    assert unknown(found) is None
    assert unread(found) == (name,)


def test_our_choices_of_the_responses_api():
    items = [
        {"type": "reasoning", "summary": [{"text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
    ]
    (found,) = call({"art.response.choices": json.dumps(items)}).choices
    assert (found.message.content, found.message.reasoning, found.finish_reason) == ("a", "hm", None)
