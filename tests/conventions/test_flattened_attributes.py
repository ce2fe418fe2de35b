"""Messages and tools whose fields are attributes of their own, as OpenInference and OpenLLMetry flatten them."""

import json

import pytest

from art_otel.calls import Message, Usage
from tests.conventions.builders import call
from tests.gaps import unread


def test_flattened_function_calls_and_tool_calls():
    prefix = "llm.output_messages.0.message"
    attributes = {
        f"{prefix}.role": "assistant",
        f"{prefix}.function_call_name": "f",
        f"{prefix}.function_call_arguments_json": '{"a":1}',
        "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "f"}}',
    }
    found = call(attributes)
    assert found.choices[0].message.tool_calls[0].arguments == '{"a":1}'
    assert found.tools == ({"type": "function", "function": {"name": "f"}},)


def test_flattened_items_of_a_response_are_one_choice():
    prefix = "llm.output_messages"
    attributes = {
        f"{prefix}.0.message.role": "assistant",
        f"{prefix}.0.message.contents.0.message_content.type": "reasoning",
        f"{prefix}.0.message.contents.0.message_content.text": "hm",
        f"{prefix}.1.message.role": "assistant",
        f"{prefix}.1.message.contents.0.message_content.type": "text",
        f"{prefix}.1.message.contents.0.message_content.text": "a",
    }
    (choice,) = call(attributes, name="Response").choices
    assert (choice.message.reasoning, choice.message.content) == ("hm", "a")
    assert len(call(attributes, name="ChatCompletion").choices) == 2


@pytest.mark.parametrize(
    "attributes",
    [
        {"llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "q"},
        {"llm.input_messages.0.message.content": "its role was dropped"},
        {"llm.input_messages.x.message.role": "user"},
    ],
)
def test_flattened_messages_with_a_hole_are_unknown(attributes):
    found = call(attributes)
    assert (found.input_messages, unread(found)) == (None, ("llm.input_messages",))


def test_flattened_tools_that_cannot_be_read_are_unknown():
    found = call({"llm.tools.0.tool.json_schema": '{"type": "fun'})
    assert (found.tools, unread(found)) == (None, ("llm.tools",))


OLD = {
    "llm.request.type": "chat",
    "gen_ai.system": "OpenAI",
    "gen_ai.request.model": "m",
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "s",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": '[{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "https://x/y"}}]',
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.tool_calls.0.id": "c1",
    "gen_ai.prompt.2.tool_calls.0.name": "f",
    "gen_ai.prompt.2.tool_calls.0.arguments": '{"a":1}',
    "gen_ai.prompt.3.role": "tool",
    "gen_ai.prompt.3.tool_call_id": "c1",
    "gen_ai.prompt.3.content": "1",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "a",
    "gen_ai.completion.0.finish_reason": "stop",
    "gen_ai.completion.1.role": "assistant",
    "gen_ai.completion.1.finish_reason": "tool_calls",
    "gen_ai.completion.1.tool_calls.0.name": "f",
    "gen_ai.completion.1.tool_calls.0.arguments": '{"a":1}',
    "llm.request.functions.0.name": "f",
    "llm.request.functions.0.description": "d",
    "llm.request.functions.0.parameters": '{"type": "object"}',
    "llm.frequency_penalty": 0.1,
    "llm.chat.stop_sequences": ("x",),
    "llm.is_streaming": False,
    "llm.usage.total_tokens": 9,
    "gen_ai.usage.prompt_tokens": 4,
    "gen_ai.usage.completion_tokens": 5,
}


def test_old_openllmetry():
    found = call(OLD, name="openai.chat")
    assert [message.role for message in found.input_messages] == ["system", "user", "assistant", "tool"]
    assert json.loads(found.input_messages[1].parts)[1] == {"type": "image", "url": "https://x/y"}
    assert found.input_messages[2].tool_calls[0].arguments == '{"a":1}'
    assert found.input_messages[2].tool_calls[0].exact
    assert found.input_messages[3].tool_call_id == "c1"
    assert [choice.finish_reason for choice in found.choices] == ["stop", "tool_calls"]
    assert found.choices[1].message.tool_calls[0].name == "f"
    assert found.tools == (
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
    )
    assert found.parameters == {"frequency_penalty": 0.1, "stop": ["x"]}
    assert found.usage == Usage(input_tokens=4, output_tokens=5, total_tokens=9)
    assert (found.provider, found.stream) == ("OpenAI", False)
    assert found.conventions == ("gen_ai", "openllmetry")


def test_old_openllmetry_of_completions_and_the_oldest_names():
    found = call(
        {"llm.request.type": "completion", "gen_ai.prompt.0.user": "Once", "gen_ai.completion.0.content": "upon"}
    )
    assert found.operation_name == "text_completion"
    assert found.input_messages == (Message(role="user", content="Once"),)
    oldest = call({"llm.prompts.0.role": "user", "llm.prompts.0.content": "q", "llm.completions.0.content": "a"})
    assert oldest.input_messages == (Message(role="user", content="q"),)
    assert oldest.choices[0].message == Message(role="assistant", content="a")


def test_a_prompt_entry_that_lost_its_role_is_not_guessed():
    found = call({"gen_ai.prompt.0.content": "q"}, dropped_attributes_count=1)
    assert (found.input_messages, unread(found), found.gaps[-1].evidence) == (None, ("gen_ai.prompt",), "1 attributes")


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": 5},
        {"gen_ai.completion.0.content": 5},
        {"llm.request.functions.1.name": "f"},
        {"llm.request.functions.0": 5},
    ],
)
def test_old_openllmetry_that_cannot_be_read_is_named(attributes):
    found = call(attributes)
    assert (found.input_messages, found.choices, found.tools) == (None, None, None)
    assert unread(found) == (next(iter(attributes)).partition(".0")[0].partition(".1")[0],)


def test_a_name_that_is_a_value_and_a_prefix_keeps_the_first():
    found = call({"llm.input_messages.0.message": "x", "llm.input_messages.0.message.role": "user"})
    assert unread(found) == ("llm.input_messages",)
