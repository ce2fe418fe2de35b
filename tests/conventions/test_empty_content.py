"""Content that is empty and that recorders leave out, beside messages that have theirs."""

import json

import pytest

from art_otel.calls import Message, ToolCall
from tests.conventions.builders import call, genai, log

PROMPT = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "q"},
    {"role": "assistant", "tool_calls": [("c", "sh", "{}")]},
    {"role": "tool", "tool_call_id": "c"},
]
EMPTY = Message(role="tool", content="", tool_call_id="c")


def flattened(prompt):
    """Old OpenLLMetry's attributes."""
    found = {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "a"}
    for at, message in enumerate(prompt):
        found |= {f"gen_ai.prompt.{at}.{name}": text for name, text in message.items() if isinstance(text, str)}
        for index, names in enumerate(message.get("tool_calls", ())):
            values = zip(("id", "name", "arguments"), names, strict=True)
            found |= {f"gen_ai.prompt.{at}.tool_calls.{index}.{name}": text for name, text in values}
    return found


def openinference(prompt):
    """OpenInference's attributes, of an instrumentor without bodies."""
    found = {"openinference.span.kind": "LLM"}
    for at, message in enumerate(prompt):
        start = f"llm.input_messages.{at}.message"
        found |= {f"{start}.{name}": text for name, text in message.items() if isinstance(text, str)}
        for index, (identifier, name, arguments) in enumerate(message.get("tool_calls", ())):
            function = f"{start}.tool_calls.{index}.tool_call"
            found |= {f"{function}.id": identifier, f"{function}.function.name": name}
            found |= {f"{function}.function.arguments": arguments}
    return found


def events(prompt):
    """GenAI's former events, as log records."""
    for message in prompt:
        fields = {"content": message["content"]} if "content" in message else {}
        fields |= {"id": message["tool_call_id"]} if "tool_call_id" in message else {}
        functions = [
            {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}
            for identifier, name, arguments in message.get("tool_calls", ())
        ]
        yield log(f"gen_ai.{message['role']}.message", fields | ({"tool_calls": functions} if functions else {}))


@pytest.mark.parametrize("write", [flattened, openinference])
def test_an_empty_result_of_a_tool_is_empty(write):
    assert call(write(PROMPT)).input_messages[-1] == EMPTY


@pytest.mark.parametrize("write", [flattened, openinference])
def test_a_result_is_unknown_where_nothing_has_content_or_attributes_were_dropped(write):
    uncaptured = [{name: text for name, text in message.items() if name != "content"} for message in PROMPT]
    assert call(write(uncaptured)).input_messages is None
    if write is flattened:
        assert call(write(PROMPT), dropped_attributes_count=1).input_messages is None


@pytest.mark.parametrize("write", [flattened, openinference])
def test_a_result_without_an_id_and_a_users_message_are_unknown(write):
    for lost in ({"role": "tool"}, {"role": "user"}):
        assert call(write([*PROMPT[:3], lost])).input_messages is None


def test_an_event_of_a_result_without_content_is_an_empty_one():
    one = call({"gen_ai.operation.name": "chat"}, list(events(PROMPT)))
    assert one.input_messages[-1] == EMPTY
    uncaptured = [
        log("gen_ai.user.message", {}),
        log("gen_ai.assistant.message", {"tool_calls": [{"id": "c", "function": {"name": "sh"}}]}),
        log("gen_ai.tool.message", {"id": "c"}),
    ]
    assert call({"gen_ai.operation.name": "chat"}, uncaptured).input_messages is None


def test_a_step_of_smolagents_without_text_is_an_empty_answer():
    prompt = [*PROMPT[:2], {"role": "assistant"}, {"role": "tool-response", "content": "r"}]
    scope = "openinference.instrumentation.smolagents"
    streamed = {**openinference(prompt), "input.value": json.dumps({"messages": ["ChatMessage(token_usage=None)"]})}
    roles = [(message.role, message.content) for message in call(streamed, scope=scope, kind="internal").input_messages]
    assert roles == [("system", "s"), ("user", "q"), ("assistant", ""), ("user", "r")]
    assert call(streamed, scope="openinference.instrumentation.other").input_messages is None


STREAMED = {"type": "tool_call", "id": "c", "name": "now", "arguments": ""}


@pytest.mark.parametrize(
    ("attributes", "arguments"),
    [
        ({"gen_ai.provider.name": "anthropic"}, "{}"),
        ({"gen_ai.provider.name": "aws.bedrock"}, "{}"),
        ({"gen_ai.request.model": "vertex_ai/claude-x"}, "{}"),
        ({"gen_ai.provider.name": "openai"}, ""),
    ],
)
def test_no_arguments_are_an_empty_object_where_the_api_has_objects(attributes, arguments):
    recorded = genai([], [{"role": "assistant", "parts": [STREAMED]}], attributes)
    assert recorded.choices[0].message.tool_calls[0].arguments == arguments


def test_no_arguments_and_an_empty_object_are_the_same_message():
    said, repeated = (
        Message(role="assistant", tool_calls=(ToolCall(id="c", name="now", arguments=arguments),))
        for arguments in ("", "{}")
    )
    assert said.identity == repeated.identity


SAID_NOTHING = {
    "gen_ai.provider.name": "anthropic",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 9,
    "gen_ai.usage.output_tokens": 3,
}


@pytest.mark.parametrize(
    ("attributes", "is_known"),
    [
        ({}, True),
        ({"gen_ai.usage.output_tokens": 4}, False),
        ({"gen_ai.request.stream": True}, False),
        ({"gen_ai.response.finish_reasons": ["tool_calls"]}, False),
        ({"gen_ai.provider.name": "openai"}, False),
        ({"gen_ai.provider.name": "openai", "gen_ai.usage.output_tokens": 0}, True),
        ({"gen_ai.provider.name": "openai", "gen_ai.usage.output_tokens": 1}, False),
        ({"error.type": "x"}, False),
    ],
)
def test_an_answer_of_which_no_message_was_written_is_empty_if_only_its_end_was_counted(attributes, is_known):
    asked = [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
    choices = genai(asked, None, SAID_NOTHING | attributes).choices
    assert (choices is not None and choices[0].message.content == "") == is_known


def test_a_result_without_content_that_anthropics_client_wrote_as_no_blocks():
    result = {"type": "tool_call_response", "id": "c", "response": []}
    asked = [{"role": "user", "parts": [result]}]
    assert genai(asked, scope="com.anthropic.sdk.python").input_messages == (EMPTY,)
    assert genai(asked).input_messages[0].content == "[]"
