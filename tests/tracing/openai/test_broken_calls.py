"""A call that is cancelled, refused, left or broken off is one call, and takes no other."""

import asyncio
import gc
import json
import warnings

import openai
import pytest
from opentelemetry import trace

from art_otel.tracing.api.context import SCOPE
from art_otel.tracing.openai import install
from tests.model_gateway.test_faults import answering
from tests.tracing.openai.expected import check_whole, exchange_of
from tests.tracing.openai.instrumented import MODEL, Instrumented
from tests.tracing.openai.test_request_span import raw_stream, scopes
from tests.tracing.server import OVERFLOW, ModelServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One of its own: calls that nobody waits for are written down seconds later, between those of other tests."""
    with ModelServer(tmp_path_factory.mktemp("server")) as running:
        yield running


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


def test_a_call_that_is_refused_is_one_call(traced):
    with traced.client() as client, traced.rollout():
        try:
            client.responses.create(model=MODEL, input="Hi #fail=400", reasoning=None)
        except openai.BadRequestError:
            client.responses.create(model=MODEL, input="Again")  # while the exception still holds the first
    assert [call.failed for call in traced.calls()] == [True, False]
    assert len(scopes(traced)) == 4


def test_a_response_that_failed(traced):
    with traced.client() as client, traced.rollout():
        client.responses.create(model=MODEL, input="Hi #status=failed")
    assert traced.call().error_type == "server_error"


def test_a_raw_stream_that_is_left(traced, server):
    gc.freeze()  # what was there before need not be looked at
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


def test_streams_that_break_at_once_are_told_apart(traced):
    async def one(client):
        with pytest.raises(openai.APIConnectionError):
            [event async for event in await client.responses.create(model=MODEL, input="Hi #break=5", stream=True)]

    async def main():
        async with traced.async_client() as client:
            with traced.rollout():
                await asyncio.gather(*(one(client) for _ in range(6)))

    asyncio.run(main())
    assert [call.failed for call in traced.calls()] == [True] * 6
    assert len(traced.ended) == 12


def test_a_stream_that_is_still_held_takes_no_later_call(traced, server):
    with traced.client() as client, traced.rollout():
        with traced.tracer.start_as_current_span("first") as first:
            held = client.responses.create(model=MODEL, input="Hi", stream=True)
            assert list(held)
        with traced.tracer.start_as_current_span("second") as second:
            list(raw_stream(client, "Ho"))
            list(raw_stream(client, "Hu"))
    assert held
    places = [span.parent.span_id for span in traced.ended if span.instrumentation_scope.name == SCOPE]
    assert places == [each.get_span_context().span_id for each in (first, second, second)]
    for call in traced.calls():
        check_whole(call, server)


def overflow(client, api, status, **options):
    words = f"Hi #overflow={status}"
    if api == "responses":
        return client.responses.create(model=MODEL, input=words, **options)
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": words}], **options)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_context_that_was_exceeded_is_known_whoever_records_it(app, api, stream):
    """OpenLLMetry, GenAI and OpenInference of both APIs; a span of ours where they record none."""
    with app.client() as client, app.rollout():
        with pytest.raises(openai.InternalServerError):
            overflow(client, api, 500, stream=stream)
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            overflow(client, api, 400, stream=stream)
    assert [call.failure for call in app.calls()] == [None, "context exceeded"]
    assert app.trajectory().end == "context exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_our_own_span_of_a_call_that_was_refused_says_why(server, uninstalled, monkeypatch, stream):  # noqa: ARG001 # undoes at the end
    recorded = Instrumented(server.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", recorded.provider)
    install()
    with recorded.client() as client, recorded.rollout(), pytest.raises(openai.BadRequestError):
        overflow(client, "chat", 400, stream=stream)
    call = recorded.call()
    assert (call.error_type, call.failure) == ("BadRequestError", "context exceeded")
    assert OVERFLOW in call.error


def test_the_loser_of_a_race_ends_no_rollout(app):
    async def ask(client, words):
        await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": words}])

    async def main():
        async with app.async_client() as client:
            with app.rollout():
                racers = {asyncio.create_task(ask(client, words)) for words in ("Hi", "Hi #delay=5")}
                _, slower = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
                for task in slower:
                    task.cancel()
                await asyncio.wait(slower)

    asyncio.run(main())
    assert [call.failed for call in app.calls()].count(True) == 1
    assert app.trajectory().end is None


def test_a_call_that_ran_into_the_apps_time_out_is_an_outage(app):
    async def main():
        async with app.async_client() as client:
            with app.rollout():
                await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
                slow = [{"role": "user", "content": "Hi #delay=5"}]
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.chat.completions.create(model=MODEL, messages=slow), 0.2)

    asyncio.run(main())
    assert app.trajectory().end == "failed call"


UNPARSED = {
    "id": "c",
    "prompt_token_ids": [1, 2],
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": '[{"name": "look", "param', "tool_calls": []},
            "finish_reason": "tool_calls",
            "token_ids": [7, 8],
        }
    ],
}


def test_a_required_tool_call_that_the_server_could_not_parse_is_an_answer(uninstalled, monkeypatch):  # noqa: ARG001 # undoes at the end
    body = json.dumps(UNPARSED).encode()
    with answering((200, {"content-type": "application/json", "content-length": str(len(body))}, body)) as url:
        recorded = Instrumented(url)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", recorded.provider)
        install()
        with recorded.client() as client, recorded.rollout():
            messages = [{"role": "user", "content": "Hi"}]
            client.chat.completions.create(model=MODEL, messages=messages, tool_choice="required")
    trajectory = recorded.trajectory()
    (turn,) = trajectory.turns
    assert trajectory.complete, trajectory.incomplete_reasons
    assert (turn.tokens_untrained, turn.text_untrained) == (None, None)
    assert (turn.token_ids.tolist(), turn.message.content) == ([7, 8], '[{"name": "look", "param')
