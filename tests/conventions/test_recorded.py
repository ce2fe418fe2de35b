"""Each scenario gives the same completions whoever recorded it, up to what is known to be lost."""

import json
from collections import Counter

import pytest

from art_otel.conventions import role_of
from tests.conventions.recorded import MODES, calls, spans
from tests.gaps import unread

SCENARIOS = (
    "sync_tools",
    "async_tools",
    "stream_sync",
    "n2",
    "parse",
    "responses_api",
    "error_retry",
    "raw_response",
    "long100",
)
NOT_INSTRUMENTED = {
    ("otelv2_span", "parse"): 2,
    ("otelv2_legacy", "parse"): 2,
    ("otelv2_span", "responses_api"): 9,
    ("otelv2_legacy", "responses_api"): 9,
}
"""How many calls, counted from the first, the instrumentor does not see at all."""

NO_COMPLETION = {("traceloop", "raw_response"): {1}}
"""Calls whose completion the instrumentor loses: a raw response whose stream it does not wrap."""

NO_REASONING = {"genai_span", "genai_event", "otelv2_span", "otelv2_legacy"}
NO_TOOL_CALL_ID = {("traceloop", "responses_api")}
"""It writes the item's id in place of the call's id."""

NO_BODIES = {("openinference", "long100"): {0, 2, 3, 4}}
"""The SDK dropped the oldest attributes, the bodies among them."""


def completion(choice):
    message = choice.message
    tool_calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return (choice.index, choice.finish_reason, message.role, message.content, message.refusal, tool_calls)


def completions(call):
    return None if call.choices is None else [completion(choice) for choice in call.choices]


def without_ids(found):
    return found and [(*rest, [(name, arguments) for _, name, arguments in calls]) for *rest, calls in found]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", MODES)
def test_completions_are_equal_across_instrumentors(mode, scenario):
    expected = [completions(call) for call in calls("openinference", scenario)]
    expected = expected[NOT_INSTRUMENTED.get((mode, scenario), 0) :]
    for position in NO_COMPLETION.get((mode, scenario), ()):
        expected[position] = None
    found = [completions(call) for call in calls(mode, scenario)]
    if (mode, scenario) in NO_TOOL_CALL_ID:
        expected, found = list(map(without_ids, expected)), list(map(without_ids, found))
    assert found == expected


NO_PROMPT = {("openinference", "long100"): {0, 2, 3, 4}, ("traceloop", "responses_api"): {8}}
"""Calls whose prompt is lost: dropped attributes, and a stream of the Responses API that failed."""


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "openinference"])
def test_prompts_are_equal_across_instrumentors(mode, scenario):
    expected = calls("openinference", scenario)[NOT_INSTRUMENTED.get((mode, scenario), 0) :]
    found = calls(mode, scenario)
    assert len(found) == len(expected)
    for position, (one, other) in enumerate(zip(found, expected, strict=True)):
        if position in NO_PROMPT.get((mode, scenario), ()):
            assert one.input_messages is None
        elif position not in NO_PROMPT.get(("openinference", scenario), ()):
            with_ids = (mode, scenario) not in NO_TOOL_CALL_ID
            assert asked(one, with_ids=with_ids) == asked(other, with_ids=with_ids)


def asked(call, *, with_ids):
    """What the prompt says, up to names and reasoning."""
    if with_ids:
        return [message.identity for message in call.input_messages]
    return [(message.role, message.content, len(message.tool_calls)) for message in call.input_messages]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", MODES)
def test_reasoning_is_kept_where_it_was_recorded(mode, scenario):
    expected = calls("openinference", scenario)[NOT_INSTRUMENTED.get((mode, scenario), 0) :]
    for position, (one, other) in enumerate(zip(calls(mode, scenario), expected, strict=True)):
        if position in NO_BODIES.get(("openinference", scenario), ()):
            continue
        for choice, exact in zip(one.choices or (), other.choices or (), strict=False):
            assert choice.message.reasoning == (None if mode in NO_REASONING else exact.message.reasoning)


@pytest.mark.parametrize("scenario", ["sync_tools", "stream_sync", "n2", "parse", "raw_response", "async_tools"])
def test_openinference_has_ids_and_logprobs_and_exact_arguments(scenario):
    for call in calls("openinference", scenario):
        assert call.prompt_token_ids
        assert len(call.prompt_token_ids) == (call.usage.input_tokens if call.usage else len(call.prompt_token_ids))
        for choice in call.choices:
            assert len(choice.token_ids) == len(choice.logprobs) > 0
            assert all(tool_call.exact for tool_call in choice.message.tool_calls)


def test_exact_values_of_one_call():
    call = calls("openinference", "sync_tools")[0]
    assert call.prompt_token_ids.tolist()[:2] == [32016, 19125]
    assert call.choices[0].token_ids.tolist()[:2] == [21576, 2123]
    assert call.choices[0].logprobs.tolist()[:2] == pytest.approx([-0.01, -0.02])
    assert [message.role for message in call.input_messages] == ["system", "user"]
    assert call.input_messages[1].name == "alice"
    assert call.tools[0]["function"]["strict"] is True
    assert call.parameters["temperature"] == 0.7
    assert call.parameters["stop"] == ["</end>"]
    assert not {"model", "messages", "tools", "input", "stream"} & set(call.parameters)
    assert (call.provider, call.request_model, call.response_id) == ("openai", "Qwen/Qwen3-8B", "chatcmpl-b696c4cc42a1")
    assert (call.usage.input_tokens, call.usage.output_tokens, call.usage.total_tokens) == (41, 19, 60)
    assert (call.usage.cached_tokens, call.usage.reasoning_tokens) == (3, 5)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "openinference"])
def test_parameters_and_usage_use_the_request_words(mode):
    call = calls(mode, "sync_tools")[0]
    assert {"temperature": 0.7, "top_p": 0.95, "max_tokens": 256}.items() <= call.parameters.items()
    assert call.parameters.get("stop") == (None if mode == "traceloop" else ["</end>"])
    assert (call.usage.input_tokens, call.usage.output_tokens) == (41, 19)
    assert calls(mode, "n2")[0].parameters.get("n") == (None if mode == "traceloop" else 2)


@pytest.mark.parametrize("mode", ["traceloop", "genai_span", "genai_event"])
def test_tools_have_one_form(mode):
    exact = calls("openinference", "sync_tools")[0].tools
    function = {name: value for name, value in exact[0]["function"].items() if name != "strict"}
    assert calls(mode, "sync_tools")[0].tools == ({"type": "function", "function": function},)


def test_tools_are_unknown_unless_the_request_says_there_were_none():
    assert calls("openinference", "parse")[0].tools == ()
    assert calls("traceloop", "parse")[0].tools is None


@pytest.mark.parametrize("mode", MODES)
def test_five_of_six_calls_fail_and_say_why(mode):
    found = calls(mode, "error_retry")
    assert [call.failed for call in found] == [True, False, True, True, True, True]
    assert [call.error_type.removeprefix("openai.") for call in found if call.failed] == [
        "BadRequestError",
        "InternalServerError",
        "APIConnectionError",
        "BadRequestError",
        "InternalServerError",
    ]
    assert "maximum context length exceeded" in found[0].error
    assert all(call.choices is None for call in found if call.failed)


@pytest.mark.parametrize("mode", MODES)
def test_embeddings_are_no_calls(mode):
    assert Counter(map(role_of, spans(mode, "embeddings"))) == {"embeddings": 1, "other": 1}


@pytest.mark.parametrize("mode", ["openinference", "traceloop", "genai_span", "genai_event"])
def test_fetching_a_response_is_no_call(mode):
    assert Counter(map(role_of, spans(mode, "responses_api"))) == {"inference": 9, "retrieval": 1, "other": 1}


@pytest.mark.parametrize("mode", MODES)
def test_tools_are_tools(mode):
    assert Counter(map(role_of, spans(mode, "sync_tools"))) == {"inference": 2, "tool": 2, "other": 1}


@pytest.mark.parametrize("mode", ["openinference", "genai_span", "genai_event"])
def test_items_of_the_responses_api_are_one_assistant_message(mode):
    """Traceloop drops the reasoning item, so its message has the tool call only."""
    prompt = calls(mode, "responses_api")[1].input_messages
    assert [message.role for message in prompt] == ["system", "user", "assistant", "tool"]
    assert prompt[2].reasoning == "Short reasoning summary."
    assert prompt[2].tool_calls[0].id == prompt[3].tool_call_id == "call_r1"


def test_previous_response_id_is_kept():
    assert [call.previous_response_id for call in calls("openinference", "responses_api")] == [
        None,
        None,
        "resp_9505cbd2ee17",
        *[None] * 6,
    ]


@pytest.mark.parametrize("mode", MODES)
def test_long_conversations(mode):
    whole = {0: 402, 1: 22, 2: 42, 3: 82, 4: 202}
    for position, call in enumerate(calls(mode, "long100")):
        if position in NO_BODIES.get((mode, "long100"), ()):
            assert call.input_messages is None
            assert unread(call) == ("llm.input_messages",)
            assert int(call.gaps[-1].evidence.removesuffix(" attributes")) in (1004, 14, 124, 454)
        else:
            assert len(call.input_messages) == whole[position]
            assert call.gaps == ()


def test_the_history_of_a_call_repeats_its_predecessor():
    """The same Message objects, not only equal ones: a repeated message is parsed once."""
    first, second = calls("genai_span", "sync_tools")
    assert second.input_messages[:2] == first.input_messages
    assert second.input_messages[0] is first.input_messages[0]
    assert second.input_messages[2].identity == first.choices[0].message.identity


def test_streams_are_known_as_streams():
    assert [call.stream for call in calls("openinference", "stream_sync")] == [True, True]
    assert [call.stream for call in calls("traceloop", "stream_sync")] == [True, True]
    assert [call.stream for call in calls("genai_span", "stream_sync")] == [True, True]
