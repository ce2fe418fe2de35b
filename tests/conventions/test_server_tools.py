"""Tools that the model's server runs are no calls of the policy, whoever recorded them."""

import json

import pytest

from tests.conventions.builders import call, genai

PROVIDER_TOOL = {"type": "provider", "name": "web_search", "id": "openai.web_search", "args": {}}
RAN = {"toolCallId": "ws_1", "toolName": "web_search", "input": "{}"}
OWN = {"toolCallId": "call_1", "toolName": "look", "input": "{}"}


def vercel(calls, reason, tools=(PROVIDER_TOOL,), prompt=()):
    attributes = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.prompt.messages": json.dumps([{"role": "user", "content": [{"type": "text", "text": "q"}]}, *prompt]),
        "ai.prompt.tools": [json.dumps(tool) for tool in tools],
        "ai.response.finishReason": reason,
        "ai.response.id": "resp_1",
        "ai.response.text": "a",
        "ai.response.toolCalls": json.dumps(calls),
    }
    return call(attributes)


def parts_of(message):
    return [(part["type"], part.get("name")) for part in json.loads(message.parts) if part["type"] != "text"]


@pytest.mark.parametrize(
    ("calls", "reason", "own"),
    [
        ([RAN], "stop", []),
        ([{**RAN, "toolName": "other", "providerExecuted": True}], "stop", []),
        ([RAN, OWN], "tool-calls", ["look"]),
        ([{**RAN, "toolCallId": "toolu_1"}], "tool-calls", ["web_search"]),
    ],
    ids=["a tool of the provider", "the flag of a stream", "beside a call of the app", "a provider's tool in the app"],
)
def test_the_ai_sdk(calls, reason, own):
    (choice,) = vercel(calls, reason).choices
    assert [one.name for one in choice.message.tool_calls] == own
    assert choice.finish_reason == ("tool_calls" if own else "stop")
    assert choice.message.content == "a"


def test_the_ai_sdk_sends_results_of_such_tools_as_the_assistants():
    ran = {"type": "tool-call", "toolCallId": "ws_1", "toolName": "web_search", "input": {}, "providerExecuted": True}
    result = {"type": "tool-result", "toolCallId": "ws_1", "toolName": "web_search", "output": {"value": "found"}}
    text = {"type": "text", "text": "a"}
    (_, sent) = vercel([], "stop", prompt=[{"role": "assistant", "content": [ran, result, text]}]).input_messages
    assert (sent.role, sent.content, sent.tool_calls) == ("assistant", "a", ())
    assert parts_of(sent) == [("server_tool_call", "web_search"), ("server_tool_call_response", "web_search")]


def test_pydantic_ai():
    ran = {"type": "tool_call", "id": "ws_1", "name": "web_search", "arguments": {"query": "q"}, "builtin": True}
    result = {"type": "tool_call_response", "id": "ws_1", "name": "web_search", "result": "found", "builtin": True}
    answer = {"role": "assistant", "parts": [ran, result, {"type": "text", "content": "a"}], "finish_reason": "stop"}
    found = genai([{"role": "user", "parts": [{"type": "text", "content": "q"}]}], [answer])
    (choice,) = found.choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("a", (), "stop")
    assert parts_of(choice.message) == [("server_tool_call", "web_search"), ("server_tool_call_response", "web_search")]
