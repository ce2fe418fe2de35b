"""OpenLLMetry's faults: each is shown without its repair, so that we learn when it is gone, and then with it."""

import asyncio
import logging
import types

import openai
import pytest

from art_otel.tracing import guest
from art_otel.tracing.openai import install, openllmetry
from art_otel.tracing.openai.patches import Patches
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi #order=reversed"}]}


@pytest.fixture(params=["faulty", "repaired"])
def is_repaired(request, monkeypatch):
    if request.param == "faulty":
        monkeypatch.setattr("art_otel.tracing.openai.REPAIRS", {})
    return request.param == "repaired"


@pytest.fixture
def traced(server, is_repaired, uninstalled):  # noqa: ARG001 # as they set up and undo
    found = Instrumented(server.url)
    install()
    with instrumented("openllmetry", found.provider):
        yield found


def test_a_choice_that_streams_before_its_elder(traced, is_repaired):
    with traced.client() as client, traced.rollout():
        stream = client.chat.completions.create(**ASK, n=2, stream=True)
        if not is_repaired:
            with pytest.raises(IndexError):
                list(stream)
            return
        chunks = list(stream)
    assert {chunk.choices[0].index for chunk in chunks} == {0, 1}
    told = traced.ended[0].attributes["gen_ai.output.messages"]
    assert told.count('"role": "assistant"') == 2


def test_a_chunk_that_cannot_be_read(traced, is_repaired, caplog):
    """A chunk without choices, which is what some servers send as a sign of life."""
    whole = openai.resources.chat.completions.Completions.create
    with traced.client() as client, traced.rollout(), caplog.at_level(logging.WARNING, "art_otel"):
        stream = whole(client.chat.completions, **ASK, stream=True)
        inner = stream.__wrapped__._iterator

        def with_sign_of_life():
            yield openai.types.chat.ChatCompletionChunk.construct(id="a", choices=None)
            yield from inner

        stream.__wrapped__._iterator = with_sign_of_life()
        if not is_repaired:
            with pytest.raises(TypeError):
                list(stream)
            return
        assert len(list(stream)) > 3


def test_a_cancelled_call(traced, is_repaired):
    async def main():
        async with traced.async_client() as client:
            with traced.rollout():
                slow = [{"role": "user", "content": "Hi #delay=0.5"}]
                task = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=slow))
                asyncio.get_running_loop().call_later(0.1, task.cancel)
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(main())
    assert [call.error_type for call in traced.calls()] == (["CancelledError"] if is_repaired else [])


def test_an_interrupted_text_completion(traced, is_repaired, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(openai.OpenAI, "_send_request", interrupted)
    with traced.client() as client, traced.rollout(), pytest.raises(KeyboardInterrupt):
        client.completions.create(model=MODEL, prompt="Hi")
    assert [call.error_type for call in traced.calls()] == (["KeyboardInterrupt"] if is_repaired else [])


def test_a_closed_stream(traced, is_repaired):
    with traced.client() as client, traced.rollout():
        stream = client.chat.completions.create(**ASK, stream=True)
        next(stream)
        stream.close()
        assert len(traced.ended) == is_repaired


def test_a_closed_text_stream(traced, is_repaired):
    with traced.client() as client, traced.rollout():
        stream = client.completions.create(model=MODEL, prompt="Hi", stream=True)
        next(stream)
        stream.close()
    assert len(traced.ended) == is_repaired


def test_a_response_whose_span_comes_late(traced, is_repaired):
    with traced.client() as client, traced.rollout():
        client.responses.create(model=MODEL, input="Hi")
    assert ("art.response.choices" in traced.ended[0].attributes) == is_repaired


@pytest.mark.usefixtures("uninstalled")
def test_another_calls_response_is_not_taken(server):
    app = Instrumented(server.url)
    install()
    with app.client() as client, app.rollout():
        client.responses.create(model=MODEL, input="Not recorded")
        with instrumented("openllmetry", app.provider), pytest.raises(openai.APIStatusError):
            client.responses.retrieve("resp-of-another")
    assert not [span for span in app.ended if "art.response.choices" in span.attributes]


def test_what_is_not_as_the_fault_has_it_is_left_alone(monkeypatch, caplog):
    monkeypatch.setattr(guest, "_said", set())
    for repair in openllmetry.REPAIRS.values():
        module = types.ModuleType("other")
        module.ChatStream = module.ResponseStream = type("Stream", (), {})
        before = dict(vars(module))
        patches = Patches()
        repair(module, patches)
        assert module.ChatStream is before["ChatStream"]
        assert not hasattr(module, "trace")
        patches.undo()
        assert vars(module) == before
    assert "this version of OpenLLMetry is not known" in caplog.text
