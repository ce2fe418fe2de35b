"""Requests that no span of a call surrounds: each is one call, also where an instrumentor records it afterwards.

OpenLLMetry makes its span of a call of the Responses API when the answer is there, and none of some calls.
"""

import asyncio
import json

import openai
import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation

from art_otel.conventions import is_cancellation
from art_otel.tracing.api.context import SCOPE
from art_otel.tracing.openai import install
from art_otel.tracing.openai.call import current_call
from tests.tracing.openai.expected import check_whole, exchange_of
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented

HI = [{"role": "user", "content": "Hi"}]

pytestmark = pytest.mark.usefixtures("uninstalled")


def scopes(app):
    return [span.instrumentation_scope.name for span in app.ended]


def raw_stream(client, text="Hi"):
    return client.responses.with_raw_response.create(model=MODEL, input=text, stream=True).parse()


@pytest.fixture
def bare(server, monkeypatch):
    """An app that nobody instruments."""
    found = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    install()
    with instrumented(None, found.provider):
        yield found


def test_the_span_has_the_place_and_the_times_of_the_call(traced, server):
    with traced.client() as client, traced.rollout() as rollout:
        with traced.tracer.start_as_current_span("agent") as agent:
            before = client.responses.create(model=MODEL, input="Hi")
            assert before.output_text
            list(raw_stream(client, "Hi #pace=0.01"))
        assert scopes(traced) == [SCOPE, "opentelemetry.instrumentation.openai.v1", SCOPE]
    (first, _, span) = traced.ended
    assert span.name == f"chat {MODEL}"
    assert span.kind is trace.SpanKind.CLIENT
    assert span.parent.span_id == agent.get_span_context().span_id
    assert span.attributes["art.rollout.id"] == "r"
    assert first.end_time <= span.start_time < span.end_time <= agent.end_time <= rollout.end_time
    assert span.end_time - span.start_time > 10_000_000
    for call in traced.calls():
        check_whole(call, server)


def test_the_server_is_told_the_span(traced, server):
    own = f"00-{'a' * 32}-{'b' * 16}-01"
    with traced.client() as client, traced.rollout():
        client.responses.create(model=MODEL, input="Hi")
        client.responses.create(model=MODEL, input="Hi", extra_headers={"traceparent": own})
    *_, told, given = (exchange.headers.get("traceparent") for exchange in server.exchanges())
    context = next(span for span in traced.ended if span.instrumentation_scope.name == SCOPE).get_span_context()
    assert told is not None
    assert told.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert given == own


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


def test_the_model_is_the_one_that_was_sent(bare):
    with bare.client() as client, bare.rollout():
        client.chat.completions.create(model="another", messages=HI, extra_body={"model": MODEL})
    assert [(span.name, span.attributes["gen_ai.request.model"]) for span in bare.ended] == [(f"chat {MODEL}", MODEL)]


def test_the_span_says_in_standard_words_what_was_asked_and_answered(bare, server):
    weather = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi #calls=1 #think=1"}]},
    ]
    with bare.client() as client, bare.rollout():
        client.chat.completions.create(
            model=MODEL,
            messages=asked,
            temperature=0.5,
            max_tokens=50,
            n=2,
            tools=[{"type": "function", "function": weather}],
            logprobs=True,
            extra_body={"return_token_ids": True},
        )
    check_whole(bare.call(), server)
    (span,) = bare.ended
    sent = server.exchanges()[-1].answer
    standard = {name: value for name, value in span.attributes.items() if not name.startswith("art.")}
    asked_of, answered = (json.loads(standard.pop(f"gen_ai.{way}.messages")) for way in ("input", "output"))
    assert standard == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.id": sent["id"],
        "gen_ai.response.model": sent["model"],
        "gen_ai.response.finish_reasons": ("tool_calls", "tool_calls"),
        "gen_ai.usage.input_tokens": sent["usage"]["prompt_tokens"],
        "gen_ai.usage.output_tokens": sent["usage"]["completion_tokens"],
        "gen_ai.usage.total_tokens": sent["usage"]["total_tokens"],
        "gen_ai.request.stream": False,
        "server.address": "127.0.0.1",
    }
    assert [(one["role"], one["parts"][0]["content"]) for one in asked_of] == [
        ("system", "Be brief."),
        ("user", "Hi #calls=1 #think=1"),
    ]
    assert [part["type"] for part in answered[1]["parts"]] == ["reasoning", "tool_call"]


def test_a_stream_says_its_usage(bare):
    with bare.client() as client, bare.rollout():
        usage = {"include_usage": True}
        list(client.chat.completions.create(model=MODEL, messages=HI, stream=True, stream_options=usage))
    assert bare.call().usage.output_tokens


def test_what_nobody_instruments_is_recorded(bare, server):
    with bare.client() as client, bare.rollout():
        client.with_options(max_retries=2).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi #fail=429x1"}]
        )
        with client.chat.completions.stream(model=MODEL, messages=HI) as events:
            assert list(events)
        with client.chat.completions.with_streaming_response.create(model=MODEL, messages=HI) as response:
            assert response.parse().choices
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model=MODEL, prompt="Hi #fail=400")
    *completed, failed = bare.calls()
    assert len(completed) == 3
    for call in completed:
        sent = exchange_of(call, server)
        assert call.choices[0].message.content == sent.answer["choices"][0]["message"]["content"]
    assert (failed.error_type, failed.operation_name) == ("BadRequestError", "text_completion")
    assert [message.content for message in failed.input_messages] == ["Hi #fail=400"]


def test_what_is_no_completion_has_no_span(bare):
    with bare.client() as client, bare.rollout():
        assert client.models.list().data
    assert bare.ended == []


def test_without_spans_of_ours_only_what_others_record_is_captured(bare):
    install(makes_spans=False)
    with bare.client() as client, bare.rollout():
        client.chat.completions.create(model=MODEL, messages=HI)
        with bare.tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}):
            client.chat.completions.create(model=MODEL, messages=HI)
    assert scopes(bare) == ["app"]
    assert bare.call().choices


def test_it_is_current_while_the_client_is_at_it(bare, monkeypatch):
    send, current = openai.OpenAI._send_request, []

    def sending(*given, **named):
        current.append(trace.get_current_span())
        return send(*given, **named)

    monkeypatch.setattr(openai.OpenAI, "_send_request", sending)
    with bare.client() as client, bare.rollout() as rollout:
        client.chat.completions.create(model=MODEL, messages=HI)
        assert trace.get_current_span() is rollout
    assert [span.context.span_id for span in bare.ended] == [span.context.span_id for span in current]


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
    assert len(app.calls()) == 2
    for call in app.calls():
        check_whole(call, server)


def test_an_answer_that_is_to_come_has_no_choices_yet(traced):
    with traced.client() as client, traced.rollout():
        assert client.responses.create(model=MODEL, input="Hi #status=queued").status == "queued"
    call = traced.call()
    assert not call.failed
    assert call.choices is None


def test_parameters_that_were_not_given_are_not_written(traced, caplog):
    with traced.client() as client, traced.rollout():
        client.chat.completions.create(model=MODEL, messages=HI, temperature=openai.omit, top_p=openai.omit)
        client.chat.completions.create(model=MODEL, messages=HI, reasoning_effort=openai.omit, user=openai.NOT_GIVEN)
    assert "Invalid type" not in caplog.text
    assert not [name for span in traced.ended for name in span.attributes if "temperature" in name or "user" in name]


class Silent:
    """A server that never answers, and nothing to close where there is no loop."""

    async def handle_async_request(self, _request):
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("instrumentor", [None, "openllmetry"])
def test_a_call_whose_coroutine_is_closed_in_another_context_was_cancelled(server, monkeypatch, caplog, instrumentor):
    app = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", app.provider)
    install()

    async def ask() -> None:
        client = app.async_client(http_client=openai.DefaultAsyncHttpxClient(transport=Silent()))
        await client.chat.completions.create(model=MODEL, messages=HI)

    with instrumented(instrumentor, app.provider):
        loop = asyncio.new_event_loop()
        with app.rollout():
            task = loop.create_task(ask())
            loop.run_until_complete(asyncio.sleep(0.05))
        task._log_destroy_pending = False
        task.get_coro().close()
        loop.close()
    call = app.call()
    assert call.failed
    assert is_cancellation(call.error_type)
    assert instrumentor or not caplog.records  # an instrumentor leaves its own context as OTel does, which logs that
    assert current_call() is None
