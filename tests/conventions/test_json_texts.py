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


PARTS = [
    [{"type": "tool_call", "name": "search", "arguments": {"q": "x"}}],
    [{"type": "text", "text": "hello"}],
    [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "hello"}],
    [{"type": "click", "x": 1}],
    [{"action": "click"}],
]


def flattened(scope, answer, role="user", content="q"):
    return call(
        {
            "gen_ai.prompt.0.role": role,
            "gen_ai.prompt.0.content": content,
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": answer,
        },
        scope=scope,
    )


@pytest.mark.parametrize("answer", [*map(json.dumps, PARTS)])
@pytest.mark.parametrize(
    "scope", ["opentelemetry.instrumentation.openai.v1", "opentelemetry.instrumentation.anthropic"]
)
def test_an_answer_that_openllmetry_wrote_as_it_was_sampled(scope, answer):
    one = flattened(scope, answer)
    assert [(choice.message.content, choice.message.tool_calls) for choice in one.choices] == [(answer, ())]
    assert not one.gaps


@pytest.mark.parametrize("actions", [PARTS[0], PARTS[3]])
def test_actions_that_stand_in_the_next_prompt_of_openllmetry(actions):
    one = flattened("opentelemetry.instrumentation.openai.v1", "a", "assistant", json.dumps(actions))
    assert [message.content for message in one.input_messages] == [json.dumps(actions)]
    assert not one.gaps


def test_parts_that_openllmetry_wrote_as_their_json():
    parts = json.dumps([{"type": "text", "text": "hello"}])
    one = flattened("opentelemetry.instrumentation.bedrock", parts)
    assert [choice.message.content for choice in one.choices] == ["hello"]
    for role in ("user", "assistant"):
        one = flattened("opentelemetry.instrumentation.openai.v1", "a", role, parts)
        assert [message.content for message in one.input_messages] == ["hello"]
    used = json.dumps([{"type": "tool_use", "id": "c", "name": "look", "input": {}}])
    (message,) = flattened("opentelemetry.instrumentation.anthropic", "a", "assistant", used).input_messages
    assert [one.name for one in message.tool_calls] == ["look"]


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
