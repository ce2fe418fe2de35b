"""Completions that were asked with `echo`: their choices begin with the prompt, so what was sampled is unknown."""

import json

import pytest

from art_otel.conventions.exchanges import answer_attributes, parameters
from art_otel.conventions.values import raw_fields
from tests.conventions.builders import call, openinference

PROMPT, IDS = "2 + 2 =", [1, 2, 3]
REQUEST = {"model": "m", "prompt": PROMPT, "echo": True}
CHOICE = {"index": 0, "text": f"{PROMPT} 4", "finish_reason": "stop", "token_ids": [5, 6], "prompt_token_ids": IDS}
RESPONSE = {"object": "text_completion", "choices": [CHOICE]}


@pytest.mark.parametrize("prompt", [PROMPT, [PROMPT], IDS, ["x", "y"]])
def test_the_completion_is_unknown(prompt):
    found = openinference(REQUEST | {"prompt": prompt}, RESPONSE)
    assert found.choices is None
    assert found.prompt_token_ids.tolist() == IDS


@pytest.mark.parametrize(
    "recorded", [{}, {"gen_ai.prompt.0.user": PROMPT, "gen_ai.completion.0.content": f"{PROMPT} 4"}]
)
def test_a_captured_completion_is_unknown(recorded):
    captured = {**parameters(raw_fields(json.dumps(REQUEST).encode())), **answer_attributes(RESPONSE)}
    found = call({"llm.request.type": "completion", **recorded, **captured}, name="openai.completion")
    assert found.choices is None
    assert found.prompt_token_ids.tolist() == IDS


def test_without_echo_and_in_chat_the_completion_is_known():
    (choice,) = openinference(REQUEST | {"echo": False}, RESPONSE).choices
    assert (choice.message.content, choice.token_ids.tolist()) == (f"{PROMPT} 4", [5, 6])
    chat = {"model": "m", "messages": [{"role": "user", "content": "a"}], "echo": True}
    answer = {"index": 0, "message": {"role": "assistant", "content": "ab"}, "token_ids": [5, 6]}
    (choice,) = openinference(chat, {"choices": [answer]}).choices
    assert (choice.message.content, choice.token_ids.tolist()) == ("ab", [5, 6])
    captured = answer_attributes({"choices": [answer]}) | {"art.request.parameters": '{"echo": true}'}
    (choice,) = call({"gen_ai.operation.name": "chat", **captured}).choices
    assert (choice.message.content, choice.token_ids.tolist()) == ("ab", [5, 6])
