"""LiteLLM's spans: the request's, and its child that repeats the response body as Python prints it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import ToolCall
from art_otel.conventions import merge_calls, parse_call, role_of
from art_otel.conventions.dialects import litellm
from tests.conventions.builders import call, span
from tests.gaps import unread
from tests.trajectories.recordings import are_one_call

CHOICE = {
    "index": 0,
    "message": {"role": "assistant", "content": "it's a \"b\" {'token_ids': [9]}", "tool_calls": None},
    "finish_reason": "stop",
    "token_ids": [4, 5],
    "logprobs": {"content": [{"token": "x", "logprob": -0.5}, {"token": "y", "logprob": -1.0}]},
}


def body(*choices, provider="hosted_vllm", write=str, **fields):
    """A `raw_gen_ai_request` span."""
    told = {
        "messages": [{"role": "user", "content": "q"}],
        "id": "r",
        "model": "m",
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        "choices": list(choices),
        "prompt_token_ids": [1, 2, 3],
        **fields,
    }
    attributes = {
        f"llm.{provider}.{name}": value if isinstance(value, str) else write(value) for name, value in told.items()
    }
    return span(attributes, name=litellm.RAW_SPAN, kind="internal", scope="litellm")


@pytest.mark.parametrize("write", [str, json.dumps])
@pytest.mark.parametrize("provider", ["hosted_vllm", "openai"])
def test_the_response_body_is_read(provider, write):
    recorded = body(CHOICE, provider=provider, write=write)
    assert role_of(recorded) == "inference"
    found = parse_call(recorded)
    (choice,) = found.choices
    assert (choice.message.content, choice.finish_reason) == (CHOICE["message"]["content"], "stop")
    assert (choice.token_ids.tolist(), choice.logprobs.tolist()) == ([4, 5], [-0.5, -1.0])
    assert found.prompt_token_ids.tolist() == [1, 2, 3]
    assert (found.response_id, found.response_model, found.usage.output_tokens) == ("r", "m", 2)
    assert (found.input_messages, found.conventions, unread(found)) == (None, ("litellm",), ())


def test_ids_beside_the_choices():
    """Agent Lightning's vLLM of before 0.2 writes them there, a list a choice."""
    plain = [{"message": {"content": word}, "index": at} for at, word in enumerate("ab")]
    found = parse_call(body(*plain, response_token_ids=[[4], [5]]))
    assert [choice.token_ids.tolist() for choice in found.choices] == [[4], [5]]
    found = parse_call(body(*plain, response_token_ids=[[4]]))
    assert [choice.token_ids for choice in found.choices] == [None, None]


def test_ids_where_litellm_puts_them_for_its_clients():
    told = {"message": {"content": "a"}, "provider_specific_fields": {"token_ids": [4]}}
    found = call({"output.value": json.dumps({"choices": [told]})})
    assert found.choices[0].token_ids.tolist() == [4]
    found = call({"output.value": json.dumps({"choices": [{**told, "token_ids": [5]}]})})
    assert found.choices[0].token_ids.tolist() == [5]


@pytest.mark.parametrize(
    "choices",
    [
        "[{'message': ",
        "[{'message': {'content': nan}}]",
        "[" * 5_000,
        "[1, " * 150 + "1" + "]" * 150,
        "[{[]: 1}]",
        "[print()]",
        "[-1-'a']",
        "[{'a': 1}] \x00",
        "[0x" + "9" * 5_000 + "]",
        "[" + "9" * 5_000 + "]",
        r"['\d']",
    ],
)
def test_what_cannot_be_read_is_unknown_and_named(choices):
    found = parse_call(body(choices=choices))
    assert found.choices is None
    assert unread(found) == ("llm.hosted_vllm.choices",)
    assert found.prompt_token_ids.tolist() == [1, 2, 3]


@given(st.text() | st.recursive(st.none() | st.integers() | st.text() | st.floats(), st.lists).map(str))
def test_no_text_raises(choices):
    parse_call(body(choices=choices, usage=choices, prompt_token_ids=choices))


def test_text_that_no_writer_takes_is_replaced():
    found = parse_call(body({"message": {"content": "\ud800"}}))
    assert found.choices[0].message.content == "\ufffd"


def test_a_span_without_a_response_is_no_call():
    attributes = {"llm.hosted_vllm.messages": "[]", "llm.hosted_vllm.id": "r", "llm.a.b.choices": "[]"}
    assert role_of(span(attributes, name=litellm.RAW_SPAN, kind="internal")) == "other"
    found = call({"llm.hosted_vllm.choices": "[]"}, name="chat")
    assert "litellm" not in found.conventions


REQUEST = {
    "gen_ai.request.model": "m",
    "gen_ai.response.id": "r",
    "gen_ai.operation.name": "acompletion",
    "llm.request.type": "acompletion",
    "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "q"}]}]',
    "gen_ai.output.messages": '[{"role": "assistant", "parts": [], "finish_reason": "tool_calls"}]',
    "gen_ai.completion.0.function_call.name": "f",
    "gen_ai.completion.0.function_call.arguments": "{}",
    "gen_ai.completion.1.function_call.name": "g",
    "gen_ai.completion.1.function_call.arguments": '{"a": 1}',
}
CALLS = (ToolCall(name="f", arguments="{}"), ToolCall(name="g", arguments='{"a": 1}'))


def request(attributes=REQUEST):
    return span(attributes, name="litellm_request", kind="internal", scope="litellm")


def test_the_requests_span():
    """Its tool calls are spread over as many completions as there are calls."""
    assert role_of(request()) == "inference"
    found = parse_call(request())
    (choice,) = found.choices
    assert (found.operation_name, choice.finish_reason) == ("chat", "tool_calls")
    assert choice.message.tool_calls == CALLS
    without = {name: value for name, value in REQUEST.items() if name != "gen_ai.output.messages"}
    (choice,) = parse_call(request(without)).choices
    assert choice.message.tool_calls == CALLS


def test_of_several_choices_nobody_knows_whose_the_tool_calls_are():
    two = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": word}]} for word in "ab"])
    found = parse_call(request(REQUEST | {"gen_ai.output.messages": two}))
    assert [(choice.message.content, choice.message.tool_calls) for choice in found.choices] == [("a", ()), ("b", ())]


def test_both_are_one_call_with_the_ids_of_tool_calls():
    made = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in (("f", "{}"), ("g", '{"a": 1}'))
    ]
    message = {"role": "assistant", "content": None, "tool_calls": made}
    inner = body({**CHOICE, "message": message, "finish_reason": "tool_calls"})
    calls = [parse_call(request()), parse_call(inner)]
    assert are_one_call(request(), inner)
    found = merge_calls(calls)
    (choice,) = found.choices
    assert [call.id for call in choice.message.tool_calls] == ["f", "g"]
    assert choice.token_ids.tolist() == [4, 5]
    assert found.input_messages[0].content == "q"


@pytest.mark.parametrize(
    ("word", "role"),
    [
        ("acompletion", "inference"),
        ("atext_completion", "inference"),
        ("aresponses", "inference"),
        ("anthropic_messages", "inference"),
        ("aembedding", "embeddings"),
        ("acreate_file", "other"),
    ],
)
def test_its_methods_are_operations(word, role):
    assert role_of(request({"gen_ai.operation.name": word})) == role
    assert role_of(request({"llm.request.type": word})) == role


def response(output, **fields):
    """A `raw_gen_ai_request` span of the Responses API, whose provider LiteLLM does not know."""
    told = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": output, **fields}
    attributes = {f"llm.None.{name}": value if isinstance(value, str) else str(value) for name, value in told.items()}
    return span(attributes, name=litellm.RAW_SPAN, kind="internal", scope="litellm")


def test_a_response_of_the_responses_api_is_one_choice():
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        *({"type": "function_call", "call_id": f"c{n}", "name": "look", "arguments": "{}"} for n in (1, 2)),
    ]
    recorded = response(items, tools=[{"type": "function", "name": "look", "parameters": {}}])
    found = parse_call(recorded)
    (choice,) = found.choices
    assert (choice.message.content, choice.message.reasoning, choice.finish_reason) == ("a", "hm", "tool_calls")
    assert [tool.id for tool in choice.message.tool_calls] == ["c1", "c2"]
    assert (role_of(recorded), len(found.tools), unread(found)) == ("inference", 1, ())
    assert found.response_id is None  # LiteLLM gives its client another one, which is on the request's span


def test_another_apis_output_is_no_response():
    assert role_of(response({"message": {"role": "assistant"}}, object="")) == "other"
