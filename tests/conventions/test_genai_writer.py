"""What is written in GenAI's words is read back."""

import json

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from art_otel.calls import Message, ToolCall
from art_otel.conventions import genai_message, request_attributes, response_attributes
from art_otel.conventions.bodies.messages import parse
from art_otel.testing import messages
from tests.conventions.builders import call
from tests.examples import examples

IMAGE = [
    {"type": "text", "text": "What is it?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
]


@settings(max_examples=examples(200))
@given(messages(), st.sampled_from(["user", "assistant"]))
def test_a_message_is_read_back(message, role):
    calls = tuple(ToolCall(id=call.id or None, name=call.name, arguments=call.arguments) for call in message.tool_calls)
    assume(len({call.id for call in calls if call.id}) == sum(call.id is not None for call in calls))
    said = Message(role=role, content=message.content, refusal=message.refusal, tool_calls=calls)
    (found,) = parse([json.loads(json.dumps(genai_message(said)))])
    assert found.identity == said.identity


def test_a_call_is_read_back():
    tool = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":  1}'}}
    asked = [
        {"role": "user", "content": IMAGE},
        {"role": "assistant", "content": None, "tool_calls": [tool]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    answer = {"role": "assistant", "content": "It is 42.", "reasoning_content": "Hm."}
    body = {
        "model": "m-1",
        "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 2}},
    }
    written = request_attributes({"model": "m", "messages": asked, "seed": 7, "stop": ["x"]}) | response_attributes(
        body
    )
    read = call({"gen_ai.operation.name": "chat", **written}, scope="art_otel")
    assert read.input_messages == parse(asked)
    assert [(choice.message, choice.finish_reason) for choice in read.choices] == [(parse([answer])[0], "stop")]
    assert (read.request_model, read.response_model, read.parameters) == ("m", "m-1", {"seed": 7})
    assert (read.usage.input_tokens, read.usage.output_tokens, read.usage.reasoning_tokens) == (3, 4, 2)


def test_a_response_that_shows_nothing_is_an_empty_answer():
    body = {"output": [], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    written = response_attributes(body)
    (choice,) = call({"gen_ai.operation.name": "chat", **written}, scope="art_otel").choices
    assert (choice.message, choice.finish_reason) == (Message(role="assistant", content=""), "length")
    assert response_attributes({"output": [], "status": "in_progress"}) == {}
