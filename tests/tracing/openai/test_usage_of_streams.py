"""A stream is asked for its usage, against which its ids are counted; an app that did not ask sees nothing of that."""

import asyncio
import json
import time
from contextlib import AbstractContextManager

import pytest

from art_otel.tracing.openai import install
from tests.gaps import kinds
from tests.stand_ins import Handler, listening
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented
from tests.tracing.server import ModelServer

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
STREAM = {**CHAT, "stream": True}
BOTH = {"include_usage": True, "continuous_usage_stats": True}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}


def chat(client) -> list:
    return list(client.chat.completions.create(**STREAM))


def completions(client) -> list:
    return list(client.completions.create(model=MODEL, prompt="Once", stream=True))


def helper(client) -> list:
    with client.chat.completions.stream(**CHAT) as stream:
        return [event.chunk for event in stream if event.type == "chunk"]


def raw(client) -> list:
    return list(client.chat.completions.with_raw_response.create(**STREAM).parse())


def lines(client) -> list:
    with client.chat.completions.with_streaming_response.create(**STREAM) as response:
        read = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {")]
    return [json.loads(line) for line in read]


def whole_body(client) -> list:
    with client.chat.completions.with_streaming_response.create(**STREAM) as response:
        events = response.read().decode().split("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in events if "{" in event]


def choices(chunk) -> list:
    return chunk["choices"] if isinstance(chunk, dict) else chunk.choices


@pytest.mark.parametrize("read", [chat, completions, helper, raw, lines, whole_body], ids=lambda read: read.__name__)
def test_the_usage_that_the_app_did_not_ask_for_is_recorded_and_hidden(app, server, read):
    with app.client() as client, app.rollout():
        chunks = read(client)
    assert len(chunks) > 3
    assert all(map(choices, chunks))
    exchange = server.exchanges()[-1]
    assert exchange.body["stream_options"] == {"include_usage": True}
    assert app.call().usage.output_tokens == exchange.answer["usage"]["completion_tokens"]
    assert app.call().choices[0].token_ids.tolist() == exchange.answer["choices"][0]["token_ids"]


def test_an_async_stream_is_asked_too(app, server):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                return [chunk async for chunk in await client.chat.completions.create(**STREAM)]

    assert all(map(choices, asyncio.run(main())))
    assert app.call().usage.output_tokens == server.exchanges()[-1].answer["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"include_usage": True}, {"include_usage": True}),
        (BOTH, BOTH),
        ({"include_usage": False}, {"include_usage": True}),
        ({"continuous_usage_stats": True}, {"include_usage": True}),
        ({"include_obfuscation": False}, {"include_obfuscation": False, "include_usage": True}),
    ],
)
def test_the_app_gets_the_usage_that_it_asked_for(app, server, asked, sent):
    with app.client() as client, app.rollout():
        chunks = list(client.chat.completions.create(**STREAM, stream_options=asked))
    assert server.exchanges()[-1].body["stream_options"] == sent
    assert (not chunks[-1].choices) == bool(asked.get("include_usage"))
    assert (chunks[-1].usage is not None) == bool(asked.get("include_usage"))
    assert app.call().usage.output_tokens


def test_only_streams_that_have_none_are_asked(app, server):
    with app.client() as client, app.rollout():
        client.chat.completions.create(**CHAT)
        list(client.responses.create(model=MODEL, input="Hi", stream=True))
    assert all("stream_options" not in exchange.body for exchange in server.exchanges()[-2:])


def test_a_streamed_tool_call_that_lost_ids_is_miscounted(tmp_path, instrumentor, uninstalled):  # noqa: ARG001 # undoes
    """As vLLM's parsers lose those that they hold back (vllm 27482, 29074)."""
    with ModelServer(tmp_path, "--loses-a-token") as losing:
        app = Instrumented(losing.url)
        install(request_tokens=True)
        with instrumented(instrumentor, app.provider), app.client() as client, app.rollout():
            list(client.chat.completions.create(**STREAM, tools=[TOOL]))
    call = app.call()
    assert call.choices[0].message.tool_calls
    assert kinds(call) == ("miscounted",)
    assert call.choices[0].token_ids is None


@pytest.mark.parametrize("more", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_with_tools_that_nobody_counted_says_so(traced, more):
    """Where the app asks for ids itself, and nobody for the usage."""
    ids = {"logprobs": True, "extra_body": {"return_token_ids": True}}
    with traced.client() as client, traced.rollout():
        list(client.chat.completions.create(**STREAM, **ids, **more, tools=[TOOL]))
        list(client.chat.completions.create(**STREAM, **ids, **more))
    assert [call.is_uncounted for call in traced.calls()] == [not more, False]
    assert all(call.choices[0].token_ids for call in traced.calls())


def chunk(**fields) -> bytes:
    return b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, **fields}).encode()


def said(text: str, **more) -> bytes:
    return chunk(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": None, **more}])


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
AZURE = chunk(choices=[], prompt_filter_results=[{"prompt_index": 0}], usage=None)
QUOTING = said('say "choices": [] and {"choices": [], "usage": {}}', token_ids=[7])
ODD = [
    AZURE,
    QUOTING,
    chunk(choices=[], service_tier="x"),
    said("!", finish_reason="stop", token_ids=[8], logprobs=None),
    chunk(choices=[], usage=USAGE),
]
"""What an app that did not ask for usage gets, but for the last."""


def odd_server(end: bytes, size: int, *, is_ended: bool) -> AbstractContextManager[str]:
    """Streams the events with these ends, in pieces of so many bytes; the first byte of the last one comes alone."""
    stream = end.join([*ODD, b"data: [DONE]", b""]) if is_ended else end.join(ODD)
    last = stream.rindex(ODD[-1])

    class Streaming(Handler):
        def answer(self, body: bytes) -> None:  # noqa: ARG002 # whatever it is
            self.head(200, content_type="text/event-stream", content_length=len(stream))
            for start in range(0, len(stream), size):
                if size == 1 and last <= start <= last + 1:
                    time.sleep(0.05)
                self.wfile.write(stream[start : start + size])

    return listening(Streaming)


@pytest.mark.usefixtures("uninstalled")
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize(("size", "is_ended"), [(100_000, True), (7, True), (1, False), (64, False)])
def test_nothing_else_is_hidden_however_it_comes(end, size, is_ended):
    with odd_server(end, size, is_ended=is_ended) as url:
        app = Instrumented(f"{url}/v1")
        install(request_tokens=True)
        with instrumented("genai", app.provider), app.client() as client, app.rollout():
            parsed = list(client.chat.completions.create(**STREAM))
            with client.chat.completions.with_streaming_response.create(**STREAM) as response:
                body = b"".join(response.iter_bytes())
    assert [len(one.choices) for one in parsed] == [0, 1, 0, 1]
    assert body == b"".join(event + end for event in ODD[:-1]) + (b"data: [DONE]" + end if is_ended else b"")
    first, second = app.calls()
    for call in (first, second):
        assert call.choices[0].token_ids.tolist() == [7, 8]
        # An event that never ended is none.
        assert (call.usage is not None and call.usage.output_tokens == 2) == is_ended
