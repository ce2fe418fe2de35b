"""What a real vLLM and a real llama.cpp answered once (`record.py`), read as the gateway reads it."""

import json
from typing import Any

import pytest

from art_otel.calls import InferenceCall
from art_otel.conventions import parse_call
from art_otel.conventions.exchanges import whole
from art_otel.exchange.api_dialects import dialect_of
from art_otel.exchange.exchange import Exchange
from art_otel.exchange.token_requests import TokenRequests
from art_otel.model_gateway.addresses import RequestAddress
from art_otel.model_gateway.rollouts import call_span, gateway_resource
from tests.gaps import kinds
from tests.model_servers.record import FOLDER


def read(name: str) -> dict[str, Any]:
    """A recorded exchange."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def recorded_call(name: str) -> InferenceCall:
    """The call of a recorded exchange."""
    return call_of(read(name))


def call_of(kept: dict[str, Any]) -> InferenceCall:
    """The call of an exchange."""
    dialect = dialect_of(kept["path"])
    assert dialect is not None
    exchange = Exchange(dialect, kept["path"], json.dumps(kept["request"]).encode(), 1)
    exchange.begin(200, kept["content_type"].encode())
    exchange.take(kept["answer"].encode())
    span = call_span(exchange, RequestAddress("path", "r"), "http://server", gateway_resource())
    call = parse_call(whole(span))
    assert call is not None
    return call


@pytest.mark.parametrize("name", ["forced", "schema"])
def test_forced_tokens_have_no_log_probability_of_the_policy(name):
    call = recorded_call(name)
    assert call.is_constrained
    (choice,) = call.choices
    assert len(choice.token_ids) == len(choice.logprobs) == call.usage.output_tokens
    assert max(choice.logprobs.tolist()) > -0.1  # where the grammar left few tokens; the random policy gives about -7


def test_an_echo_has_no_completion_of_its_own():
    call = recorded_call("echo")
    assert not call.choices


def test_several_prompts_are_one_call_that_says_so():
    call = recorded_call("prompts")
    assert (len(call.choices), call.prompt_token_ids) == (2, None)
    assert "several prompts" in kinds(call)


@pytest.mark.parametrize("name", ["responses", "responses-stream"])
def test_responses_with_reasoning_have_their_ids(name):
    call = recorded_call(name)
    (choice,) = call.choices
    assert choice.message.reasoning
    assert len(choice.token_ids) == call.usage.output_tokens == 6
    assert len(call.prompt_token_ids) == call.usage.input_tokens
    assert not call.gaps


@pytest.mark.parametrize(
    ("name", "listed", "sampled"), [("llama-exact-stream", 12, 12), ("llama-torn-stream", None, 12)]
)
def test_a_stream_of_llama_cpp_is_counted_unasked(name, listed, sampled):
    """It lists no token that ends inside a character; its `timings` count them all."""
    call = recorded_call(name)
    (choice,) = call.choices
    assert call.usage.output_tokens == sampled
    assert (choice.token_ids and len(choice.token_ids)) == listed
    assert ("miscounted" in kinds(call)) == (listed is None)


def test_a_stream_of_llama_cpp_that_was_left_has_no_ids():
    """Nothing counted them."""
    kept = read("llama-exact-stream")
    left = kept["answer"][: kept["answer"].rindex("data: {")]
    (choice,) = call_of({**kept, "answer": left}).choices
    assert choice.message.content
    assert choice.token_ids is None


def test_llama_cpp_counts_one_of_several_choices():
    call = recorded_call("llama-two")
    assert [choice.token_ids for choice in call.choices] == [None, None]
    assert kinds(call) == ("miscounted",)


def test_llama_cpp_counts_each_choice_of_a_stream():
    call = recorded_call("llama-two-stream")
    assert [len(choice.token_ids) for choice in call.choices] == [3, 3]
    assert call.usage.output_tokens == 6
    assert not call.gaps


def test_completions_of_llama_cpp_keep_the_usage_that_nobody_asked_for():
    kept = read("llama-text-stream")
    request = {"model": "m", "prompt": "Hello", "stream": True}
    exchange = Exchange("completions", kept["path"], b"{}", 1)
    exchange.added = TokenRequests().begin("http://llama", kept["path"], request).additions
    exchange.begin(200, kept["content_type"].encode())
    given = exchange.take(kept["answer"].encode()).decode()
    assert given.count('"usage":{"completion_tokens":6') == kept["answer"].count('"usage":{') == 1
    assert given.count('"logprobs":null') == given.count('"text"')


@pytest.mark.parametrize(("prompt", "ids"), [([5, 6], [5, 6]), ([[5, 6]], [5, 6]), ([[5], [6]], None), ("Hi", None)])
def test_a_prompt_of_ids_is_known_where_the_server_does_not_repeat_it(prompt, ids):
    kept = read("llama-text-stream")
    call = call_of({**kept, "request": {**kept["request"], "prompt": prompt}})
    assert (call.prompt_token_ids and call.prompt_token_ids.tolist()) == ids
