"""Parts of a message: texts, images, audio and files are equal whoever spelled them."""

import json

import pytest

from tests.conventions.builders import call, openinference
from tests.conventions.test_messages import URL, one

PNG = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("entry", "content"),
    [
        ({"role": "user", "content": "x"}, "x"),
        ({"role": "user", "content": ""}, ""),
        ({"role": "user", "content": None}, None),
        ({"role": "user"}, None),
        ({"role": "user", "parts": []}, None),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, "x"),
        ({"role": "user", "content": ["x"]}, "x"),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, "x"),
        ({"role": "user", "content": [{"text": "x"}]}, "x"),
        ({"role": "user", "parts": [{"type": "text", "content": ""}]}, ""),
        ({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}, None),
    ],
)
def test_content_is_text_or_unknown(entry, content):
    message = one(entry)
    assert (message.content, message.parts) == (content, None)


def test_several_texts_are_parts_and_joined():
    message = one({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})
    assert message.content == "ab"
    assert json.loads(message.parts) == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


DATA_IMAGES = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}]},
    {"role": "user", "parts": [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG}]},
    {
        "role": "user",
        "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}],
    },
    {
        "role": "user",
        "parts": [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": b"\x89PNG\r\n\x1a\n"}],
    },
]
URL_IMAGES = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": URL}]},
    {"role": "user", "parts": [{"type": "uri", "modality": "image", "mime_type": None, "uri": URL}]},
    {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": URL}}]},
    {"role": "user", "content": [{"type": "image", "image": {"url": URL}}]},
]


@pytest.mark.parametrize("entry", DATA_IMAGES)
def test_an_image_in_the_message(entry):
    message = one(entry)
    assert message.content is None
    assert json.loads(message.parts) == [{"type": "image", "data": PNG, "mime_type": "image/png"}]


@pytest.mark.parametrize("entry", URL_IMAGES)
def test_an_image_elsewhere(entry):
    assert json.loads(one(entry).parts) == [{"type": "image", "url": URL}]


def test_audio_and_files():
    audio = one(
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}
    )
    assert json.loads(audio.parts) == [{"type": "audio", "data": "AAAA", "mime_type": "audio/wav"}]
    spoken = one({"role": "assistant", "content": None, "audio": {"id": "a1", "data": "AAAA", "transcript": "hi"}})
    assert json.loads(spoken.parts) == [{"type": "audio", "data": "AAAA", "id": "a1", "transcript": "hi"}]
    files = one(
        {
            "role": "user",
            "content": [
                {"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}},
                {"type": "text", "text": "?"},
            ],
        }
    )
    assert json.loads(files.parts) == [
        {"type": "file", "file_id": "f1", "filename": "a.pdf"},
        {"type": "text", "text": "?"},
    ]
    assert files.content == "?"


def test_parts_of_unknown_types_stay_as_they_were():
    item = {"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}}
    assert json.loads(one(item).parts) == [item]


def test_an_openinference_image_is_the_same_image():
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": "look",
        "llm.input_messages.0.message.contents.1.message_content.type": "image",
        "llm.input_messages.0.message.contents.1.message_content.image.image.url": URL,
    }
    raw = {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, URL_IMAGES[0]["content"][0]]}],
    }
    assert call(attributes).input_messages == openinference(raw).input_messages
