"""Request and response bodies of several APIs, as OpenInference keeps them."""

import json

import pytest

from art_otel.calls import Message, Usage
from tests.conventions.builders import call, genai, openinference
from tests.gaps import kinds, unread

ASKED = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
ANTHROPIC_REQUEST = {
    "model": "claude",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "be kind"}],
    "messages": [{"role": "user", "content": "q"}],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
}
ANTHROPIC_RESPONSE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 5, "output_tokens": 6, "cache_read_input_tokens": 2},
}


def test_anthropic():
    found = openinference(ANTHROPIC_REQUEST, ANTHROPIC_RESPONSE)
    assert [(message.role, message.content) for message in found.input_messages] == [
        ("system", "be kind"),
        ("user", "q"),
    ]
    (choice,) = found.choices
    assert (choice.message.reasoning, choice.message.content, choice.finish_reason) == ("hm", "a", "tool_calls")
    assert choice.message.tool_calls[0].arguments == '{"x": 1}'
    assert not choice.message.tool_calls[0].exact
    assert found.tools[0]["function"]["parameters"] == {"type": "object"}
    assert found.parameters == {"max_tokens": 64}
    assert found.usage == Usage(input_tokens=7, output_tokens=6, cached_tokens=2)  # Anthropic counts them apart


def test_langchains_own_serialisation_falls_back_on_the_flattened_messages():
    serialised = {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "q"}}
    attributes = {
        "openinference.span.kind": "LLM",
        "input.value": json.dumps({"messages": [[serialised]]}),
        "output.value": json.dumps({"generations": [[{"text": "a"}]]}),
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "q",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "a",
        "llm.invocation_parameters": json.dumps({"model": "m", "tools": [{"name": "f", "parameters": {}}], "seed": 1}),
        "llm.provider": "openai",
        "llm.finish_reason": "stop",
    }
    found = call(attributes, kind="internal")
    assert found.input_messages == (Message(role="user", content="q"),)
    assert (found.choices[0].message.content, found.choices[0].finish_reason) == ("a", "stop")
    assert (found.request_model, found.provider, found.parameters) == ("m", "openai", {"seed": 1})
    assert found.tools[0]["function"]["name"] == "f"
    assert unread(found) == ()


@pytest.mark.parametrize(
    ("result", "response_id"),
    [
        (
            {
                "generations": [[{"message": {"lc": 1, "kwargs": {"response_metadata": {"id": "r1"}}}}]],
                "llm_output": None,
            },
            "r1",
        ),
        ({"generations": [[{"text": "a"}]], "llm_output": {"id": "r1"}}, "r1"),
        ({"generations": [[{"message": {"lc": 1, "kwargs": {"id": "lc_run--1", "response_metadata": {}}}}]]}, None),
        ({"generations": [[{"text": "a"}], [{"text": "b"}]], "llm_output": {"id": "the last one's"}}, None),
        ({"generations": "none", "llm_output": 1}, None),
    ],
)
def test_the_response_id_in_langchains_result(result, response_id):
    known = {"openinference.span.kind": "LLM", "llm.model_name": "m", "output.value": json.dumps(result)}
    found = call(known, kind="internal")
    assert (found.response_id, unread(found)) == (response_id, ())


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ({}, None),
        ({"finish_reason": "stop"}, "stop"),
        ({"stop_reason": "end_turn"}, "stop"),
        ({"stopReason": "end_turn"}, "stop"),
        ({"status": "completed"}, "stop"),
    ],
)
@pytest.mark.parametrize(("kind", "stream"), [("AIMessageChunk", True), ("ai", None)])
def test_a_message_of_chunks_is_a_streams_in_langchains_result(kind, stream, ended, reason):
    fields = {"content": "a", "type": kind, "response_metadata": {"model_provider": "p", **ended}}
    message = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}
    result = {"generations": [[{"text": "a", "message": message}]]}
    found = call({"openinference.span.kind": "LLM", "output.value": json.dumps(result)}, kind="internal")
    assert (found.stream, found.choices[0].finish_reason) == (stream, reason)


def test_a_cut_body_falls_back_and_is_named():
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "q"}]})
    attributes = {
        "openinference.span.kind": "LLM",
        "input.value": body[:-4],
        "input.mime_type": "application/json",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "q",
    }
    found = call(attributes)
    assert found.input_messages == (Message(role="user", content="q"),)
    assert unread(found) == ("input.value",)


def test_bodies_that_are_plain_text_are_not_cut():
    found = call({"openinference.span.kind": "LLM", "input.value": "hello", "output.value": "world"})
    assert (found.input_messages, found.choices, unread(found)) == (None, None, ())


@pytest.mark.parametrize("text", ["[1] is the first footnote", "[[ ## answer ## ]]", '{"a": 1} and so on'])
def test_an_answer_that_begins_as_json_is_text_unless_it_is_said_to_be_json(text):
    attributes = {
        "openinference.span.kind": "LLM",
        "input.value": text,
        "output.value": text,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": text,
    }
    found = call(attributes)
    assert (found.choices[0].message.content, unread(found)) == (text, ())
    types = {"input.mime_type": "application/json", "output.mime_type": "application/json"}
    assert unread(call({**attributes, **types})) == ("input.value", "output.value")


def test_several_choices_and_choices_without_an_index():
    choices = [{"message": {"role": "assistant", "content": text}} for text in "ab"]
    found = openinference({"model": "m", "messages": []}, {"choices": choices})
    assert [(choice.index, choice.message.content) for choice in found.choices] == [(0, "a"), (1, "b")]
    swapped = [{**choices[0], "index": 1}, {**choices[1], "index": 0}]
    found = openinference({"model": "m", "messages": []}, {"choices": swapped})
    assert [(choice.index, choice.message.content) for choice in found.choices] == [(0, "b"), (1, "a")]
    same = [{**choice, "index": 0} for choice in choices]
    found = openinference({"model": "m", "messages": []}, {"choices": same})
    assert [(choice.index, choice.message.content) for choice in found.choices] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("choices", [5, [5], "x", [{"message": 5}]])
def test_choices_that_are_none_are_unknown(choices):
    found = openinference({"model": "m", "messages": []}, {"choices": choices})
    assert (found.choices, unread(found)) == (None, ("output.value",))


def test_completions_with_one_prompt():
    found = openinference(
        {"model": "m", "prompt": "Once", "max_tokens": 3}, {"choices": [{"index": 0, "text": " upon"}]}
    )
    assert found.input_messages == (Message(role="user", content="Once"),)
    assert found.choices[0].message == Message(role="assistant", content=" upon")
    assert found.parameters == {"max_tokens": 3}
    assert openinference({"model": "m", "prompt": ["Once"]}).input_messages == found.input_messages


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
def test_completions_whose_prompt_is_ids(prompt):
    found = openinference({"model": "m", "prompt": prompt})
    assert (found.input_messages, found.prompt_token_ids.tolist()) == (None, [1, 2])


def test_completions_with_several_prompts_of_ids_have_no_one_prompt():
    assert openinference({"model": "m", "prompt": [[1], [2]]}).prompt_token_ids is None


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": "completed"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete"}, None),
        ({"status": "failed"}, None),
        ({}, None),
    ],
)
def test_finish_reasons_of_responses(response, reason):
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]
    found = openinference({"model": "m", "input": "q"}, {"id": "r", "output": output, **response})
    assert found.choices[0].finish_reason == reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),  # which may be whole, where what a filter cut is not
    ],
)
def test_finish_reasons_of_anthropic_are_words_of_openai(said, reason):
    message = {**ANTHROPIC_RESPONSE, "content": [{"type": "text", "text": "a"}], "stop_reason": said}
    assert openinference(ANTHROPIC_REQUEST, message).choices[0].finish_reason == reason


@pytest.mark.parametrize(
    ("response_id", "recorded", "reason"),
    [("resp_1", "stop", "tool_calls"), ("resp_1", "length", "length"), ("chatcmpl-1", "stop", "stop")],
)
def test_tool_calls_decide_what_a_recorder_made_of_a_response_s_status(response_id, recorded, reason):
    called = {"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}
    for parts, expected in (([called], reason), ([{"type": "text", "content": "a"}], recorded)):
        message = {"role": "assistant", "parts": parts, "finish_reason": recorded}
        found = genai(None, [message], {"gen_ai.response.id": response_id})
        assert [choice.finish_reason for choice in found.choices] == [expected]


@pytest.mark.parametrize("status", [{}, {"status": "completed"}])
def test_a_response_without_items_has_no_choice(status):
    assert openinference({"model": "m", "input": "q"}, {"output": [], **status}).choices == ()


def test_functions_of_a_namespace_have_the_names_that_the_model_reads():
    look = {"type": "function", "name": "look", "description": None, "parameters": {"type": "object"}}
    called = {"type": "function_call", "namespace": "agents", "name": "look", "call_id": "c", "arguments": "{}"}
    namespace = {"type": "namespace", "name": "agents", "tools": [look]}
    found = openinference({"model": "m", "input": "q", "tools": [namespace]}, {"output": [called]})
    (tool,) = found.tools
    (call,) = found.choices[0].message.tool_calls
    assert tool["function"]["name"] == call.name == "agents__look"


def test_a_refusal_and_the_developer_role():
    request = {"model": "m", "messages": [{"role": "developer", "content": "d"}], "functions": [{"name": "f"}]}
    found = openinference(request, {"choices": [{"message": {"role": "assistant", "content": None, "refusal": "no"}}]})
    assert found.input_messages == (Message(role="developer", content="d"),)
    assert found.choices[0].message == Message(role="assistant", refusal="no")
    assert found.tools == ({"type": "function", "function": {"name": "f"}},)


def test_parameters_that_are_null_were_not_given():
    assert openinference({"model": "m", "messages": [], "seed": None, "tools": None}).parameters == {}
    assert openinference({"model": "m", "messages": [], "tools": None}).tools == ()


def test_calls_with_the_same_tools_share_one_text():
    first, second = (openinference({"model": "m", "messages": [], "tools": [{"name": "f"}], "n": n}) for n in (1, 2))
    assert first.tools.json is second.tools.json
    assert first.tools == ({"type": "function", "function": {"name": "f"}},)


def test_tools_of_a_body_that_cannot_be_read_are_unknown():
    found = openinference({"model": "m", "messages": [], "tools": [5]})
    assert (found.tools, unread(found)) == (None, ("input.value",))


def test_parameters_nested_too_deep_are_unknown():
    deep = json.loads("[" * 100 + "]" * 100)
    found = openinference({"model": "m", "messages": [], "x": deep, "seed": 1})
    assert (found.parameters, unread(found)) == ({"seed": 1}, ("input.value",))


def test_instructions_that_are_no_content_are_left_out():
    found = openinference({"model": "m", "input": "q", "instructions": [5]})
    assert found.input_messages == (Message(role="user", content="q"),)


def test_a_partial_output_of_a_failed_call_is_kept():
    request = {"model": "m", "messages": []}
    response = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "par"}}]}
    found = openinference(request, response, status="error", status_message="dropped")
    assert (found.failed, found.error, found.choices[0].message.content) == (True, "dropped", "par")


def test_choices_that_say_nothing_are_none_beside_others():
    said = {"index": 2, "message": {"role": "assistant", "content": "a"}}
    found = openinference(ASKED, {"choices": [{}, {"index": 1, "message": None}, said]})
    assert [(choice.index, choice.message.content) for choice in found.choices] == [(2, "a")]
    alone = openinference(ASKED, {"choices": [{}, {}]})
    assert [(choice.index, choice.message.content) for choice in alone.choices] == [(0, None)]


@pytest.mark.long
def test_more_choices_or_parts_than_there_can_be_are_not_read():
    many = 1 << 16
    choice = {"message": {"role": "assistant", "content": "a"}}
    found = openinference(ASKED, {"choices": [choice] * (many + 1)})
    assert (found.choices, unread(found)) == (None, ("output.value",))
    for said in ({"content": "a"}, {"parts": []}):  # the fast way, and the other
        found = genai([], [{"role": "assistant", **said}] * (many + 1))
        assert (found.choices, unread(found)) == (None, ("gen_ai.output.messages",))
    parts = [{"type": "text", "text": "a"}] * many
    found = genai([{"role": "user", "parts": parts}], [{"role": "assistant", "parts": [*parts, *parts]}])
    assert (found.input_messages[0].content, found.choices) == ("a" * many, None)


def test_messages_without_a_model_are_a_piece_of_a_request_that_says_nothing_of_tools():
    """LiteLLM's instrumentor writes the messages alone as the body, and the tools beside it."""
    tool = {"type": "function", "function": {"name": "look"}}
    found = call(
        {
            "openinference.span.kind": "LLM",
            "input.value": json.dumps({"messages": [{"role": "user", "content": "q"}]}),
            "llm.tools.0.tool.json_schema": json.dumps(tool),
        }
    )
    assert found.tools == (tool,)
    assert openinference({"model": "m", "messages": []}).tools == ()


@pytest.mark.parametrize(
    ("name", "is_stream"),
    [("GenerateContentStream", True), ("AsyncGenerateContentStream", True), ("GenerateContent", None)],
)
def test_a_stream_of_google_genai_is_known_by_its_spans_name(name, is_stream):
    response = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Let me"}]}, "index": 0}]}
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "output.value": json.dumps(response),
    }
    found = call(attributes, name=name)
    assert (found.stream, found.choices[0].finish_reason) == (is_stream, None)


def test_a_gemini_body_has_its_parameters_wherever_they_stand():
    """In JSON, in Python's arguments, and where a tracer wrote the argument that nobody gave."""
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}]
    in_json = {"contents": contents, "generationConfig": {"maxOutputTokens": 5}, "safetySettings": []}
    assert openinference(in_json).parameters == {"max_tokens": 5, "safety_settings": []}
    assert openinference({"contents": contents, "config": {"max_output_tokens": 5}}).parameters == {"max_tokens": 5}
    assert openinference({"contents": contents, "config": None}).parameters == {}
    assert kinds(openinference({"contents": contents, "cachedContent": "cachedContents/a"})) == (
        "history on the server",
    )


CALLING = {"role": "model", "parts": [{"function_call": {"name": "look", "args": {"a": 1}}}]}
CALLED = [
    {"parts": [{"text": "q"}]},
    CALLING,
    {"role": "user", "parts": [{"function_response": {"name": "look", "response": {"result": 2}}}]},
]


@pytest.mark.parametrize(
    ("parts", "called", "field"),
    [
        ([{"text": "2"}], CALLED, "prompt"),
        ([*CALLING["parts"], {"text": "2"}], CALLED * 2, "call"),  # a stream's, whose answers were joined
        ([{"text": "2"}], [], None),
        ([{"text": "2"}], None, None),
    ],
)
def test_functions_that_google_genai_called_itself_hide_requests(parts, called, field):
    response = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finish_reason": "STOP"}],
        "automatic_function_calling_history": called,
    }
    request = {"contents": [{"role": "user", "parts": [{"text": "q"}]}]}
    as_mlflow = {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.spanInputs": json.dumps(request),
        "mlflow.spanOutputs": json.dumps(response),
    }
    for found in (openinference(request, response), call(as_mlflow, kind="internal")):
        gaps = [(gap.kind, gap.field) for gap in found.gaps]
        assert gaps == ([] if field is None else [("lossy recorder", field)])


@pytest.mark.parametrize(("text", "doubted"), [("", ["answer[0]"]), ("Well", [])])
def test_an_answer_that_a_filter_left_nothing_of_is_not_what_was_sampled(text, doubted):
    """It is trained as no empty answer, whichever API filters."""
    contents, messages = [{"role": "user", "parts": [{"text": "q"}]}], [{"role": "user", "content": "q"}]
    part = [{"text": text}] if text else []
    of_gemini = {"candidates": [{"content": {"role": "model", "parts": part}, "finish_reason": "SAFETY"}]}
    of_openai = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "content_filter"}],
    }
    blocks = [{"type": "text", "text": text}] if text else []
    of_anthropic = {**ANTHROPIC_RESPONSE, "content": blocks, "stop_reason": "refusal"}
    output = [{"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": "content_filter"}]
    found = [
        openinference({"contents": contents}, of_gemini),
        openinference({"messages": messages}, of_openai),
        openinference(ANTHROPIC_REQUEST, of_anthropic),
        genai([{"role": "user", "parts": [{"type": "text", "content": "q"}]}], output),
    ]
    assert [[gap.field for gap in one.gaps if gap.kind == "off"] for one in found] == [doubted] * 4
