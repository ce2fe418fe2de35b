"""Calls of the Responses API that OpenLLMetry begins to record and loses: each is there once."""

import asyncio
import gc
import warnings

import openai
import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation

from art_otel.tracing.openai import install
from art_otel.tracing.tracer import SCOPE
from tests.tracing.openai.expected import check_whole, exchange_of
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented

pytestmark = pytest.mark.usefixtures("uninstalled")


@pytest.fixture
def traced(server, monkeypatch):
    found = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    install()
    with instrumented("openllmetry", found.provider):
        yield found


def scopes(app):
    return [span.instrumentation_scope.name for span in app.ended]


def raw_stream(client, text="Hi"):
    return client.responses.with_raw_response.create(model=MODEL, input=text, stream=True).parse()


def test_a_lost_call_has_the_place_and_the_times_of_the_call(traced, server):
    with traced.client() as client, traced.rollout() as rollout:
        with traced.tracer.start_as_current_span("agent") as agent:
            before = client.responses.create(model=MODEL, input="Hi")
            assert before.output_text
            list(raw_stream(client, "Hi #pace=0.01"))
        assert scopes(traced) == ["opentelemetry.instrumentation.openai.v1", SCOPE]
    (first, span) = traced.ended
    assert span.name == f"chat {MODEL}"
    assert span.kind is trace.SpanKind.CLIENT
    assert span.parent.span_id == agent.get_span_context().span_id
    assert span.attributes["art.rollout.id"] == "r"
    assert first.end_time <= span.start_time < span.end_time <= agent.end_time <= rollout.end_time
    assert span.end_time - span.start_time > 10_000_000
    for call in traced.calls():
        check_whole(call, server)


def test_several_at_once_are_told_apart(traced, server):
    async def one(client, each):
        async with client.responses.with_streaming_response.create(
            model=MODEL, input=f"Hi {each} #pace=0.001 #words={each + 3}", stream=True
        ) as raw:
            assert [event async for event in await raw.parse()]
        await client.responses.create(model=MODEL, input=f"Again {each}", reasoning=None)

    async def main():
        async with traced.async_client() as client:
            with traced.rollout():
                await asyncio.gather(*(one(client, each) for each in range(8)))

    asyncio.run(main())
    assert len({call.response_id for call in traced.calls()}) == len(traced.calls()) == 16
    for call in traced.calls():
        check_whole(call, server)


def test_what_the_app_switched_off_stays_off(traced):
    with traced.client() as client, traced.rollout(), suppress_instrumentation():
        client.responses.create(model=MODEL, input="Hi")
        list(raw_stream(client))
    assert traced.ended == []


def test_what_nobody_instruments_is_not_recorded(server, monkeypatch):
    app = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", app.provider)
    install()
    with app.client() as client, app.rollout():
        with instrumented("openllmetry", app.provider):
            stream = client.responses.create(model=MODEL, input="Hi", stream=True)
        list(raw_stream(client))
        list(stream)
    assert scopes(app) == ["opentelemetry.instrumentation.openai.v1"]


@pytest.mark.parametrize("names", [("genai", "openllmetry"), ("openllmetry", "genai")])
def test_beside_another_instrumentor_only_that_ones_span_is_there(server, monkeypatch, names):
    app = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", app.provider)
    install()
    both = instrumented(names[0], app.provider), instrumented(names[1], app.provider)
    with both[0], both[1], app.client() as client, app.rollout():
        list(raw_stream(client))
        client.responses.create(model=MODEL, input="Hi #status=incomplete")
    assert SCOPE not in scopes(app)
    assert len(app.ended) == 2
    for call in app.calls():
        check_whole(call, server)


def test_a_call_that_is_cancelled(traced):
    async def main():
        async with traced.async_client() as client:
            with traced.rollout():
                slow = client.responses.create(model=MODEL, input="Hi #delay=0.5", instructions="Be brief.")
                task = asyncio.create_task(slow)
                asyncio.get_running_loop().call_later(0.1, task.cancel)
                with pytest.raises(asyncio.CancelledError):
                    await task
                await client.responses.create(model=MODEL, input="Again")

    asyncio.run(main())
    cancelled, again = traced.calls()
    assert cancelled.error_type == "CancelledError"
    assert cancelled.request_model == MODEL
    assert [message.content for message in cancelled.input_messages] == ["Be brief.", "Hi #delay=0.5"]
    assert not again.failed


def test_a_call_that_is_interrupted(traced, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with traced.client() as client, traced.rollout():
        with monkeypatch.context() as patched:
            patched.setattr(openai.OpenAI, "_send_request", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.responses.create(model=MODEL, input="Hi")
        client.responses.create(model=MODEL, input="Hi")
    assert [call.error_type for call in traced.calls()] == ["KeyboardInterrupt", None]


def test_a_call_that_is_refused_is_openllmetrys(traced):
    with traced.client() as client, traced.rollout():
        try:
            client.responses.create(model=MODEL, input="Hi #fail=400", reasoning=None)
        except openai.BadRequestError:
            client.responses.create(model=MODEL, input="Again")  # while the exception still holds the first
    assert [call.failed for call in traced.calls()] == [True, False]
    assert SCOPE not in scopes(traced)


def test_a_response_that_failed(traced):
    with traced.client() as client, traced.rollout():
        client.responses.create(model=MODEL, input="Hi #status=failed")
    assert traced.call().error_type == "server_error"


def test_an_answer_that_is_to_come_is_no_call_yet(traced):
    with traced.client() as client, traced.rollout():
        assert client.responses.create(model=MODEL, input="Hi #status=queued").status == "queued"
    assert traced.ended == []


def test_a_raw_stream_that_is_left(traced, server):
    with traced.client() as client, traced.rollout():
        stream = raw_stream(client)
        for event in stream:
            if event.type == "response.output_text.delta":
                break
        stream.close()
        assert len(traced.ended) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            next(raw_stream(client))
            gc.collect()
        assert len(traced.ended) == 2
    call = traced.calls()[0]
    assert exchange_of(call, server)
    assert [choice.finish_reason for choice in call.choices] == [None]


def test_a_stream_that_breaks(traced):
    with traced.client() as client, traced.rollout(), pytest.raises(openai.APIConnectionError):
        list(raw_stream(client, "Hi #break=5"))
    assert traced.call().failed
    assert traced.call().choices


def test_a_stream_that_breaks_under_openllmetry_keeps_what_was_asked(traced):
    with traced.client() as client, traced.rollout(), pytest.raises(openai.APIConnectionError):
        list(client.responses.create(model=MODEL, input="Hi #break=5", stream=True))
    call = traced.call()
    assert call.failed
    assert [message.content for message in call.input_messages] == ["Hi #break=5"]


def test_a_stream_that_is_still_held_takes_no_later_call(traced, server):
    with traced.client() as client, traced.rollout():
        with traced.tracer.start_as_current_span("first") as first:
            held = client.responses.create(model=MODEL, input="Hi", stream=True)
            assert list(held)
        with traced.tracer.start_as_current_span("second") as second:
            list(raw_stream(client, "Ho"))
            list(raw_stream(client, "Hu"))
    assert held
    places = [span.parent.span_id for span in traced.ended]
    assert places == [each.get_span_context().span_id for each in (first, second, second)]
    for call in traced.calls():
        check_whole(call, server)


def test_what_was_asked_is_left_out_where_openllmetry_leaves_it_out(traced, monkeypatch):
    monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", "false")
    with traced.client() as client, traced.rollout():
        list(raw_stream(client))
        client.responses.create(model=MODEL, input="Hi")
    assert [call.input_messages for call in traced.calls()] == [None, None]


def test_parameters_that_were_not_given_are_not_written(traced, caplog):
    with traced.client() as client, traced.rollout():
        hi = [{"role": "user", "content": "Hi"}]
        client.chat.completions.create(model=MODEL, messages=hi, temperature=openai.omit, top_p=openai.omit)
        client.chat.completions.create(model=MODEL, messages=hi, reasoning_effort=openai.omit, user=openai.NOT_GIVEN)
    assert "Invalid type" not in caplog.text
    assert not [name for span in traced.ended for name in span.attributes if "temperature" in name or "user" in name]
