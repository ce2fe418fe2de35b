"""Completions that were asked with `echo`: what was sampled is what follows the prompt, or is unknown."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions import parse_call
from art_otel.tracing.capture.answer import answer_attributes
from art_otel.tracing.capture.request import parameters
from tests.conventions.builders import call, openinference, span

PROMPT, SAID = "2 + 2 =", " 4"
BEFORE, SAMPLED = [1, 2, 3], [5, 6]
LOGPROBS = [None, -0.25, -0.5, -1.0, -2.0]


def spelled(ids, logprobs):
    return {"tokens": [f"token_id:{number}" for number in ids], "token_logprobs": logprobs, "text_offset": [0]}


def asked(prompt, **more):
    return {"model": "m", "prompt": prompt, "echo": True, **more}


def answered(text, **more):
    return {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": "stop", **more}]}


def told(found):
    """Text, ids and logprobs of the only choice."""
    assert found.cut == ()
    (choice,) = found.choices
    ids, logprobs = choice.token_ids, choice.logprobs
    return (
        choice.message.content,
        None if ids is None else ids.tolist(),
        None if logprobs is None else logprobs.tolist(),
    )


def test_the_text():
    assert told(openinference(asked(PROMPT), answered(PROMPT + SAID))) == (SAID, None, None)
    assert told(openinference(asked([PROMPT]), answered(PROMPT + SAID))) == (SAID, None, None)


@pytest.mark.parametrize("said", ["2+2= 4", ""])
def test_a_text_that_does_not_begin_with_the_prompt_is_unknown(said):
    assert openinference(asked(PROMPT), answered(said)).choices is None


@pytest.mark.parametrize("prompt", [["x", "y"], [1, 2], None])
def test_a_text_after_a_prompt_of_which_the_text_is_unknown_is_unknown(prompt):
    assert openinference(asked(prompt), answered("x, that is")).choices is None


def test_logprobs_of_tokens_that_nobody_spelled_as_ids():
    logprobs = {"tokens": ["2", " 4"], "token_logprobs": [None, -1.0]}
    assert told(openinference(asked(PROMPT), answered(PROMPT + SAID, logprobs=logprobs))) == (SAID, None, None)


def test_tokens_that_are_spelled_as_ids():
    logprobs = spelled(BEFORE + SAMPLED, LOGPROBS)
    expected = (None, SAMPLED, [-1.0, -2.0])
    for prompt in (BEFORE, [BEFORE]):
        assert told(openinference(asked(prompt), answered(PROMPT + SAID, logprobs=logprobs))) == expected
    assert told(openinference(asked(PROMPT), answered(PROMPT + SAID, logprobs=logprobs))) == (SAID, None, None)
    assert openinference(asked([1, 3]), answered(PROMPT + SAID, logprobs=logprobs)).choices is None


@pytest.mark.parametrize("more", [{}, {"return_token_ids": True}])
def test_vllm_leaves_the_prompt_out_where_it_is_asked_for_ids(more):
    body = answered(SAID, token_ids=SAMPLED, prompt_token_ids=BEFORE, logprobs=spelled(BEFORE + SAMPLED, LOGPROBS))
    assert told(openinference(asked(PROMPT, **more), body)) == (SAID, SAMPLED, [-1.0, -2.0])


def test_what_was_sampled_may_repeat_the_prompt():
    body = answered(PROMPT + SAID, token_ids=SAMPLED, prompt_token_ids=BEFORE)
    assert told(openinference(asked(PROMPT, return_token_ids=True), body)) == (PROMPT + SAID, SAMPLED, None)
    assert told(openinference(asked(PROMPT), body)) == (SAID, SAMPLED, None)


def test_ids_that_may_be_the_prompts_are_unknown():
    body = answered(PROMPT + SAID, token_ids=BEFORE + SAMPLED, prompt_token_ids=BEFORE)
    assert told(openinference(asked(PROMPT), body)) == (SAID, None, None)


def test_without_echo_and_in_chat_nothing_is_taken_off():
    request = asked(PROMPT) | {"echo": False}
    assert told(openinference(request, answered(PROMPT + SAID))) == (PROMPT + SAID, None, None)
    chat = {"model": "m", "messages": [{"role": "user", "content": "a"}], "echo": True}
    choice = {"index": 0, "message": {"role": "assistant", "content": "ab"}, "token_ids": SAMPLED}
    assert told(openinference(chat, {"choices": [choice], "prompt_token_ids": BEFORE})) == ("ab", SAMPLED, None)


@pytest.mark.parametrize(
    ("recorded", "content"),
    [
        ({"gen_ai.prompt.0.user": PROMPT, "gen_ai.completion.0.content": PROMPT + SAID}, SAID),
        ({"gen_ai.completion.0.content": PROMPT + SAID}, None),
        ({}, None),
    ],
)
def test_who_captured_the_answer_knows_of_the_echo(recorded, content):
    known = {"llm.request.type": "completion", **recorded}
    request = json.dumps(asked(PROMPT)).encode()
    for ids in ({"token_ids": SAMPLED, "prompt_token_ids": BEFORE}, {}):
        captured = {**parameters(request), **answer_attributes(answered(PROMPT + SAID, **ids))}
        found = call({**known, **captured}, name="openai.completion")
        if not ids and content is None:
            assert found.choices is None
        else:
            assert told(found) == (content, SAMPLED if ids else None, None)


def test_captured_tokens_that_may_be_the_prompts_are_unknown():
    body = answered(PROMPT + SAID, logprobs=spelled(BEFORE + SAMPLED, LOGPROBS))
    request = asked(BEFORE)
    captured = {**parameters(json.dumps(request).encode()), **answer_attributes(body)}
    assert call({"llm.request.type": "completion", **captured}, name="openai.completion").choices is None
    bodies = {"openinference.span.kind": "LLM", "input.value": json.dumps(request), "output.value": json.dumps(body)}
    assert told(call({**bodies, **captured})) == (None, SAMPLED, [-1.0, -2.0])


def test_captured_tokens_of_chat_are_those_that_were_sampled():
    choice = {"index": 0, "message": {"role": "assistant", "content": "ab"}, "token_ids": SAMPLED}
    captured = answer_attributes({"choices": [choice]}) | {"art.request.parameters": '{"echo": true}'}
    assert told(call({"gen_ai.operation.name": "chat", **captured})) == ("ab", SAMPLED, None)


NUMBERS = st.lists(st.integers(0, 3), max_size=4)


@given(
    st.text("ab", max_size=3),
    st.text("ab", max_size=3),
    NUMBERS,
    NUMBERS,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["bodies", "captured", "both"]),
)
def test_nothing_of_the_prompt_passes_for_sampled(prompt, said, before, sampled, as_ids, returns, recorder):
    """As vLLM answers; unknown or what was sampled."""
    request = asked(before if as_ids else prompt, logprobs=1, return_token_ids=returns)
    logprobs = spelled(before + sampled, ([None] + [-1.0] * len(before))[: len(before)] + [-1.0] * len(sampled))
    more = {"token_ids": sampled, "prompt_token_ids": before} if returns else {}
    body = answered(said if returns else prompt + said, logprobs=logprobs, **more)
    bodies = {"openinference.span.kind": "LLM", "input.value": json.dumps(request), "output.value": json.dumps(body)}
    captured = {**parameters(json.dumps(request).encode()), **answer_attributes(body)}
    recorded = {"bodies": bodies, "captured": captured, "both": bodies | captured}[recorder]
    found = parse_call(span({"llm.request.type": "completion", **recorded}, name="openai.completion"))
    for choice in found.choices or ():
        assert choice.message.content in (None, said)
        assert choice.token_ids is None or choice.token_ids.tolist() == sampled
        assert choice.logprobs is None or len(choice.logprobs) == len(sampled)
    if returns:
        assert told(found)[1] == sampled
