"""Chat messages: OpenAI's words for what a message says."""

import json

import pytest
from hypothesis import given

from art_otel.calls import Message
from art_otel.conventions.bodies.messages import messages_of
from art_otel.data.retokenize import template_message
from art_otel.testing import messages
from art_otel.trajectories import chat_message, is_text
from tests.data.rollouts import answer, assistant, looking, user

IMAGE = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}
DATA = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}
FILE = {"type": "file", "file": {"file_id": "f-1", "filename": "a.pdf"}}
OWN = {"type": "molecule", "atoms": 3}


def test_a_plain_message():
    assert chat_message(user("hello")) == {"role": "user", "content": "hello"}


def test_a_tool_call_keeps_its_arguments_as_text():
    function = {"name": "look", "arguments": '{"city":"Paris"}'}
    expected = {"role": "assistant", "content": None}
    assert chat_message(looking()) == expected | {
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}]
    }
    assert chat_message(answer("sunny")) == {"role": "tool", "content": "sunny", "tool_call_id": "call_0"}


@pytest.mark.parametrize("part", [IMAGE, DATA, AUDIO, FILE, OWN], ids=lambda part: part["type"])
def test_what_a_user_sent_comes_back(part):
    """Through the reader of recordings and back."""
    sent = {"role": "user", "content": [{"type": "text", "text": "what is this?"}, part]}
    (read,) = messages_of(sent)
    assert chat_message(read) == sent
    assert not is_text(read)


def test_text_in_parts_is_text():
    (read,) = messages_of({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})
    assert is_text(read)
    assert chat_message(read)["content"] == read.content


@pytest.mark.parametrize("parts", ["no JSON", "3", '{"type": "image"}', "[1, 2]"])
def test_parts_that_are_none_cost_nothing(parts):
    message = Message(role="user", content="hello", parts=parts)
    assert chat_message(message)["content"] == "hello"


def test_an_image_that_is_nowhere_stays_as_it_was():
    part = {"type": "image", "id": "i-1"}
    message = Message(role="user", parts=json.dumps([part, {"type": "audio", "id": "a-1"}, {"type": "file"}]))
    assert chat_message(message)["content"] == [part, {"type": "audio", "id": "a-1"}, {"type": "file"}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"b": 1, "a": [2]}', {"b": 1, "a": [2]}),
        ("", {}),
        (" ", {}),
        ("[1]", "[1]"),
        ("{cut", "{cut"),
        (r'{"q": "\ud83d"}', r'{"q": "\ud83d"}'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_templates_get_arguments_as_objects(arguments, expected):
    (found,) = template_message(looking(arguments))["tool_calls"]
    assert found["function"] == {"name": "look", "arguments": expected}


def test_templates_get_text():
    assert template_message(assistant(None, refusal="I will not")) == {"role": "assistant", "content": "I will not"}
    assert template_message(looking())["content"] == ""
    assert template_message(assistant("a", reasoning="b"))["reasoning_content"] == "b"


@given(messages())
def test_no_message_is_refused(message):
    assert chat_message(message)["role"] == template_message(message)["role"] == message.role
