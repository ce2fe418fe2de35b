"""What dialects say of spans that no recording holds: what was cut, and how little a dialect needs."""

import json

import msgspec
import pytest

from art_otel.calls import Choice, Message
from art_otel.conventions import dialects, parse_call, role_of
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.facts import CallFacts
from art_otel.spans import Scope
from tests.conventions.builders import call, log, span
from tests.gaps import kinds, unread

GEMINI_CLI = {
    "gen_ai.operation.name": "llm_call",
    "gen_ai.conversation.id": "c",
    "gen_ai.request.model": "gemini-test",
    "gen_ai.system_instructions": json.dumps("You are an agent."),
    "gen_ai.tool.definitions": json.dumps(
        [{"functionDeclarations": [{"name": "ls", "parametersJsonSchema": {"type": "object"}}]}]
    ),
    "gen_ai.input.messages": json.dumps(
        [
            {"role": "user", "parts": [{"text": "list"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "1", "name": "ls", "args": {"dir": "."}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "ls", "response": {"output": "a"}}}]},
        ]
    ),
}


def test_gemini_cli_has_geminis_contents_under_genais_names():
    pieces = [
        {"role": "model", "parts": [{"text": "I th", "thought": True}]},
        {"role": "model", "parts": [{"text": "ink", "thought": True}, {"text": "On"}]},
        None,
        {"role": "model", "parts": [{"text": "e file."}]},
    ]
    found = call({**GEMINI_CLI, "gen_ai.output.messages": json.dumps(pieces)}, kind="internal")
    assert [message.role for message in found.input_messages] == ["system", "user", "assistant", "tool"]
    assert found.input_messages[0].content == "You are an agent."
    assert found.input_messages[2].tool_calls[0].arguments == '{"dir": "."}'
    assert (found.input_messages[3].content, found.input_messages[3].tool_call_id) == ('{"output": "a"}', "1")
    assert [choice.message for choice in found.choices] == [
        Message(role="assistant", content="One file.", reasoning="I think")
    ]
    assert found.tools[0]["function"] == {"name": "ls", "parameters": {"type": "object"}}
    assert unread(found) == ()


def test_what_gemini_cli_truncated_is_no_prompt():
    cut = GEMINI_CLI["gen_ai.input.messages"][:80] + "...[TRUNCATED: original length 20000]"
    found = call({**GEMINI_CLI, "gen_ai.input.messages": cut}, kind="internal")
    assert (found.input_messages, unread(found), kinds(found)) == (None, ("gen_ai.input.messages",), ("cut",))


@pytest.mark.parametrize("is_cut", [False, True])
def test_gemini_clis_events_call_the_model_system(is_cut):
    """Beside a span stands the event of its request, whole; that of the answer is no span's."""
    answer = {"gen_ai.output.messages": json.dumps([{"role": "model", "parts": [{"text": "One file."}]}])}
    called = {"type": "tool_call", "name": "ls", "id": "1", "arguments": '{"dir":"."}'}
    result = {"type": "tool_call_response", "response": '{"output":"a"}', "id": "1"}
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": "list"}]},
        {"role": "system", "parts": [called]},
        {"role": "user", "parts": [result]},
    ]
    instructions = [{"type": "text", "content": "You are an agent."}]
    details = {"gen_ai.system_instructions": json.dumps(instructions), "gen_ai.input.messages": json.dumps(messages)}
    logs = [log(None, attributes={"event.name": "gen_ai.client.inference.operation.details", **details})]
    cut = {"gen_ai.input.messages": GEMINI_CLI["gen_ai.input.messages"][:80] + "...[TRUNCATED: original length 20000]"}
    found = call({**GEMINI_CLI, **answer, **(cut if is_cut else {})}, logs, kind="internal")
    assert [message.role for message in found.input_messages] == ["system", "user", "assistant", "tool"]
    assert found.input_messages[2].tool_calls[0].name == "ls"
    assert [choice.message.content for choice in found.choices] == ["One file."]
    assert found.gaps == ()


def test_what_anthropics_sdk_truncated_is_doubted():
    known = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"q"}]}]',
    }
    assert kinds(call({**known, "anthropic.content.truncated": True})) == ("cut",)


def test_the_stop_reason_of_anthropics_sdk_is_that_of_the_answer():
    answer = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}])
    known = {"gen_ai.operation.name": "chat", "anthropic.message.stop_reason": "max_tokens"}
    assert call({**known, "gen_ai.output.messages": answer}).choices[0].finish_reason == "length"
    assert call(known).choices is None


ADK = {"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "m"}
REQUEST = json.dumps({"model": "m", "config": {}, "contents": [{"role": "user", "parts": [{"text": "q"}]}]})


@pytest.mark.parametrize(
    ("request_text", "response_text", "cut", "doubts"),
    [
        (REQUEST, "<not serializable>", ("gcp.vertex.agent.llm_response",), ("not understood",)),
        (REQUEST, '{"content": {"parts": [{"text": "a"}]}, "partial": true}', (), ("lossy recorder",)),
        (REQUEST.replace('[{"text": "q"}]', "[]"), '{"content": {"parts": []}}', (), ("lossy recorder", "off")),
    ],
)
def test_what_the_adk_did_not_write_is_cut_or_doubted(request_text, response_text, cut, doubts):
    known = {**ADK, "gcp.vertex.agent.llm_request": request_text, "gcp.vertex.agent.llm_response": response_text}
    found = call(known, kind="internal")
    assert (unread(found), kinds(found)) == (cut, doubts)


def test_one_choice_for_several_that_were_asked_is_doubted():
    known = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": '[{"role": "user", "content": "q"}]',
        "langfuse.observation.output": "ab",
        "langfuse.observation.model.parameters": '{"n": 2}',
    }
    assert kinds(call(known, kind="internal")) == ("lossy recorder",)


def test_what_logfire_scrubbed_of_a_body_is_doubted():
    known = {
        "logfire.msg_template": "Chat Completion with {request_data[model]!r}",
        "gen_ai.request.model": "m",
        "request_data": '{"messages": [{"role": "user", "content": "my session"}]}',
    }
    scrubbed = '[{"path": ["attributes", "%s", "messages", 0, "content"], "matched_substring": "session"}]'
    assert kinds(call({**known, "logfire.scrubbed": scrubbed % "request_data"})) == ("masked",)
    assert kinds(call({**known, "logfire.scrubbed": scrubbed % "my_attribute"})) == ()


def test_a_run_of_several_steps_is_no_call_that_is_whole():
    known = {"mastra.span.type": "model_generation", "gen_ai.operation.name": "chat"}
    assert "lossy recorder" in kinds(
        call({**known, "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"q"}]}]'})
    )


def test_a_dialect_is_its_module_and_its_line(monkeypatch):
    acme = Dialect(
        convention="acme",
        read=lambda recording, _: CallFacts(choices=(Choice(index=0, message=said(recording)),)),
        shown_by=("acme.answer",),
        role=lambda one: "inference" if "acme.answer" in one.attributes else None,
    )
    monkeypatch.setattr(dialects, "DIALECTS", (*dialects.DIALECTS, acme))
    one = msgspec.structs.replace(span({"acme.answer": "a"}), dropped_attributes_count=1)
    assert role_of(one) == "inference"
    assert call({"acme.answer": "a"}).choices[0].message.content == "a"


def said(recording) -> Message:
    return Message(role="assistant", content=recording.reader().text("acme.answer"))


LANGFUSE = {
    "langfuse.observation.type": "generation",
    "langfuse.observation.input": '[{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]',
}
ITEM = '{"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}'


def langfuse_stream(**response):
    metadata = {f"langfuse.observation.metadata.{name}": json.dumps(value) for name, value in response.items()}
    started = {"langfuse.observation.completion_start_time": '"2026-11-28T06:09:46.030513Z"'}
    return call({**LANGFUSE, **started, **metadata, "langfuse.observation.output": ITEM}, kind="internal")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": "completed"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "in_progress"}, None),
    ],
)
def test_the_status_of_a_response_says_how_a_stream_of_langfuse_ended(response, reason):
    found = langfuse_stream(object="response", id="resp_1", **response)
    assert found.response_id == "resp_1"
    assert [(choice.message.content, choice.finish_reason) for choice in found.choices] == [("a", reason)]


@pytest.mark.parametrize(
    ("version", "prompt", "lost"),
    [
        ("3.8.1", '[{"role": "user", "content": "q"}]', ("lossy recorder",)),
        ("4.0.1", '"q"', ("lossy recorder",)),
        ("3.8.1", LANGFUSE["langfuse.observation.input"], ()),
        ("4.0.2", '[{"role": "user", "content": "q"}]', ()),
    ],
)
def test_langfuse_lost_the_instructions_of_the_responses_api(version, prompt, lost):
    known = {**LANGFUSE, "langfuse.observation.input": prompt, "langfuse.observation.output": f"[{ITEM}]"}
    one = span(known, kind="internal")
    one = msgspec.structs.replace(one, scope=Scope(name="langfuse-sdk", version=version))
    assert kinds(parse_call(one)) == lost


def test_instructions_that_a_recorder_has_beside_the_items_lead_the_prompt():
    items = [
        {"role": "user", "content": "q", "type": "message"},
        {"type": "function_call", "call_id": "c", "name": "sh", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": ""},
    ]
    known = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": "resp_1",
        "gen_ai.input.messages": json.dumps(items),
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "s",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": "q",
    }
    found = call(known)
    assert [message.role for message in found.input_messages] == ["system", "user", "assistant", "tool"]
    other = call({**known, "gen_ai.prompt.1.content": "another"})
    assert [message.role for message in other.input_messages] == ["user", "assistant", "tool"]


def test_an_output_that_is_no_message_is_unknown_and_no_empty_answer():
    known = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": '[{"finish_reason": "stop", "answer": "a"}]'}
    assert call(known).choices is None


PIPECAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "stream": True,
    "input": '[{"role": "user", "content": "q"}]',
    "output": "a",
}


@pytest.mark.parametrize(
    ("attributes", "stream", "lost"),
    [
        ({"gen_ai.usage.output_tokens": 1}, None, ()),
        ({"gen_ai.usage.output_tokens": 1, "tools": "[]"}, None, ()),
        ({}, True, ()),
        (
            {"gen_ai.usage.output_tokens": 1, "tools": '[{"type": "function", "function": {"name": "f"}}]'},
            None,
            ("lossy recorder",),
        ),
    ],
)
def test_pipecat_counts_a_stream_at_its_end_and_has_no_tool_calls(attributes, stream, lost):
    found = call({**PIPECAT, "gen_ai.system_instructions": "s", **attributes}, scope="pipecat", kind="internal")
    assert [(message.role, message.content) for message in found.input_messages] == [("system", "s"), ("user", "q")]
    assert [choice.message.content for choice in found.choices] == ["a"]
    assert (found.stream, kinds(found)) == (stream, lost)


AI_SDK = {"ai.operationId": "ai.streamText.doStream", "ai.response.text": "a", "ai.response.finishReason": "other"}
AI_SDK_7 = {
    "gen_ai.operation.name": "chat",
    "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]',
    "gen_ai.client.operation.time_to_first_chunk": 0.1,
}


@pytest.mark.parametrize("known", [AI_SDK, AI_SDK_7], ids=["ai", "gen_ai"])
@pytest.mark.parametrize(
    ("more", "stream", "reason"),
    [
        ({}, True, None),
        ({"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 1}, True, "other"),
        ({"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "a"}, False, "other"),
    ],
)
def test_a_stream_of_the_ai_sdk_without_reason_and_count_has_no_end(known, more, stream, reason):
    found = call({**known, **more, "gen_ai.response.finish_reasons": ["other"]})
    assert (found.stream, [choice.finish_reason for choice in found.choices]) == (stream, [reason])
