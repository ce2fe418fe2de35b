"""Every way to call a model, under every instrumentor: the call says exactly what was asked and sampled."""

import asyncio

import openai
import pytest
from pydantic import BaseModel

from art_otel.conventions.bodies import messages
from art_otel.tracing.openai import install
from tests.tracing.openai.expected import check_whole, exchange_of
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented


def tool(name, parameter):
    described = {"name": name, "parameters": {"type": "object", "properties": {parameter: {}}}}
    return {"type": "function", "function": described}


TOOLS = [tool("get_weather", "city"), tool("get_time", "zone")]


class Place(BaseModel):
    city: str


def user(text):
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def plain(chat):
    chat.create(model=MODEL, messages=user("Hi"), temperature=0.5, extra_body={"top_k": 3, "kw": {"deep": [1]}})


def several(chat):
    chat.create(model=MODEL, messages=user("Hi #think=1"), n=3)


def tools(chat):
    chat.create(model=MODEL, messages=user("Hi #calls=2"), tools=TOOLS)


def stream(chat):
    usage = {"include_usage": True}
    assert list(chat.create(model=MODEL, messages=user("Hi #think=1"), stream=True, stream_options=usage))


def stream_several(chat):
    list(chat.create(model=MODEL, messages=user("Hi"), n=3, stream=True))


def stream_reversed(chat):
    list(chat.create(model=MODEL, messages=user("Hi #order=reversed"), n=3, stream=True))


def stream_tools(chat):
    list(chat.create(model=MODEL, messages=user("Hi #calls=2"), tools=TOOLS, stream=True))


def raw(chat):
    assert chat.with_raw_response.create(model=MODEL, messages=user("Hi")).parse().choices


def raw_stream(chat):
    assert list(chat.with_raw_response.create(model=MODEL, messages=user("Hi"), stream=True).parse())


def streaming_response(chat):
    with chat.with_streaming_response.create(model=MODEL, messages=user("Hi")) as response:
        assert response.parse().choices


def streaming_response_bytes(chat):
    with chat.with_streaming_response.create(model=MODEL, messages=user("Hi")) as response:
        assert b"".join(response.iter_bytes(7)).startswith(b"{")


def streaming_response_lines(chat):
    with chat.with_streaming_response.create(model=MODEL, messages=user("Hi"), stream=True) as response:
        assert "data: [DONE]" in list(response.iter_lines())


def parse(chat):
    said = chat.parse(model=MODEL, messages=user('Hi #say={"city":"Rome"}'), response_format=Place)
    assert said.choices[0].message.parsed == Place(city="Rome")


def helper(chat):
    with chat.stream(model=MODEL, messages=user("Hi")) as events:
        assert list(events)


CHATS = [
    plain,
    several,
    tools,
    stream,
    stream_several,
    stream_reversed,
    stream_tools,
    raw,
    raw_stream,
    streaming_response,
    streaming_response_bytes,
    streaming_response_lines,
    parse,
    helper,
]


@pytest.mark.parametrize("ask", CHATS, ids=lambda ask: ask.__name__)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # OpenLLMetry's, over a parsed message
def test_a_chat(app, server, ask):
    with app.client() as client, app.rollout():
        ask(client.chat.completions)
        assert len(app.calls()) == 1, "the span of the call ended in its rollout"
    check_whole(app.call(), server)


async def async_plain(chat):
    await chat.create(model=MODEL, messages=user("Hi"), n=2)


async def async_stream(chat):
    async for _ in await chat.create(model=MODEL, messages=user("Hi #calls=2"), tools=TOOLS, stream=True):
        pass


async def async_raw(chat):
    assert (await chat.with_raw_response.create(model=MODEL, messages=user("Hi"))).parse().choices


async def async_raw_stream(chat):
    raw = await chat.with_raw_response.create(model=MODEL, messages=user("Hi"), stream=True)
    assert [chunk async for chunk in raw.parse()]


async def async_streaming_response(chat):
    async with chat.with_streaming_response.create(model=MODEL, messages=user("Hi")) as response:
        assert (await response.parse()).choices


async def async_streaming_response_lines(chat):
    async with chat.with_streaming_response.create(model=MODEL, messages=user("Hi"), stream=True) as response:
        assert "data: [DONE]" in [line async for line in response.iter_lines()]


async def async_parse(chat):
    await chat.parse(model=MODEL, messages=user('Hi #say={"city":"Rome"}'), response_format=Place)


async def async_helper(chat):
    async with chat.stream(model=MODEL, messages=user("Hi")) as events:
        assert [event async for event in events]


ASYNC_CHATS = [
    async_plain,
    async_stream,
    async_raw,
    async_raw_stream,
    async_streaming_response,
    async_streaming_response_lines,
    async_parse,
    async_helper,
]


@pytest.mark.parametrize("ask", ASYNC_CHATS, ids=lambda ask: ask.__name__)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # as above
@pytest.mark.filterwarnings("ignore:coroutine 'AsyncAPIResponse.parse' was never awaited")  # every instrumentor's
def test_an_async_chat(app, server, ask):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                await ask(client.chat.completions)
                assert len(app.calls()) == 1

    asyncio.run(main())
    check_whole(app.call(), server)


def test_streams_that_take_turns_are_told_apart(app, server):
    async def one(client, each):
        async for _ in await client.chat.completions.create(
            model=MODEL, messages=user(f"Hi {each} #pace=0.001 #words={each + 3}"), stream=True
        ):
            pass

    async def main():
        async with app.async_client() as client:
            with app.rollout():
                await asyncio.gather(*(one(client, each) for each in range(16)))

    asyncio.run(main())
    calls = app.calls()
    assert len({call.response_id for call in calls}) == 16
    for call in calls:
        check_whole(call, server)


def test_a_retried_call_has_the_answer_that_came(app, server):
    with app.client() as client, app.rollout():
        client.with_options(max_retries=2).chat.completions.create(model=MODEL, messages=user("Hi #fail=429x1"))
    check_whole(app.call(), server)


def test_the_policy_version_comes_with_the_answer(app):
    with app.client() as client, app.rollout():
        client.chat.completions.create(model=MODEL, messages=user("Hi #version=step-7"))
        client.chat.completions.create(model=MODEL, messages=user("Hi"))
    assert [call.policy_version for call in app.calls()] == ["step-7", None]


def test_messages_beside_an_image_are_not_lost(app, server):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}]
    with app.client() as client, app.rollout():
        client.chat.completions.create(model=MODEL, messages=asked)
    (message,) = app.call().input_messages
    assert message.content == "What is this?"
    assert '"data":"AAAA"' in message.parts
    check_whole(app.call(), server)


def test_a_failed_call_with_an_image_is_no_gap(app):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is this? #fail=500x1"}, image]}]
    with app.client() as client, app.rollout(), pytest.raises(openai.InternalServerError):
        client.with_options(max_retries=0).chat.completions.create(model=MODEL, messages=asked)
    failed = app.call()
    assert failed.failed
    (message,) = failed.input_messages
    assert '"data":"AAAA"' in message.parts
    assert not failed.gaps


@pytest.mark.parametrize("streams", [False, True])
def test_functions_and_refusals_are_as_they_were_sent(app, server, streams):
    """Instrumentors leave them out of prompts, or write them as texts."""
    result = {"role": "function", "name": "look", "content": "[1]"}
    asked = user("Hi")
    with app.client() as client, app.rollout():
        for following in ([result, *user("Go on #refuse=1")], user("Then?"), []):
            functions = [tool("look", "city")["function"]] if following else openai.omit
            answer = client.chat.completions.create(model=MODEL, messages=asked, functions=functions, stream=streams)
            assert not streams or list(answer)
            asked += [server.answered()[-1].answer["choices"][0]["message"], *following]
    calls = app.calls()
    assert len(calls) == 3
    for call in calls:
        exchange = exchange_of(call, server)
        sampled = [choice["message"] for choice in exchange.answer["choices"]]
        assert call.input_messages == messages.parse(exchange.body["messages"])
        assert tuple(choice.message for choice in call.choices) == messages.parse(sampled)
        assert not call.gaps
    (function_call,) = calls[0].choices[0].message.tool_calls
    assert (function_call.id, function_call.name, function_call.exact) == (None, "look", True)
    assert calls[1].choices[0].message.refusal is not None


def test_a_refusal_among_input_items_is_one(app):
    refused = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    with app.client() as client, app.rollout():
        client.responses.create(model=MODEL, input=[{"role": "user", "content": "Hi"}, refused, *user("Then?")])
    call = app.call()
    assert [(one.role, one.content, one.refusal) for one in call.input_messages[:2]] == [
        ("user", "Hi", None),
        ("assistant", None, "No."),
    ]
    assert not call.gaps


def test_what_the_app_sees_stays_the_same(app):
    with app.client() as client:
        ask = {"model": MODEL, "messages": user("Hi"), "logprobs": True, "extra_body": {"return_token_ids": True}}
        outside = client.chat.completions.create(**ask)
        streamed_outside = list(client.chat.completions.create(**ask, stream=True))
        with app.rollout():
            inside = client.chat.completions.create(**ask)
            streamed = list(client.chat.completions.create(**ask, stream=True))
    pairs = [(inside, outside), *zip(streamed, streamed_outside, strict=True)]
    assert all(one.to_dict() | {"id": 0} == other.to_dict() | {"id": 0} for one, other in pairs)


@pytest.mark.usefixtures("uninstalled")
def test_a_call_outside_rollouts_is_left_alone(server, instrumentor):
    app = Instrumented(server.url, rollouts=False)
    install(request_tokens=True)
    with instrumented(instrumentor, app.provider), app.client() as client:
        client.chat.completions.create(model=MODEL, messages=user("Hi"))
        list(client.chat.completions.create(model=MODEL, messages=user("Hi"), stream=True))
    assert len(app.ended) == 2
    assert not [name for span in app.ended for name in span.attributes if name.startswith("art.")]
    assert "return_token_ids" not in server.exchanges()[-1].body
