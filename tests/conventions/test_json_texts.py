"""What was said may be JSON itself, as structured outputs are: it stays the text that it was."""

import json

import pytest

from art_otel.calls import Message
from tests.conventions.builders import call, log

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


SAID = [
    '{"city": "Paris", "temp": 21}',
    '{"city":"Paris"}',
    '  {"a": 1}\n',
    '[{"city": "Paris"}]',
    "[1, 2]",
    "[]",
    "{}",
    "null",
    "true",
    "42",
    '"quoted"',
    '{"text": "x"}',
    '{"content": "x", "title": "y"}',
    '{"message": "hi", "code": 1}',
    '{"output": {"a": 1}}',
]
"""What models answer to a request for JSON."""

MEAN = ['[{"type": "text", "text": "x"}]', '{"role": "admin", "name": "Bob"}', '{"choices": ["a"]}', '{"parts": [1]}']
"""The same, in shapes of messages."""

STREAMED = {"langfuse.observation.completion_start_time": '"2026-11-28T06:09:46.030513Z"'}
ASKED = {"gen_ai.request.model": "m", "gen_ai.input.messages": '[{"role": "user", "content": "q"}]'}
CHAT = {**ASKED, "gen_ai.operation.name": "chat"}
FIRST = "gen_ai.completion.0"
OI = {"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user"}
OI |= {"llm.input_messages.0.message.content": "q", "llm.output_messages.0.message.role": "assistant"}


def message(text):
    return {"role": "assistant", "content": text}


def choices(text):
    return {"choices": [{"index": 0, "message": message(text), "finish_reason": "stop"}]}


def genai(value):
    return {**CHAT, "gen_ai.output.messages": json.dumps(value)}


def mlflow(value):
    asked = json.dumps({"messages": [{"role": "user", "content": "q"}]})
    return {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": asked, "mlflow.spanOutputs": json.dumps(value)}


def logfire(value):
    request = {"messages": [{"role": "user", "content": "q"}]}
    template = "Chat Completion with {request_data[model]!r}"
    bodies = {"request_data": json.dumps(request), "response_data": json.dumps(value)}
    return {"gen_ai.request.model": "m", "logfire.msg_template": template, **bodies}


WAYS = {
    "gen_ai, parts": lambda text: genai([{"role": "assistant", "parts": [{"type": "text", "content": text}]}]),
    "gen_ai, content": lambda text: genai([message(text)]),
    "gen_ai, choices": lambda text: genai([{"index": 0, "message": message(text), "finish_reason": "stop"}]),
    "gen_ai.prompt": lambda text: {
        **CHAT,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": text,
    },
    "openinference, body": lambda text: {"openinference.span.kind": "LLM", "output.value": json.dumps(choices(text))},
    "openinference, text": lambda text: {**OI, "output.value": text, "llm.output_messages.0.message.content": text},
    "langfuse, message": lambda text: LANGFUSE | {"langfuse.observation.output": json.dumps(message(text))},
    "langfuse, stream": lambda text: LANGFUSE | STREAMED | {"langfuse.observation.output": text},
    "langsmith": lambda text: {"langsmith.span.kind": "llm", "gen_ai.completion": json.dumps(choices(text))},
    "mlflow, body": lambda text: mlflow(choices(text)),
    "mlflow, text": mlflow,
    "laminar, text": lambda text: {"lmnr.span.type": "LLM", "lmnr.span.output": json.dumps(text)},
    "laminar, message": lambda text: {"lmnr.span.type": "LLM", "lmnr.span.output": json.dumps(message(text))},
    "logfire, message": lambda text: logfire({"message": message(text)}),
    "logfire, text": lambda text: logfire({"text": text}),
    "vercel": lambda text: {"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": text},
    "litellm": lambda text: {"llm.openai.choices": repr(choices(text)["choices"])},
    "pipecat": lambda text: {**CHAT, "stream": True, "input": '[{"role": "user", "content": "q"}]', "output": text},
}
"""How recorders write an answer, by dialect and way."""

SPANS = {"litellm": {"name": "raw_gen_ai_request"}, "pipecat": {"scope": "pipecat"}}


@pytest.mark.parametrize("text", [*SAID, *MEAN])
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_is_json_is_the_text_that_was_sampled(way, text):
    (choice,) = call(WAYS[way](text), **SPANS.get(way, {})).choices
    assert choice.message == Message(role="assistant", content=text)


EVENTS = {
    "choice, body": lambda text: log("gen_ai.choice", {"index": 0, "message": {"content": text}}),
    "choice, JSON": lambda text: log("gen_ai.choice", attributes={"message": json.dumps(message(text))}),
    "choice, text": lambda text: log("gen_ai.choice", attributes={"message": text}),
    "choice, content": lambda text: log("gen_ai.choice", attributes={"content": text}),
    "completion, JSON": lambda text: log(
        "gen_ai.content.completion", attributes={"gen_ai.completion": json.dumps([message(text)])}
    ),
    "completion, text": lambda text: log("gen_ai.content.completion", attributes={"gen_ai.completion": text}),
}


@pytest.mark.parametrize("text", SAID)
@pytest.mark.parametrize("way", EVENTS)
def test_an_answer_of_an_event_that_is_json_is_the_text_that_was_sampled(way, text):
    (choice,) = call(CHAT, [EVENTS[way](text)]).choices
    assert choice.message == Message(role="assistant", content=text)


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
