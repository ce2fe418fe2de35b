"""One message is equal whoever spelled it."""

import json

import pytest

from art_otel.calls import Message, ToolCall
from art_otel.conventions.bodies.messages import join_assistant_messages, parse
from art_otel.conventions.facts import compatible
from art_otel.errors import ParseError
from tests.conventions.builders import genai

URL = "https://example.org/cat.png"


def one(entry):
    (message,) = parse([entry])
    return message


CALL = ToolCall(id="c1", name="f", arguments='{"a": 1}')


@pytest.mark.parametrize(
    "entry",
    [
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": '{"a": 1}'}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": '{"a": 1}'},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "f", "input": '{"a": 1}'}}],
        },
        {"role": "ai", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "f", "args": '{"a": 1}'}]},
    ],
)
def test_tool_calls_kept_as_text_are_exact(entry):
    assert one(entry) == Message(role="assistant", tool_calls=(CALL,))


def test_botocore_leaves_empty_arguments_out_beside_the_content():
    called = {"id": "c1", "type": "function", "function": {"name": "now"}}
    content = [{"toolUse": {"toolUseId": "c1", "name": "now", "input": {}}}]
    (call,) = one({"role": "assistant", "content": content, "tool_calls": [called]}).tool_calls
    assert (call.id, call.name, call.arguments) == ("c1", "now", "{}")


@pytest.mark.parametrize(
    "entry",
    [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": {"a": 1}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "f", "args": {"a": 1}}]},
    ],
)
def test_tool_calls_kept_as_objects_are_written_with_default_separators(entry):
    assert one(entry) == Message(
        role="assistant", tool_calls=(ToolCall(id="c1", name="f", arguments='{"a": 1}', exact=False),)
    )


def test_arguments_keep_their_letters():
    parts = [{"type": "tool_call", "name": "f", "arguments": {"ort": "Zürich"}}]
    assert one({"role": "assistant", "parts": parts}).tool_calls[0].arguments == '{"ort": "Zürich"}'


def test_the_deprecated_single_function_call():
    entry = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}}
    assert one(entry) == Message(role="assistant", tool_calls=(ToolCall(name="f", arguments='{"a": 1}'),))
    assert one({"role": "function", "name": "f", "content": "1"}) == Message(role="function", name="f", content="1")


@pytest.mark.parametrize(
    "entry",
    [
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "id": "c1", "content": "sunny"},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "sunny"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "sunny"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sunny"}]}],
        },
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    ],
)
def test_answers_to_tool_calls(entry):
    assert one(entry) == Message(role="tool", tool_call_id="c1", content="sunny")


@pytest.mark.parametrize(("response", "content"), [([], "[]"), ([1], "[1]"), (5, "5"), (None, None), ("", "")])
def test_answers_that_are_no_text_are_json(response, content):
    part = {"type": "tool_call_response", "id": "c1", "response": response}
    assert one({"role": "tool", "parts": [part]}) == Message(role="tool", tool_call_id="c1", content=content)


def test_arguments_that_no_json_can_hold_make_the_message_unreadable():
    with pytest.raises(ParseError):
        one({"role": "assistant", "parts": [{"type": "tool_call", "name": "f", "arguments": {"a": b"x"}}]})


def test_several_answers_in_one_message_are_several_messages():
    entry = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": {"x": 2}},
            {"type": "text", "text": "go on"},
        ],
    }
    assert parse([entry]) == (
        Message(role="tool", tool_call_id="a", content="1"),
        Message(role="tool", tool_call_id="b", content='{"x": 2}'),
        Message(role="user", content="go on"),
    )


@pytest.mark.parametrize(
    "entry",
    [
        {"role": "assistant", "content": "yes", "reasoning_content": "hm"},
        {"role": "assistant", "content": "yes", "reasoning": "hm"},
        {"role": "assistant", "parts": [{"type": "text", "content": "yes"}, {"type": "reasoning", "content": "hm"}]},
        {"role": "assistant", "parts": [{"type": "thinking", "content": "hm"}, {"type": "text", "content": "yes"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": '[{"text": "hm", "type": "summary_text"}]'},
                {"type": "text", "content": "yes"},
            ],
        },
    ],
)
def test_reasoning_stands_apart_whatever_the_order(entry):
    assert one(entry) == Message(role="assistant", content="yes", reasoning="hm")


@pytest.mark.parametrize(
    ("recorded", "reasoning"), [("[1] is odd", "[1] is odd"), ("[1]", "[1]"), ("[]", None), ("", None)]
)
def test_reasoning_that_only_looks_like_a_list_of_summaries_stays(recorded, reasoning):
    assert one({"role": "assistant", "parts": [{"type": "reasoning", "content": recorded}]}).reasoning == reasoning


def test_reasoning_items_have_summaries_or_content():
    item = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
    }
    assert one(item) == Message(role="assistant", reasoning="a\nb")
    assert (
        one({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]}).reasoning == "a"
    )


@pytest.mark.parametrize(
    "entry",
    [
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "parts": [{"type": "refusal", "content": "no"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ],
)
def test_refusals(entry):
    assert one(entry) == Message(role="assistant", refusal="no")


@pytest.mark.parametrize(
    "entries",
    [
        None,
        5,
        "text",
        {},
        [1],
        [["nested"]],
        [{}],
        [{"content": "no role"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "assistant", "tool_calls": [1]}],
        [{"lc": 1, "type": "constructor", "kwargs": {}}],
    ],
)
def test_what_is_no_message_list_is_refused_whole(entries):
    with pytest.raises(ParseError):
        parse(entries)


def test_items_coalesce_between_others_turns():
    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "summary": [{"text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
    ]
    user, asked, answer, said = join_assistant_messages(parse(items))
    assert (user.role, answer.role) == ("user", "tool")
    assert asked == Message(role="assistant", content="a", reasoning="hm", tool_calls=(CALL,))
    assert said.content == "bc"
    assert json.loads(said.parts) == [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]


def test_a_run_of_items_is_what_joining_them_one_by_one_gives():
    run = parse(
        [
            {"role": "assistant", "content": ""},
            {"role": "assistant", "name": "a", "content": [{"type": "input_image", "image_url": URL}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"role": "assistant", "name": "b", "content": [{"type": "text", "text": "x"}, {"type": "odd", "n": 1.5}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "y"}]},
        ]
    )
    one_by_one = run[:1]
    for message in run[1:]:
        one_by_one = join_assistant_messages((*one_by_one, message))
    assert join_assistant_messages(run) == one_by_one
    assert (one_by_one[0].name, one_by_one[0].content) == ("a", "xy")


def test_a_long_run_of_items_is_joined_at_once():
    (said,) = join_assistant_messages(parse([{"role": "assistant", "content": "x"}] * 50_000))
    assert said.content == "x" * 50_000


def test_assistant_messages_of_a_chat_stay_apart():
    messages = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert len(genai(messages).input_messages) == 2
    assert len(genai(messages, attributes={"openai.api.type": "responses"}).input_messages) == 1


def test_roles_keep_their_names_except_other_words_for_assistant_and_user():
    roles = ["developer", "system", "human", "ai", "model", "critic"]
    found = [message.role for message in parse([{"role": role, "content": "x"} for role in roles])]
    assert found == ["developer", "system", "user", "assistant", "assistant", "critic"]
    assert one({"type": "human", "content": "x"}).role == "user"


def test_compatible_means_nothing_known_differs():
    message = Message(role="assistant", content="x", tool_calls=(CALL,))
    assert compatible(message, Message(role="assistant", content="x", reasoning="r", name="n"))
    assert compatible(
        message, Message(role="assistant", tool_calls=(ToolCall(id="other", name="f", arguments='{"a":1}'),))
    )
    assert not compatible(message, Message(role="assistant", content="y"))
    assert not compatible(message, Message(role="user", content="x"))
    assert not compatible(message, Message(role="assistant", content="x", tool_calls=(CALL, CALL)))
