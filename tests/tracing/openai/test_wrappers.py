"""Spans of others around a request: the tokens are on a span that runs until the answer is there, whoever's it is."""

import asyncio

import pytest
from openai.resources.chat.completions import AsyncCompletions, Completions
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext

from art_otel.conventions import parse_call
from art_otel.tracing.openai import install
from tests.tracing.openai.expected import check_whole
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented, parsed

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi #think=1 #calls=1"}]}
NO_CALL = {"app.note": "no call to anybody"}
CALL = {"gen_ai.operation.name": "chat"}
CALL_BY_TYPE = {"gen_ai.request.type": "chat"}
"""What AgentOps' spans begin with."""


@pytest.fixture
def app(server, uninstalled, monkeypatch):  # noqa: ARG001 # undoes at the end
    found = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    install(request_tokens=True)
    return found


@pytest.fixture
def wrap(app, monkeypatch):
    """Put a span around each request, inside of that of the instrumentor; it ends when the answer begins."""

    def wrap(attributes, times=1):
        for _ in range(times):
            create, create_async = Completions.create, AsyncCompletions.create
            monkeypatch.setattr(Completions, "create", around(create, attributes))
            monkeypatch.setattr(AsyncCompletions, "create", around_async(create_async, attributes))

    def around(create, attributes):
        def wrapped(self, **given):
            with app.tracer.start_as_current_span("wrapper", attributes=attributes):
                return create(self, **given)

        return wrapped

    def around_async(create, attributes):
        async def wrapped(self, **given):
            with app.tracer.start_as_current_span("wrapper", attributes=attributes):
                return await create(self, **given)

        return wrapped

    return wrap


def ask(app, **how):
    with app.client() as client, app.rollout():
        answer = client.chat.completions.create(**ASK, **how)
        if how:
            assert list(answer)


def ask_async(app, **how):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                answer = await client.chat.completions.create(**ASK, **how)
                if how:
                    assert [chunk async for chunk in answer]

    asyncio.run(main())


ASKING = pytest.mark.parametrize("asking", [ask, ask_async])
STREAMING = pytest.mark.parametrize("how", [{}, {"stream": True}], ids=["whole", "stream"])


def around(app):
    """What the span of the call around the request says."""
    (found,) = [parse_call(parsed(span)) for span in app.ended if span.name == "chat"]
    return found


def call_that_answers(app):
    """The recording of the call that has its tokens."""
    found = [call for call in app.recordings() if call.choices and call.choices[0].token_ids is not None]
    assert found
    return found[-1]


@ASKING
@STREAMING
@pytest.mark.parametrize(
    ("attributes", "times"), [(NO_CALL, 1), (CALL, 2), (CALL_BY_TYPE, 1)], ids=["no call", "two calls", "call by type"]
)
def test_a_span_around_the_request_takes_no_tokens_away(
    app, server, instrumentor, wrap, asking, how, times, attributes
):
    wrap(attributes, times)
    with instrumented(instrumentor, app.provider):
        asking(app, **how)
    check_whole(call_that_answers(app), server)


@ASKING
def test_a_span_that_says_late_that_it_is_a_call_gets_the_tokens(app, server, wrap, asking):
    wrap(CALL_BY_TYPE)
    asking(app)
    check_whole(app.call(), server)


def test_what_a_span_misses_that_ends_early_is_on_the_one_around_it(app, server, wrap):
    """As AgentOps around a stream: the instrumentor's span is outside, and is nobody's who reads."""
    wrap(CALL)
    with app.client() as client, app.rollout(), app.tracer.start_as_current_span("chat", attributes=CALL):
        stream = client.chat.completions.create(**ASK, stream=True)
        (ended,) = app.ended
        assert "art.response.choices" not in ended.attributes
        list(stream)
    check_whole(app.recordings()[-1], server)


@pytest.mark.parametrize("ends_early", [True, False])
def test_what_had_come_is_on_a_span_that_ends_in_the_middle_of_the_answer(app, wrap, ends_early):
    wrap(CALL)
    with app.client() as client, app.rollout(), app.tracer.start_as_current_span("chat", attributes=CALL) as outer:
        stream = client.chat.completions.create(**ASK, stream=True)
        for _ in zip(range(4), stream, strict=False):
            pass
        if ends_early:
            outer.end()
        list(stream)
    choice = app.recordings()[-1].choices[0]
    assert (choice.finish_reason is None) == ends_early


def test_a_call_around_another_rollout_has_none_of_its_tokens(app):
    with (
        app.client() as client,
        app.rollout(),
        app.tracer.start_as_current_span("chat", attributes=CALL),
        app.tracer.start_as_current_span("rollout inner", attributes={"art.rollout.id": "inner"}),
    ):
        client.chat.completions.create(**ASK)
    assert around(app).choices is None


@pytest.mark.parametrize("operation", ["execute_tool", "invoke_agent"])
def test_a_call_has_none_of_the_tokens_of_a_tool_that_it_runs(app, operation):
    with (
        app.client() as client,
        app.rollout(),
        app.tracer.start_as_current_span("chat", attributes=CALL),
        app.tracer.start_as_current_span("search", attributes={"gen_ai.operation.name": operation}),
    ):
        client.chat.completions.create(**ASK)
    assert around(app).choices is None


def test_a_request_from_elsewhere_gives_nothing_to_the_call_it_comes_from(app):
    with app.client() as client, app.rollout(), app.tracer.start_as_current_span("chat", attributes=CALL) as outer:
        ours = outer.get_span_context()
        told = SpanContext(ours.trace_id, ours.span_id, is_remote=True, trace_flags=ours.trace_flags)
        with trace.use_span(NonRecordingSpan(told)):
            client.chat.completions.create(**ASK)
            with app.tracer.start_as_current_span("serve"):
                client.chat.completions.create(**ASK)
    assert around(app).choices is None


def test_a_call_that_has_ended_gets_nothing(app):
    with app.client() as client, app.rollout(), app.tracer.start_as_current_span("chat", attributes=CALL) as outer:
        outer.end()
        client.chat.completions.create(**ASK)
    assert around(app).choices is None
