"""SGLang is asked for token ids as it wants to be asked, streams too, and the call has all that it sampled."""

import asyncio
import logging

import openai
import pytest

from tests.tracing import sglang
from tests.tracing.openai.expected import check_whole
from tests.tracing.openai.instrumented import MODEL
from tests.tracing.server import ModelServer

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi #think=1"}]}
STREAM = {**ASK, "stream": True}
USAGE = {"stream_options": {"include_usage": True}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ModelServer(tmp_path_factory.mktemp("sglang"), "--sglang") as running:
        yield running


def since(server, before):
    return server.exchanges()[before:]


def test_all_that_was_sampled_is_in_the_calls(app, server, caplog):
    before = len(server.exchanges())
    asks = [
        ASK,
        {**ASK, "n": 3},
        STREAM,
        {**STREAM, "n": 3},
        {**STREAM, **USAGE},
        {**STREAM, "messages": [{"role": "user", "content": "Hi #calls=2"}], "tools": [TOOL]},
    ]
    with caplog.at_level(logging.WARNING, "art_otel"), app.client() as client, app.rollout():
        for ask in asks:
            answer = client.chat.completions.create(**ask)
            assert list(answer) if ask.get("stream") else answer.choices
    exchanges = since(server, before)
    assert [exchange.status for exchange in exchanges] == [200, 200, 400, 200, 200, 200, 200], "refused once"
    assert [sglang.OUTPUT_IDS in exchange.headers for exchange in exchanges] == [False] * 3 + [True] * 4
    assert not caplog.records
    calls = app.calls()
    assert len(calls) == len(asks)
    for call in calls:
        check_whole(call, server)
        assert all(choice.token_ids and choice.logprobs for choice in call.choices)
        assert call.logprobs_mode == "tempered"


@pytest.mark.parametrize("asks_usage", [False, True])
def test_the_chunk_with_the_ids_is_kept_from_an_app_that_expects_choices_in_each(app, asks_usage):
    with app.client() as client, app.rollout():
        chunks = list(client.chat.completions.create(**STREAM, **(USAGE if asks_usage else {})))
    assert [bool(chunk.choices) for chunk in chunks[:-1]] == [True] * (len(chunks) - 1)
    assert (chunks[-1].usage is not None and not chunks[-1].choices) == asks_usage
    assert all("sglext" not in (chunk.model_extra or {}) for chunk in chunks)
    assert app.call().choices[0].token_ids


def test_an_async_stream_is_asked_for_its_ids(app, server):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                for _ in range(2):
                    assert [chunk async for chunk in await client.chat.completions.create(**STREAM)]

    before = len(server.exchanges())
    asyncio.run(main())
    assert [exchange.status for exchange in since(server, before)] == [400, 200, 200]
    for call in app.calls():
        check_whole(call, server)


def test_a_stream_that_broke_has_no_ids(app):
    with app.client() as client, app.rollout(), pytest.raises(openai.APIError):
        list(client.chat.completions.create(**STREAM | {"messages": [{"role": "user", "content": "Hi #break=3"}]}))
    (choice,) = app.call().choices
    assert choice.message.content
    assert choice.token_ids is None


def test_what_the_app_asks_for_is_refused_to_the_app(app, server):
    with app.client() as client, app.rollout(), pytest.raises(openai.BadRequestError, match="not supported"):
        client.chat.completions.create(**STREAM, extra_body={"return_token_ids": True})
    before = len(server.exchanges())
    with app.client() as client, app.rollout():
        list(client.chat.completions.create(**STREAM, extra_headers={sglang.INPUT_IDS: "0"}))
    assert since(server, before)[-1].headers[sglang.INPUT_IDS] == "0", "what the app says stands"
