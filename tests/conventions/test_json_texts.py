"""What was said may be JSON itself, as structured outputs are: it stays the text that it was."""

import json

import pytest

from tests.conventions.builders import call

ANSWERS = [
    {"output": "x"},
    {"message": "x", "score": 1},
    {"response": "x"},
    ["a"],
    ["a", 1],
    "quoted",
    7,
]
LANGFUSE = {
    "langfuse.observation.type": "generation",
    "langfuse.observation.input": '[{"role": "user", "content": "q"}]',
}


def langfuse(output):
    (choice,) = call(LANGFUSE | {"langfuse.observation.output": output}).choices
    return choice.message.content


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_text_that_langfuse_wrote_as_it_is(answer):
    assert langfuse(json.dumps(answer)) == json.dumps(answer)


def test_an_object_of_langfuse_without_a_text_may_be_what_a_function_returned():
    assert call(LANGFUSE | {"langfuse.observation.output": '{"b": {"c": []}}'}).choices is None


def test_messages_and_responses_of_langfuse_are_read_as_such():
    message = {"role": "assistant", "content": "a"}
    for output in (message, [message], {"choices": [{"index": 0, "message": message}]}, {"message": message}):
        assert langfuse(json.dumps(output)) == "a"


@pytest.mark.parametrize("answer", [*ANSWERS, {"choices": [{"index": 0, "message": {"content": "x"}}]}])
def test_a_value_of_openinference_that_is_declared_to_be_text(answer):
    text = json.dumps(answer)
    one = call({
        "openinference.span.kind": "LLM",
        "input.value": json.dumps({"input": "q", "messages": [{"role": "user", "content": "other"}]}),
        "input.mime_type": "text/plain",
        "output.value": text,
        "output.mime_type": "text/plain",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "q",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": text,
    })  # fmt: skip
    assert [message.content for message in one.input_messages] == ["q"]
    assert [choice.message.content for choice in one.choices] == [text]


def test_a_value_that_nothing_declares_to_be_json_is_no_list_of_answers():
    one = call({
        "openinference.span.kind": "LLM",
        "input.value": '{"messages": [{"role": "user", "content": "q"}]}',
        "input.mime_type": "application/json",
        "output.value": '["a"]',
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": '["a"]',
    })  # fmt: skip
    assert [choice.message.content for choice in one.choices] == ['["a"]']
