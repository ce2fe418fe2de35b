"""Content: images and audio are parts and files, and what ATIF has no words for is in extra."""

import base64
import json
from collections import Counter

import pytest

from art_otel.calls import Message
from exporters.atif.tests.documents import encoded, one_document
from tests.data.rollouts import assistant, call, chat, rollout, user

DOT = base64.b64encode(b"\x89PNG dot").decode()


def test_what_atif_has_no_field_for_is_in_extra():
    asked = call(
        0,
        [Message(role="developer", content="d"), Message(role="critic", content="c", name="n", tool_call_id="t")],
        assistant(None, refusal="no"),
        step=0,
        stream=False,
        response_id="x",
        parameters={"temperature": 0},
        tools=({"type": "function"}, "search"),
    )
    document, changed = one_document(rollout([asked, call(1, [user("q")], error="boom")], metadata={"level": 1}))
    developer, critic, agent = document["steps"]
    assert (developer["source"], developer["extra"]) == ("system", {"role": "developer"})
    assert (critic["source"], critic["extra"]) == ("user", {"role": "critic", "name": "n", "tool_call_id": "t"})
    told = {"refusal": "no", "step": 0, "stream": False, "response_id": "x", "parameters": {"temperature": 0}}
    assert told.items() <= agent["extra"].items()
    assert document["agent"] == {
        "name": "unknown",
        "version": "unknown",
        "tool_definitions": [{"type": "function"}],
        "extra": {"tool_definitions": ["search"]},
    }
    assert document["extra"]["metadata"] == {"level": 1}
    ((failed),) = document["extra"]["calls_without_completion"]
    assert (failed["span_id"], failed["error"]) == (f"{2:016x}", "boom")
    assert changed == {
        "messages with a role that ATIF does not have, written as user messages": 1,
        "tool definitions that are not objects, put into extra": 1,
    }


SHOWN = {
    "bytes": {"type": "image", "data": DOT, "mime_type": "image/jpg"},
    "url": {"type": "image", "url": "https://example.org/a/b.webp?c=d"},
    "sound": {"type": "audio", "url": "s3://bucket/x", "mime_type": "audio/mp3"},
}
UNSAID = {
    "no base64": {"type": "image", "data": "?", "mime_type": "image/png"},
    "a path": {"type": "image", "url": "a/b.png"},
    "another kind": {"type": "image", "url": "https://example.org/a.mp3"},
    "another MIME type": {"type": "image", "url": "https://example.org/a", "mime_type": "image/tiff"},
    "no URL": {"type": "image", "url": "http://[x/a.png"},
    "nothing": {"type": "audio"},
    "a file": {"type": "file", "id": "f"},
}


def with_parts(*parts: dict) -> Message:
    return Message(role="user", content="Look:", parts=json.dumps([{"type": "text", "text": "Look:"}, *parts]))


def test_images_and_audio_are_parts_and_recorded_bytes_are_files():
    trajectory = rollout(chat(with_parts(*SHOWN.values()), assistant("a")))
    files, stats = encoded(trajectory)
    document = json.loads(files.pop("r.json"))
    text, dot, url, sound = document["steps"][0]["message"]
    assert text == {"type": "text", "text": "Look:"}
    assert files == {dot["source"]["path"]: b"\x89PNG dot"}
    assert dot["source"]["path"].startswith("r.media/")
    assert dot["source"]["media_type"] == "image/jpeg"
    assert url["source"] == {"media_type": "image/webp", "path": "https://example.org/a/b.webp?c=d"}
    assert sound == {"type": "audio", "source": {"media_type": "audio/mpeg", "path": "s3://bucket/x"}}
    assert +stats.changed == Counter()


@pytest.mark.parametrize("part", UNSAID.values(), ids=UNSAID)
def test_content_that_atif_has_no_words_for_is_in_extra(part):
    document, changed = one_document(rollout(chat(with_parts(part), assistant("a"))))
    assert document["steps"][0]["message"] == "Look:"
    assert document["steps"][0]["extra"] == {"parts": [part]}
    assert changed == {"content that ATIF cannot hold, put into extra": 1}


def test_parts_that_are_no_strict_json_stay_as_text():
    parts = '[{"type": "image", "width": 1e999}]'
    document, changed = one_document(rollout(chat(Message(role="user", content="x", parts=parts), assistant("a"))))
    assert document["steps"][0]["extra"] == {"parts": [parts]}
    assert changed == {"content that ATIF cannot hold, put into extra": 1}


def test_files_have_safe_names_of_their_own():
    ids = ["a", "A", "../x", "..", "", "_export", "é" * 300, "a b", "a/b", "a-b", "x" * 101]
    rollouts = [rollout(chat(user("q"), assistant("a")), name, attempt=attempt) for name in ids for attempt in (0, 1)]
    files, _ = encoded(*rollouts, *rollouts)
    assert len({name.casefold() for name in files}) == len(files) == 4 * len(ids)
    assert {"a.json", "a.attempt-1.json", "A-2.json", "a-b.json"} <= files.keys()
    assert all(name.isascii() and "/" not in name and name[0].isalnum() and len(name) < 130 for name in files)
