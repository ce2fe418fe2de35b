"""How a request asked to sample is known in the words of every API, and of which distribution logprobs are."""

import json
import math
from pathlib import Path

import pytest
from msgspec import structs

from art_otel.calls import InferenceCall
from art_otel.sampling import Sampling, read_sampling
from art_otel.spans import Resource
from tests.conventions.builders import call, genai, openinference

RECORDED = Path(__file__).parents[1] / "model_servers" / "recorded"

VLLM = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {}),
        (VLLM, VLLM),
        ({"extra_body": VLLM}, VLLM),
        ({"presence_penalty": 0.5, "frequency_penalty": -0.5}, {"presence_penalty": 0.5, "frequency_penalty": -0.5}),
        (
            {"generationConfig": {"temperature": 1, "topP": 0.9, "topK": 40}},
            {"temperature": 1, "top_p": 0.9, "top_k": 40},
        ),
        ({"inferenceConfig": {"temperature": 0.5, "topP": 0.7}}, {"temperature": 0.5, "top_p": 0.7}),
        ({"sampling_params": {"min_new_tokens": 3}}, {"min_tokens": 3}),
        ({"options": {"repeat_penalty": 1.1, "top_k": 40.0}}, {"repetition_penalty": 1.1, "top_k": 40}),
        ({"temperature": "0.7", "top_p": True, "top_k": "many", "min_p": math.nan}, {"temperature": 0.7}),
        ({"temperature": None, "bad_words": "no list", "logit_bias": "no"}, {}),
        ({"logit_bias": {"5": -100}, "bad_words": ["no"]}, {"logit_bias": {"5": -100.0}, "bad_words": ("no",)}),
        ({"logit_bias": [[5, False], [6, 1.5]]}, {"logit_bias": {"5": -math.inf, "6": 1.5}}),  # llama.cpp
        ({"allowed_token_ids": [65, 66], "min_tokens": 4}, {"allowed_token_ids": (65, 66), "min_tokens": 4}),
    ],
)
def test_parameters_of_every_api(parameters, expected):
    assert read_sampling(parameters) == Sampling(**expected)


def test_parameters_of_spans():
    of_genai = genai(attributes={"gen_ai.request.temperature": 0.3, "gen_ai.request.top_k": 40.0})
    assert (of_genai.sampling.temperature, of_genai.sampling.top_k) == (0.3, 40)
    of_openllmetry = call({"gen_ai.request.model": "m", "llm.request.type": "chat", "gen_ai.request.top_p": 0.4})
    assert of_openllmetry.sampling.top_p == 0.4
    of_body = openinference({"model": "m", "messages": [], "temperature": 0.2, "min_p": 0.1})
    assert (of_body.sampling.temperature, of_body.sampling.min_p) == (0.2, 0.1)
    live = call({"art.request.parameters": json.dumps({"model": "m", "temperature": 0.9, "bad_words": ["x"]})})
    assert (live.sampling.temperature, live.sampling.bad_words) == (0.9, ("x",))


def mlflow(request):
    return call({"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": json.dumps(request)}, kind="internal")


def openinference_parameters(request):
    kind = {"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user"}
    return call({**kind, "llm.invocation_parameters": json.dumps(request)}, kind="internal")


def langfuse_input(request):
    kind = {"langfuse.observation.type": "generation"}
    return call({**kind, "langfuse.observation.input": json.dumps(request)}, kind="internal")


def langfuse_parameters(request):
    kind = {"langfuse.observation.type": "generation"}
    return call({**kind, "langfuse.observation.model.parameters": json.dumps(request)}, kind="internal")


def genai_parameters(request):
    texts = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in request.items()}
    return genai(attributes={f"gen_ai.request.{name}": value for name, value in texts.items()})


@pytest.mark.parametrize(
    "recorded",
    [mlflow, openinference, openinference_parameters, langfuse_input, langfuse_parameters, genai_parameters],
)
def test_a_clients_extra_body_is_a_part_of_the_body(recorded):
    """As openai's client merges it: it counts more than what stands beside it."""
    extra = {"guided_choice": ["yes", "no"], "continue_final_message": True, "temperature": 0.7}
    plain = {"model": "m", "messages": [{"role": "user", "content": "q"}], "seed": 3}
    nested, sent = recorded({**plain, "temperature": 1.0, "extra_body": extra}), recorded({**plain, **extra})
    assert nested == sent
    assert nested.is_constrained
    assert nested.parameters["continue_final_message"] is True
    assert (nested.parameters["seed"], nested.sampling.temperature) == (3, 0.7)
    assert "extra_body" not in nested.parameters
    assert recorded({**plain, "extra_body": None}).parameters == recorded(plain).parameters


@pytest.mark.parametrize("recorded", [mlflow, openinference, langfuse_input])
def test_tools_of_an_extra_body_are_the_requests(recorded):
    tools = [{"type": "function", "function": {"name": "look"}}]
    plain = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    assert recorded({**plain, "extra_body": {"tools": tools}}).tools == tuple(tools)


@pytest.mark.parametrize(
    ("altered", "as_it_is"),
    [
        ({"temperature": 0.7}, {"temperature": 1}),
        ({"top_p": 0.9}, {"top_p": 1.0}),
        ({"top_k": 20}, {"top_k": -1}),
        ({"min_p": 0.05}, {"min_p": 0}),
        ({"repetition_penalty": 1.1}, {"repetition_penalty": 1.0}),
        ({"presence_penalty": 1.0}, {"presence_penalty": 0.0}),
        ({"logit_bias": {"1": 2}}, {"logit_bias": {}}),
        ({"allowed_token_ids": [1]}, {}),
        ({"min_tokens": 2}, {"min_tokens": 0, "bad_words": []}),
    ],
)
def test_what_alters_the_distribution(altered, as_it_is):
    assert read_sampling(altered).is_altered
    assert not read_sampling(as_it_is).is_altered


def answered(choice, **fields) -> InferenceCall:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a"}, **choice}
    return openinference({"model": "m", "messages": []}, {"id": "r", "choices": [choice], **fields})


LOGPROBS = {"content": [{"token": "a", "logprob": -1.0}]}


@pytest.mark.parametrize(
    ("answer", "mode"),
    [
        ({"stop_reason": None, "token_ids": [1], "logprobs": LOGPROBS}, "raw"),
        ({"logprobs": {"content": [{"token": "token_id:5", "logprob": -1.0}]}}, "raw"),
        ({"provider_specific_fields": {"token_ids": [1]}, "logprobs": LOGPROBS}, "raw"),
        ({"matched_stop": 2, "response_token_ids": [1], "logprobs": LOGPROBS}, "tempered"),
        (
            {"logprobs": {"content": [{"token": "a", "token_id": 1, "logprob": -1.0, "sampling_logprob": -0.5}]}},
            "processed",
        ),
        ({"logprobs": LOGPROBS}, None),
        ({"stop_reason": None, "token_ids": [1]}, None),  # it has none
    ],
)
def test_servers_are_known_by_what_only_they_answer(answer, mode):
    assert answered(answer).logprobs_mode == mode


def test_recorded_llama_gives_raw_logprobs():
    exchange = json.loads((RECORDED / "llama-two.json").read_text())
    answer = json.loads(exchange["answer"])
    first = {**answer, "choices": answer["choices"][:1]}
    assert openinference(exchange["request"], first).logprobs_mode == "raw"


def test_who_starts_the_server_otherwise_says_so_in_the_resource():
    on_span = {"gen_ai.operation.name": "chat", "art.logprobs.mode": "raw"}
    assert call(on_span).logprobs_mode == "raw"
    processed = Resource(attributes={"art.logprobs.mode": "processed"})
    assert call(on_span, resource=processed).logprobs_mode == "processed"
    assert call({**on_span, "art.logprobs.mode": "cooked"}).logprobs_mode is None


def test_logprobs_are_masked_by_a_grammar_and_by_what_forces_tokens_before_they_are_taken():
    forced = call({"art.request.parameters": json.dumps({"model": "m", "allowed_token_ids": [65]})})
    assert forced.is_constrained
    assert forced.has_masked_logprobs
    assert not structs.replace(forced, logprobs_mode="raw").has_masked_logprobs  # vLLM's are the policy's own
    assert structs.replace(forced, logprobs_mode="tempered").has_masked_logprobs
    grammar = call({"art.request.parameters": json.dumps({"model": "m", "tool_choice": "required"})})
    assert structs.replace(grammar, logprobs_mode="raw").has_masked_logprobs
