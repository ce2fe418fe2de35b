"""Every way to ask for completions and responses, under every instrumentor: each says what was asked and sampled."""

import asyncio
import json

import pytest
from openai.types.shared import Reasoning
from opentelemetry import trace

from art_otel.tracing.openai import install, uninstall
from tests.gaps import kinds
from tests.model_gateway.test_faults import answering
from tests.tracing.openai.expected import check_whole
from tests.tracing.openai.instrumented import INSTRUMENTORS, MODEL, Instrumented, instrumented
from tests.tracing.openai.test_calls import TOOLS, Place


def text(client):
    assert client.completions.create(model=MODEL, prompt="Hi", n=2).choices


def text_stream(client):
    assert list(client.completions.create(model=MODEL, prompt="Hi", n=2, stream=True))


def response(client):
    assert client.responses.create(model=MODEL, input="Hi", instructions="Be brief.").output_text


def response_stream(client):
    assert list(client.responses.create(model=MODEL, input="Hi", stream=True))


def response_raw(client):
    assert client.responses.with_raw_response.create(model=MODEL, input="Hi").parse().output_text


def response_streaming(client):
    with client.responses.with_streaming_response.create(model=MODEL, input="Hi", stream=True) as raw:
        assert list(raw.parse())


def response_raw_stream(client):
    assert list(client.responses.with_raw_response.create(model=MODEL, input="Hi", stream=True).parse())


def response_parse(client):
    said = client.responses.parse(model=MODEL, input='Hi #say={"city":"Rome"}', text_format=Place)
    assert said.output_parsed == Place(city="Rome")


def response_reasoning(client):
    assert client.responses.create(model=MODEL, input="Hi", reasoning=Reasoning(effort="low")).output_text


def response_reasoning_stream(client):
    assert list(client.responses.create(model=MODEL, input="Hi", reasoning=Reasoning(effort="low"), stream=True))


def response_no_reasoning(client):
    assert client.responses.create(model=MODEL, input="Hi", reasoning=None).output_text


def response_thoughts(client):
    assert client.responses.create(model=MODEL, input="Hi #think=12").output_text


def response_thoughts_stream(client):
    assert list(client.responses.create(model=MODEL, input="Hi #think=12", stream=True))


def response_incomplete(client):
    assert client.responses.create(model=MODEL, input="Hi #status=incomplete").status == "incomplete"


def response_helper(client):
    with client.responses.stream(model=MODEL, input="Hi") as events:
        assert list(events)


RESPONSES = [
    response,
    response_stream,
    response_raw,
    response_streaming,
    response_raw_stream,
    response_parse,
    response_reasoning,
    response_reasoning_stream,
    response_no_reasoning,
    response_thoughts,
    response_thoughts_stream,
    response_incomplete,
    response_helper,
]


@pytest.mark.parametrize("ask", [text, text_stream, *RESPONSES], ids=lambda ask: ask.__name__)
def test_completions_and_responses(app, server, ask):
    with app.client() as client, app.rollout():
        ask(client)
    assert len(app.calls()) == 1
    check_whole(app.call(), server)


def test_several_prompts_in_one_request_are_told(app, server):  # noqa: ARG001 # that is what the app asks
    with app.client() as client, app.rollout():
        assert len(client.completions.create(model=MODEL, prompt=["Hi", "Ho"]).choices) == 2
    assert kinds(app.call()) == ("several prompts",)


async def async_response_reasoning(responses):
    await responses.create(model=MODEL, input="Hi", reasoning=Reasoning(effort="low"))


async def async_response_streaming(responses):
    async with responses.with_streaming_response.create(model=MODEL, input="Hi", stream=True) as raw:
        assert [event async for event in await raw.parse()]


async def async_response_raw_stream(responses):
    raw = await responses.with_raw_response.create(model=MODEL, input="Hi", stream=True)
    assert [event async for event in raw.parse()]


async def async_response_incomplete(responses):
    await responses.create(model=MODEL, input="Hi #status=incomplete")


@pytest.mark.parametrize(
    "ask",
    [async_response_reasoning, async_response_streaming, async_response_raw_stream, async_response_incomplete],
    ids=lambda ask: ask.__name__,
)
@pytest.mark.filterwarnings("ignore:coroutine 'AsyncAPIResponse.parse' was never awaited")  # OpenInference's
def test_an_async_response(app, server, ask):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                await ask(client.responses)
                assert len(app.calls()) == 1

    asyncio.run(main())
    check_whole(app.call(), server)


def test_what_was_sampled_is_found_again_in_the_next_prompt(app):
    """An agent on the Responses API feeds the items of an answer back, which have ids of their own."""
    asked = [{"role": "user", "content": "Hi #calls=2"}]
    functions = [{"type": "function", **one["function"]} for one in TOOLS]
    with app.client() as client, app.rollout():
        first = client.responses.create(model=MODEL, input=asked, tools=functions)
        asked += first.output
        asked += [{"type": "function_call_output", "call_id": one.call_id, "output": "ok"} for one in first.output]
        client.responses.create(model=MODEL, input=asked, tools=functions)
    one, other = app.calls()
    _, sampled, *answers = other.input_messages
    assert [(call.id, call.name) for call in sampled.tool_calls] == [
        (call.id, call.name) for call in one.choices[0].message.tool_calls
    ]
    assert [answer.tool_call_id for answer in answers] == [call.id for call in sampled.tool_calls]


def responses(*outputs: list[dict]) -> list[tuple[int, dict[str, str], bytes]]:
    """Whole answers of a server, one a list of output items."""
    bodies = [
        json.dumps({"id": f"resp_{number}", "object": "response", "status": "completed", "output": items}).encode()
        for number, items in enumerate(outputs)
    ]
    return [(200, {"content-type": "application/json", "content-length": str(len(body))}, body) for body in bodies]


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes", "annotations": []}]}
COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gA=="}


@pytest.mark.parametrize("instrumentor", [None, *INSTRUMENTORS])
def test_what_a_server_has_or_left_out_of_a_prompt_is_doubted(monkeypatch, instrumentor):
    answers = responses([COMPACTION, SAID], [SAID], [SAID])
    with answering(*answers) as url:
        live = Instrumented(f"{url}/v1")
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", live.provider)
        install()
        with instrumented(instrumentor, live.provider), live.client() as client, live.rollout():
            client.responses.create(model=MODEL, input="Hi", context_management=[{"type": "compaction"}])
            client.responses.create(model=MODEL, input=[COMPACTION, SAID, {"role": "user", "content": "More"}])
            client.responses.create(model=MODEL, input="More", conversation="conv_1")
        uninstall()
    assert [kinds(call) for call in live.calls()] == [("compacted",), ("compacted",), ("history on the server",)]
    assert [turn.tokens_untrained for turn in live.trajectory().turns] == [None] * 3
