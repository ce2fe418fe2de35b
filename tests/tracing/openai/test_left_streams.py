"""Streams that are not read to their end: what had come is there, and why no more came."""

import asyncio
import gc
import logging
import weakref

import openai
import pytest

from art_otel.tracing.openai import install
from tests.gaps import unread
from tests.tracing.openai.expected import check_beginning, exchange_of
from tests.tracing.openai.instrumented import MODEL

READ = 5


def ask(text):
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": True}


def read_some(stream):
    for at, _ in enumerate(stream, 1):
        if at == READ:
            return


async def async_read_some(stream):
    at = 0
    async for _ in stream:
        at += 1
        if at == READ:
            return


def check_read(app, server, tokens=READ - 1, closed_by_app=None):
    """The call has the tokens that the app read: all chunks but the first, which says the role."""
    call = app.call()
    (choice,) = call.choices
    sent = exchange_of(call, server).answer
    check_beginning(choice, sent["choices"][0])
    assert len(choice.token_ids) == tokens
    assert choice.finish_reason is None
    assert call.prompt_token_ids.tolist() == sent["prompt_token_ids"]
    assert unread(call) == ()
    assert call.closed_by_app == closed_by_app
    return call


def close(chat):
    stream = chat.create(**ask("Hi"))
    read_some(stream)
    stream.close()


def leave_block(chat):
    with chat.create(**ask("Hi")) as stream:
        read_some(stream)


def abandon(chat):
    read_some(chat.create(**ask("Hi")))


@pytest.mark.parametrize("leave", [close, leave_block, abandon], ids=lambda leave: leave.__name__)
def test_a_stream_that_is_left(app, server, leave):
    with app.client() as client, app.rollout():
        leave(client.chat.completions)
        assert len(app.ended) == 1, "the span of the call ended in its rollout"
    check_read(app, server, closed_by_app="left")


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_stream_that_is_closed_before_an_answer_came_is_one_that_was_left(app, api):
    with app.client() as client, app.rollout():
        if api == "chat":
            stream = client.chat.completions.create(**ask("Hi"))
        else:
            stream = client.responses.create(model=MODEL, input="Hi", stream=True)
            assert next(iter(stream)).type == "response.created"
        stream.close()
        del stream
    call = app.call()
    assert [(choice.message.content, choice.finish_reason) for choice in call.choices] == [(None, None)]
    assert call.gaps == ()  # what the app does is no gap in the recording


def test_a_helper_that_is_left(app, server, instrumentor):
    gc.freeze()  # what was there before need not be looked at
    with app.client() as client, app.rollout():
        with client.chat.completions.stream(model=MODEL, messages=ask("Hi")["messages"]) as events:
            for event in events:
                if event.type == "content.delta" and event.snapshot.count(" ") == 3:
                    break
        if instrumentor == "openllmetry":
            assert len(app.ended) == 1
        del events, event
        gc.collect()  # the others end a span that the helper left only when the helper is gone
    call = app.call()
    check_beginning(call.choices[0], exchange_of(call, server).answer["choices"][0])


async def async_close(chat):
    stream = await chat.create(**ask("Hi"))
    await async_read_some(stream)
    await stream.close()


async def async_leave_block(chat):
    async with await chat.create(**ask("Hi")) as stream:
        await async_read_some(stream)


@pytest.mark.parametrize("leave", [async_close, async_leave_block], ids=lambda leave: leave.__name__)
def test_an_async_stream_that_is_left(app, server, leave):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                await leave(client.chat.completions)
                assert len(app.ended) == 1

    asyncio.run(main())
    check_read(app, server, closed_by_app="left")


def test_a_stream_that_breaks(app, server):
    with app.client() as client, app.rollout():
        with pytest.raises(openai.APIConnectionError):
            list(client.chat.completions.create(**ask(f"Hi #break={READ}")))
        assert len(app.ended) == 1
    call = check_read(app, server)
    assert call.error_type in ("RemoteProtocolError", "openai.APIConnectionError")


def test_an_async_stream_that_breaks(app, server):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                with pytest.raises(openai.APIConnectionError):
                    async for _ in await client.chat.completions.create(**ask(f"Hi #break={READ}")):
                        pass
                assert len(app.ended) == 1

    asyncio.run(main())
    assert check_read(app, server).failed


def cancelled(app, run):
    """Run something with an async client in a rollout, and cancel it from within; True when the span had ended."""

    async def main():
        async with app.async_client() as client:
            with app.rollout():
                task = asyncio.create_task(run(client, lambda: task.cancel()))  # noqa: PLW0108 # task is to come
                with pytest.raises(asyncio.CancelledError):
                    await task
                return len(app.ended) == 1

    return asyncio.run(main())


def test_a_stream_that_is_cancelled(app, server):
    async def run(client, cancel):
        at = 0
        async for _ in await client.chat.completions.create(**ask("Hi #pace=0.2")):
            at += 1
            if at == READ:
                cancel()  # takes effect where the next chunk is waited for, so it must not be here yet

    assert cancelled(app, run)
    assert check_read(app, server).error_type.endswith("CancelledError")


def test_a_call_that_is_cancelled(app):
    async def run(client, cancel):
        asyncio.get_running_loop().call_later(0.2, cancel)
        await client.chat.completions.create(**(ask("Hi #delay=1") | {"stream": False}))

    assert cancelled(app, run)
    call = app.call()
    assert call.error_type.endswith("CancelledError")
    assert call.input_messages


def test_a_stream_that_an_interrupt_ends(app, server):
    with app.client() as client, app.rollout():
        stream = client.chat.completions.create(**ask("Hi"))
        with pytest.raises(KeyboardInterrupt), stream:  # noqa: PT012 # the stream is left by the interrupt
            read_some(stream)
            raise KeyboardInterrupt
        assert len(app.ended) == 1
    check_read(app, server, closed_by_app="left")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_text_stream_that_is_left(app, server, is_async):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                stream = await client.completions.create(model=MODEL, prompt="Hi", stream=True)
                await async_read_some(stream)
                await (stream.aclose if hasattr(stream, "aclose") else stream.close)()
                del stream

    if is_async:
        asyncio.run(main())
    else:
        with app.client() as client, app.rollout():
            stream = client.completions.create(model=MODEL, prompt="Hi", stream=True)
            read_some(stream)
            stream.close()
            del stream
    call = app.call()
    check_beginning(call.choices[0], exchange_of(call, server).answer["choices"][0], READ)


def test_a_response_stream_that_is_left(app, server):
    with app.client() as client, app.rollout():
        stream = client.responses.create(model=MODEL, input="Hi", stream=True)
        text = ""
        for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
                if text.count(" ") == 3:
                    break
        stream.close()
    call = app.call()
    assert call.end_ns is not None
    assert exchange_of(call, server)
    assert [choice.message.content for choice in call.choices] == [text]


def test_a_response_stream_that_is_dropped(app, server):
    with app.client() as client, app.rollout():
        for event in client.responses.create(model=MODEL, input="Hi", stream=True):
            if event.type == "response.output_text.delta":
                break
    assert app.exporter.get_finished_spans()[-1].name == "rollout test", "the call ended before its rollout"
    call = app.call()
    assert exchange_of(call, server)
    assert [choice.finish_reason for choice in call.choices] == [None]


@pytest.mark.long
def test_no_garbage_is_collected_for_a_stream(app):
    """To collect the heap of a trainer takes seconds. What is dropped is gone by itself, what is held goes on."""
    gc.collect()
    gc.disable()
    collected = []
    gc.callbacks.append(lambda phase, _: collected.append(phase))
    try:
        with app.client() as client:
            with app.rollout():
                read_some(client.responses.create(model=MODEL, input="Hi", stream=True))
            assert [span.name for span in app.exporter.get_finished_spans()][-1] == "rollout test"
            with app.rollout():
                held = client.responses.create(model=MODEL, input="Hi", stream=True)
                read_some(held)
            assert collected == []
            read_some(held)
            held.close()
    finally:
        gc.callbacks.pop()
        gc.enable()


@pytest.mark.parametrize("use", [list, lambda stream: (read_some(stream), stream.close())], ids=["read", "closed"])
def test_a_stream_is_gone_with_its_connection_once_nobody_holds_it(app, use):
    """Else each call leaves a socket and all it has read to Python's collector."""
    gc.collect()
    gc.disable()
    try:
        with app.client() as client:
            with app.rollout():
                stream = client.responses.create(model=MODEL, input="Hi", stream=True)
                response = weakref.ref(stream.response)
                use(stream)
                del stream
            assert response() is None
    finally:
        gc.enable()


def test_a_whole_answer_of_which_the_app_reads_the_headers_alone(app, caplog):
    said = {name: value for name, value in ask("Hi").items() if name != "stream"}
    with (
        caplog.at_level(logging.WARNING, "art_otel"),
        app.client() as client,
        app.rollout(),
        client.chat.completions.with_streaming_response.create(**said) as response,
    ):
        assert response.headers
    assert not caplog.records
    assert [message.content for message in app.call().input_messages] == ["Hi"]


def test_a_response_stream_that_is_cancelled(app):
    async def run(client, cancel):
        async for event in await client.responses.create(model=MODEL, input="Hi #pace=0.3", stream=True):
            if event.type == "response.output_text.delta":
                cancel()  # as above: of a stream that is here already, the app reads all, and the call is whole

    assert cancelled(app, run)
    assert app.call().error_type.endswith("CancelledError")
    assert app.call().choices


def test_a_raw_stream_that_breaks(app):
    """The client closes the response before it says what broke it."""
    with app.client() as client, app.rollout(), pytest.raises(openai.APIConnectionError):
        list(client.chat.completions.with_raw_response.create(**ask(f"Hi #break={READ}")).parse())
    assert app.call().failed


@pytest.mark.parametrize("leave", [close, leave_block, abandon], ids=lambda leave: leave.__name__)
def test_an_app_that_says_that_it_ends_completions_so_is_trained_on_what_it_read(app, server, leave):
    install(request_tokens=True, stream_close="finished")
    with app.client() as client, app.rollout():
        leave(client.chat.completions)
        with pytest.raises(openai.APIConnectionError):
            list(client.chat.completions.create(**ask(f"Hi #break={READ}")))
    left, broken = app.calls()
    assert (left.closed_by_app, broken.closed_by_app) == ("finished", None)
    trajectory = app.trajectory()
    assert [(turn.tokens_untrained, turn.text_untrained) for turn in trajectory.turns] == [
        (None, None),
        ("failed",) * 2,
    ]
    assert exchange_of(left, server).answer["choices"][0]["token_ids"][: READ - 1] == left.choices[0].token_ids.tolist()
