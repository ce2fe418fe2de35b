"""The bytes of an event stream may be cut anywhere, and no stream is too strange."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.conventions.bodies.chunks import JoinedChunks
from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.exchange import StreamedAnswer, split
from art_otel.exchange.token_requests import RequestAdditions
from tests.examples import examples


@st.composite
def cut_streams(draw):
    """The bytes of a stream, cut anywhere."""
    events = draw(st.lists(st.sampled_from(EVENTS), max_size=8))
    data = b"".join(events)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    edges = [0, *cuts, len(data)]
    return data, [data[start:end] for start, end in pairwise(edges)]


EVENTS = [
    b'data: {"id": "a", "choices": [{"index": 0, "delta": {"content": "x\\n"}}]}\n\n',
    b'data:{"choices": [{"index": 1, "delta": {"content": "y"}}]}\r\n\r\n',
    b'event: e\ndata: {"choices":\ndata: [{"delta": {"content": "z"}}]}\n\n',
    b'data: {"choices":\r\ndata: [{"delta": {"content": "w"}}]}\r\n\r\n',
    b": a comment\n\n",
    b'id: 1\rdata: {"choices": [{"delta": {"content": "r"}}]}\r\r',
    b"data: [DONE]\n\n",
    b"data: no json\n\n",
    b"\n\n\r\n",
]


@given(cut_streams())
@settings(max_examples=examples(300))
def test_a_stream_may_be_cut_anywhere(cut):
    data, parts = cut
    one, other = StreamedAnswer(API_DIALECTS["chat"].assembler()), StreamedAnswer(API_DIALECTS["chat"].assembler())
    one.take(data)
    handed = []
    for part in parts:
        for piece in split(part):
            handed.append(piece)
            other.take(piece)
            assert other.failure is None  # which reads what has passed
    assert b"".join(handed) == data
    assert one.body() == other.body()


def test_a_stream_may_come_byte_by_byte():
    one, other = StreamedAnswer(API_DIALECTS["chat"].assembler()), StreamedAnswer(API_DIALECTS["chat"].assembler())
    one.take(b"".join(EVENTS))
    for byte in b"".join(EVENTS):
        other.take(bytes([byte]))
        assert other.failure is None  # which reads what has passed
    assert one.body() == other.body()


def test_reasoning_that_begins_with_null_is_joined():
    """The events of vLLM 0.32 with a reasoning parser, up to the last one, which has the whole response."""
    events = (Path(__file__).parent / "recorded" / "vllm_reasoning.sse").read_bytes()
    stream = StreamedAnswer(API_DIALECTS["responses"].assembler())
    stream.take(events.partition(b"event: response.output_item.done")[0])
    (joined,) = stream.body()["output"]
    stream.take(b"event: response.output_item.done" + events.partition(b"event: response.output_item.done")[2])
    (whole,) = stream.body()["output"]
    assert joined["content"] == whole["content"]


def test_a_first_chunk_that_names_nothing_names_nothing():
    """Azure's, about its filters."""
    named = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
    sent = [{"id": "", "model": "", "choices": [], "prompt_filter_results": []}, named]
    passed = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in sent)
    at_once, by_one = (StreamedAnswer(API_DIALECTS["chat"].assembler()) for _ in range(2))
    at_once.read(split(passed))
    by_one.take(passed)
    assert at_once.joined_chunks.head["id"] == by_one.joined_chunks.head["id"] == "c"
    assert at_once.body()["model"] == by_one.body()["model"] == "m"


@given(st.lists(st.binary()))
def test_no_stream_is_too_strange(parts):
    for api in API_DIALECTS.values():
        stream = StreamedAnswer(api.assembler())
        for part in parts:
            assert b"".join(split(part)) == part
            stream.take(part)
        stream.body()


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"error": {"message": "overloaded", "code": "busy"}}, "busy"),
        ({"error": {"message": "overloaded"}}, "APIError"),
        ({"error": "overloaded"}, "APIError"),
        ({"type": "error", "code": "busy", "message": "m"}, "busy"),
        ({"type": "response.failed", "response": {"error": {"code": "server_error"}}}, "server_error"),
        ({"choices": [], "error": None}, None),
    ],
)
def test_an_error_in_the_stream_is_told(event, error):
    stream = StreamedAnswer(API_DIALECTS["responses" if "type" in event else "chat"].assembler())
    stream.take(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert (stream.failure and stream.failure.type) == error


@st.composite
def chunks(draw):
    """A chunk of Chat Completions with a text or something else, and fields that a server may give or not."""
    number = draw(st.integers(0, 9))
    entry = {"token": f"t{number}}}", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    delta = draw(
        st.sampled_from(
            [
                {"content": f" word{number}"},
                {"content": ',"token_ids":[1], "usage": null'},
                {"content": "foodata: bar"},
                {"role": "assistant", "content": ""},
                {"role": None, "content": f"word{number}", "tool_calls": None},
                {"content": None},
                {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
                {"reasoning_content": "hm"},
                {},
            ]
        )
    )
    optional = {
        "token_ids": [number],
        "logprobs": draw(
            st.sampled_from(
                [
                    None,
                    {"content": [entry]},
                    {"content": [{**entry, "id": 7}]},
                    {"content": [{**entry, "token": f"token_id:{number}"}]},
                    {"content": []},
                    {"content": None},
                ]
            )
        ),
        "finish_reason": draw(st.sampled_from([None, None, "stop"])),
        "stop_reason": None,
    }
    names = draw(st.sets(st.sampled_from(sorted(optional))))
    index = draw(st.sampled_from([0, 0, 0, 1]))
    choice = {"index": index, "delta": delta, **{name: optional[name] for name in sorted(names)}}
    beside = draw(
        st.sampled_from(
            [
                {},
                {},
                {"usage": None},
                {"timings": {"predicted_n": number}},
                {"usage": {"completion_tokens": number}},
                {"prompt_token_ids": [number]},
                {"id": "d"},
                {"id": "", "model": ""},
            ]
        )
    )
    return {"id": "c", "model": "m", "choices": draw(st.sampled_from([[choice], [choice], []])), **beside}


@given(st.lists(chunks(), max_size=8), st.booleans(), st.sampled_from([None, (",", ":")]))
@settings(max_examples=examples(600))
def test_a_chunk_of_text_is_read_and_cut_as_any_other(sent, asks_all, separators):
    """What is read at once of most chunks is what reading them whole gives; so is what their reader gets."""
    asks = {"logprobs": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
    added = RequestAdditions(added=asks if asks_all else {"return_token_ids": True})
    streamed, joined = StreamedAnswer(API_DIALECTS["chat"].assembler()), JoinedChunks()
    for chunk in sent:
        data = json.dumps(chunk, separators=separators).encode()
        (event,) = streamed.take(b"data: %b\n\n" % data)
        joined.add(json.loads(data))
        passed, whole = added.without(event.text, event.data, event.chunk), added.without(event.text, event.data)
        assert (passed == b"") == (whole == b"")
        if passed:
            assert json.loads(passed.removeprefix(b"data: ")) == json.loads(whole.removeprefix(b"data: "))
    assert streamed.body() == joined.body()


@given(st.lists(chunks(), max_size=8), st.integers(0, 400), st.booleans(), st.sampled_from([None, 0, 1, 7, 150, 9999]))
@settings(max_examples=examples(600))
def test_many_chunks_are_read_at_once_as_one_by_one(sent, left, is_done, size):
    """Whatever they hold, wherever the stream is left, and in pieces of any size.

    None: an event each; 0: cut where a field of data begins, or a text that looks like one.
    """
    events = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in sent] + [b"data: [DONE]\n\n"] * is_done
    passed = b"".join(events)[left:] if left % 3 else b"".join(events)[: -left or None]
    pieces = re.split(b"(?=data:)", passed) if size == 0 else split(passed)
    if size:
        pieces = [passed[at : at + size] for at in range(0, len(passed), size)]
    at_once, by_one = (StreamedAnswer(API_DIALECTS["chat"].assembler()) for _ in range(2))
    if pieces:
        at_once.read(pieces)
    by_one.take(passed)
    joined = at_once.joined_chunks.json()
    assert at_once.body() == by_one.body() == json.loads(by_one.joined_chunks.json()) == json.loads(joined)
    assert (at_once.is_done, at_once.is_over, at_once.rest()) == (by_one.is_done, by_one.is_over, by_one.rest())
