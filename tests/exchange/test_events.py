"""The bytes of an event stream may be cut anywhere, and no stream is too strange."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.exchange.assembly import ASSEMBLERS
from art_otel.exchange.exchange import StreamedAnswer, split
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
    one, other = StreamedAnswer(ASSEMBLERS["chat"]()), StreamedAnswer(ASSEMBLERS["chat"]())
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
    one, other = StreamedAnswer(ASSEMBLERS["chat"]()), StreamedAnswer(ASSEMBLERS["chat"]())
    one.take(b"".join(EVENTS))
    for byte in b"".join(EVENTS):
        other.take(bytes([byte]))
        assert other.failure is None  # which reads what has passed
    assert one.body() == other.body()


def test_reasoning_that_begins_with_null_is_joined():
    """The events of vLLM 0.32 with a reasoning parser, up to the last one, which has the whole response."""
    events = (Path(__file__).parent / "recorded" / "vllm_reasoning.sse").read_bytes()
    stream = StreamedAnswer(ASSEMBLERS["responses"]())
    stream.take(events.partition(b"event: response.output_item.done")[0])
    (joined,) = stream.body()["output"]
    stream.take(b"event: response.output_item.done" + events.partition(b"event: response.output_item.done")[2])
    (whole,) = stream.body()["output"]
    assert joined["content"] == whole["content"]


@given(st.lists(st.binary()))
def test_no_stream_is_too_strange(parts):
    for assembler in ASSEMBLERS.values():
        stream = StreamedAnswer(assembler())
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
    stream = StreamedAnswer(ASSEMBLERS["responses" if "type" in event else "chat"]())
    stream.take(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert (stream.failure and stream.failure.type) == error
