"""What a real vLLM answered once (`record.py`), read as the gateway reads it: G1 to G7 of what such servers showed."""

import json

import pytest

from art_otel.calls import InferenceCall
from art_otel.conventions import parse_call
from art_otel.model_gateway.addresses import Address
from art_otel.model_gateway.call_spans import call_span, gateway_resource
from art_otel.model_gateway.exchanges import Exchange, dialect_of
from tests.gaps import kinds
from tests.model_servers.record import FOLDER


def recorded_call(name: str) -> InferenceCall:
    """The call of a recorded exchange."""
    kept = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    exchange = Exchange(dialect_of("POST", kept["path"]), json.dumps(kept["request"]).encode(), 1)
    exchange.begin(200, kept["content_type"].encode())
    exchange.take(kept["answer"].encode())
    call = parse_call(call_span(exchange, Address("path", "r"), "http://vllm", gateway_resource()))
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
