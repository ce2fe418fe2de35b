"""Results of tools: what a tool gave is written as its framework sends it, and no list of parts by its looks."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions import parse_call
from art_otel.spans import Resource, Scope
from tests.conventions.builders import call as call_of
from tests.conventions.builders import genai, log, span
from tests.gaps import kinds

TEXT = {"type": "text", "content": "t"}
TEXTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
EVENTS = [{"type": "PushEvent", "id": 3}]
ERRORS = [{"type": "missing", "loc": ["city"], "msg": "Field required", "input": {}}]


def result_of(result, scope, provider="openai", kind="tool_call_response", **resource):
    answer = [{"role": "tool", "parts": [{"type": kind, "id": "c", "result": result}]}]
    resource = Resource(attributes={f"telemetry.sdk.{name}": value for name, value in resource.items()})
    call = genai(answer, attributes={"gen_ai.provider.name": provider}, scope=scope, resource=resource)
    (message,) = call.input_messages
    return message.content, message.parts, kinds(call)


@pytest.mark.parametrize("scope", ["pydantic-ai", "ai", "gen_ai"])
@pytest.mark.parametrize("result", [{"x": 1}, TEXTS, EVENTS, [1, 2.5, None], 3, True, {"é": "ü"}])
def test_frameworks_that_write_compact_json_are_read_so(scope, result):
    compact = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    assert result_of(result, scope) == (compact, None, ())


@pytest.mark.parametrize(
    ("scope", "language", "expected"),
    [
        ("other", "nodejs", '{"x":1}'),
        ("other", "dotnet", '{"x":1}'),
        ("other", "python", '{"x": 1}'),
        ("gen_ai", "nodejs", '{"x":1}'),
        ("gen_ai", "python", '{"x": 1}'),
    ],
)
def test_only_python_writes_json_with_spaces(scope, language, expected):
    assert result_of({"x": 1}, scope, language=language)[0] == expected
    assert result_of(TEXTS, "other", language=language)[0] == "ab"


def test_results_of_strands_are_blocks():
    scope = "strands.telemetry.tracer"
    found = result_of([{"json": [{"id": 1, "at": None}]}, {"text": "t"}], scope)
    texts = [part["text"] for part in json.loads(found[1])]
    assert (texts, found[2]) == (['[{"id": 1, "at": null}]', "t"], ())
    assert result_of([{"json": {"x": 1}}], scope) == ('{"x": 1}', None, ())
    assert result_of([], scope) == ("", None, ())
    assert result_of([{"json": {"x": 1}}], "other") == ('[{"json": {"x": 1}}]', None, ())


def test_a_text_stays_the_text_it_is():
    assert result_of('{"x": 1}', "pydantic-ai") == result_of('{"x": 1}', "other") == ('{"x": 1}', None, ())


def test_what_looks_like_no_part_of_any_api_is_the_tools_own():
    assert result_of(EVENTS, "other") == ('[{"type": "PushEvent", "id": 3}]', None, ())
    assert result_of([{"image": "x.png"}, {"document": 4}], "other")[0] == '[{"image": "x.png"}, {"document": 4}]'
    assert result_of(TEXTS, "other")[0] == "ab"


def test_an_answer_in_an_apis_own_words_has_parts_only():
    content, parts, doubts = result_of([*TEXTS, {"type": "new_part"}], "other", kind="tool_result")
    assert (content, doubts) == ("ab", ("not understood",))
    assert msgspec.json.decode(parts)[-1] == {"type": "new_part"}


def test_pydantic_ai_says_what_is_wrong_with_arguments_as_each_provider_asks_for_it():
    compact = json.dumps(ERRORS, separators=(",", ":"))
    assert result_of(ERRORS, "pydantic-ai")[0] == f'{{"error":{compact}}}'
    assert result_of(ERRORS, "pydantic-ai", "anthropic")[0] == compact
    assert result_of(ERRORS, "pydantic-ai", "google-gla")[0] == json.dumps({"error": ERRORS})


def test_pydantic_ai_wraps_for_gemini_what_is_no_object():
    assert result_of("sunny", "pydantic-ai", "google-gla")[0] == '{"return_value": "sunny"}'
    assert result_of({"x": 1}, "pydantic-ai", "gcp.gemini")[0] == '{"x": 1}'


@pytest.mark.parametrize(("version", "content"), [("1.60.0", '["a",{"x":1}]'), ("2.68.0", 'a{"x":1}')])
def test_pydantic_ai_sends_anthropic_the_entries_of_a_list_since_a_version(version, content):
    answer = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "result": ["a", {"x": 1}]}]}]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.input.messages": json.dumps(answer),
    }
    recorded = msgspec.structs.replace(span(attributes), scope=Scope(name="pydantic-ai", version=version))
    assert parse_call(recorded).input_messages[0].content == content


@pytest.mark.parametrize(
    ("version", "provider", "sent"),
    [("1.68.0", "openai", "[]"), ("1.69.0", "openai", ""), ("1.69.0", "google-gla", "{}")],
)
def test_pydantic_ai_sends_no_json_of_an_empty_list_since_a_version(version, provider, sent):
    answer = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "result": []}]}]
    attributes = {"gen_ai.provider.name": provider}
    (message,) = genai(answer, attributes=attributes, scope="pydantic-ai", version=version).input_messages
    assert message.content == sent


@pytest.mark.parametrize(
    ("text", "provider", "sent"),
    [
        ("too hot", "openai", '{"error":"too hot"}'),
        ("too hot", "anthropic", "too hot"),
        ("too hot", "google-gla", '{"error": "too hot"}'),
        ("too hot\n\nFix the errors and try again.", "openai", "too hot\n\nFix the errors and try again."),
    ],
)
def test_an_output_that_pydantic_ai_refused_is_sent_as_an_error(text, provider, sent):
    """The run went on without the user, so it was refused; the result of the other tool is what it gave."""
    calls = [{"type": "tool_call", "id": name, "name": name, "arguments": "{}"} for name in ("final_result", "now")]
    answers = [{"type": "tool_call_response", "id": name, "result": text} for name in ("final_result", "now")]
    prompt = [{"role": "assistant", "parts": calls}, {"role": "user", "parts": answers}]
    attributes = {
        "gen_ai.provider.name": provider,
        "model_request_parameters": json.dumps({"output_tools": [{"name": "final_result"}]}),
    }
    refused, plain = genai(prompt, attributes=attributes, scope="pydantic-ai").input_messages[1:]
    assert refused.content == sent
    assert plain.content != sent or sent == text
    ended = [*prompt, {"role": "user", "parts": [{"type": "text", "content": "And?"}]}]
    accepted = genai(ended, attributes=attributes, scope="pydantic-ai").input_messages[1]
    assert accepted.content == plain.content


def test_instructions_of_pydantic_ai_stand_behind_system_prompts_since_a_version():
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": json.dumps([{"role": role, "parts": [TEXT]} for role in ("system", "user")]),
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "be kind"}]),
    }
    for version, place in (("1.32.0", 0), ("1.33.0", 1)):
        recorded = msgspec.structs.replace(span(attributes), scope=Scope(name="pydantic-ai", version=version))
        assert [message.content for message in parse_call(recorded).input_messages].index("be kind") == place


@given(st.lists(st.sampled_from([TEXTS, EVENTS, {"x": 1}, "t"]), min_size=1, max_size=4))
def test_the_same_messages_of_two_recorders_are_kept_apart(results):
    """A prompt that was parsed for one recorder must not be taken for that of another."""
    parts = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "result": one}]} for one in results]
    for count in range(1, len(parts) + 1):
        for scope in ("pydantic-ai", "other"):
            fresh = [result_of(one, scope)[0] for one in results[:count]]
            recorded = genai(parts[:count], attributes={"gen_ai.provider.name": "openai"}, scope=scope)
            assert [message.content for message in recorded.input_messages] == fresh


@pytest.mark.parametrize(
    ("result", "provider", "sent"),
    [
        ({"type": "content", "value": TEXTS}, "openai", json.dumps(TEXTS, separators=(",", ":"))),
        ({"type": "content", "value": TEXTS}, "anthropic", "ab"),
        ({"type": "content", "value": 1, "x": 2}, "anthropic", '{"type":"content","value":1,"x":2}'),
        ({"denied": True, "reason": "no"}, "openai", "no"),
        ({"denied": True}, "anthropic", "Tool call execution denied."),
        ({"denied": True, "x": 1}, "openai", '{"denied":true,"x":1}'),
    ],
)
def test_the_ai_sdk_sends_content_and_denials_otherwise_than_it_records_them(result, provider, sent):
    assert result_of(result, "ai", provider)[0] == sent


def test_arguments_that_openinference_leaves_out_are_an_empty_object():
    found = call_of(
        {
            "openinference.span.kind": "LLM",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "transfer_to_b",
        },
        kind="internal",
    )
    assert found.choices[0].message.tool_calls[0].arguments == "{}"


def test_a_response_in_a_list_is_no_list_of_texts():
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}
    response = {"object": "response", "id": "__fake_id__", "text": None, "output": [item]}
    for scope in ("openinference.instrumentation.openai_agents", "openinference.instrumentation.dspy"):
        attributes = {"openinference.span.kind": "LLM", "output.value": json.dumps([response])}
        choices = call_of(attributes, kind="internal", scope=scope).choices
        assert choices is None or choices[0].message.content == "yes"


def answered(events, **attributes):
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    return call_of(asked | attributes, events)


def test_a_text_in_the_body_of_an_event_is_no_list_of_parts_though_it_is_json():
    """An agent hands on what an MCP server gave; in a body the app's own list of parts would be a list."""
    for content, expected in ((json.dumps(TEXTS), json.dumps(TEXTS)), (TEXTS, "ab")):
        call = answered(
            [
                log("gen_ai.user.message", {"content": "q"}),
                log("gen_ai.tool.message", {"content": content, "id": "c"}),
                log("gen_ai.choice", {"index": 0, "message": {"content": "a"}}),
            ]
        )
        assert [message.content for message in call.input_messages] == ["q", expected]


def test_a_flattened_answer_of_a_tool_that_is_json_of_parts_may_have_been_parts():
    """OpenLLMetry writes a list of parts as JSON, and a text as it is."""
    flat = {"gen_ai.prompt.0.role": "tool", "gen_ai.prompt.0.tool_call_id": "c", "gen_ai.completion.0.content": "a"}
    call = answered([], **flat, **{"gen_ai.prompt.0.content": json.dumps(TEXTS)})
    assert [gap.kind for gap in call.gaps if gap.field == "prompt"] == ["lossy recorder"]
    call = answered([], **flat, **{"gen_ai.prompt.0.content": '["a", "b"]'})
    assert [gap.kind for gap in call.gaps if gap.field == "prompt"] == []


VALUE = {"type": "json", "value": {"a": [1, 2]}}
DENIED = {"type": "execution-denied", "reason": "no"}
BLOCKS = {"type": "content", "value": TEXTS}
BLOCKS_TEXT = '[{"type":"text","text":"a"},{"type":"text","text":"b"}]'


@pytest.mark.parametrize(
    ("provider", "result", "sent"),
    [
        ("openai.chat", {"output": {"type": "text", "value": "hello"}}, "hello"),
        ("openai.chat", {"output": {"type": "error-text", "value": "bad"}}, "bad"),
        ("openai.chat", {"output": VALUE}, '{"a":[1,2]}'),
        ("openai.responses", {"output": {"type": "json", "value": "hello"}}, '"hello"'),
        ("openai.chat", {"output": {"type": "error-json", "value": "bad"}}, '"bad"'),
        ("google.generative-ai", {"output": {"type": "json", "value": "hello"}}, "hello"),
        ("openai.chat", {"output": DENIED}, "no"),
        ("anthropic.messages", {"output": DENIED}, "no"),
        ("google.generative-ai", {"output": DENIED}, "no"),
        ("openai.chat", {"output": {**DENIED, "reason": None}}, "Tool call execution denied."),
        ("openai.chat", {"output": BLOCKS}, BLOCKS_TEXT),
        ("mistral.chat", {"output": BLOCKS}, BLOCKS_TEXT),
        ("openai.responses", {"output": BLOCKS}, "ab"),
        ("anthropic.messages", {"output": BLOCKS}, "ab"),
        ("google.vertex.chat", {"output": BLOCKS}, "ab"),
        # Version 4.
        ("openai.chat", {"result": "hello"}, '"hello"'),
        ("openai.responses", {"result": {"a": [1, 2]}}, '{"a":[1,2]}'),
        ("anthropic.messages", {"result": "hello"}, '"hello"'),
        ("vertex.anthropic.messages", {"result": "hello"}, '"hello"'),
        ("google.generative-ai", {"result": "hello"}, "hello"),
        ("openai.chat", {"result": TEXTS, "content": TEXTS}, BLOCKS_TEXT),
        ("anthropic.messages", {"result": TEXTS, "content": TEXTS}, "ab"),
        ("amazon-bedrock", {"result": TEXTS, "content": TEXTS}, "ab"),
    ],
)
def test_the_ai_sdk_writes_results_as_its_provider_sends_them(provider, result, sent):
    part = {"type": "tool-result", "toolCallId": "c", "toolName": "look", **result}
    call = call_of(
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.model.provider": provider,
            "ai.prompt.messages": json.dumps([{"role": "tool", "content": [part]}]),
            "ai.response.text": "a",
        }
    )
    (message,) = call.input_messages
    assert (message.role, message.tool_call_id, message.content) == ("tool", "c", sent)
