"""Token ids are asked of servers that give them, only where a call is recorded, and no app sees a refusal of ours."""

import asyncio
import logging

import openai
import pytest

from art_otel.exchange import token_requests
from art_otel.exchange.api_dialects import NOTHING
from art_otel.exchange.token_requests import TokenRequests, target_of
from art_otel.tracing.openai import install
from tests.gaps import kinds
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented
from tests.tracing.server import ModelServer

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A server that knows no fields of vLLM."""
    with ModelServer(tmp_path_factory.mktemp("strict"), "--strict") as server:
        yield server


@pytest.fixture
def refused(strict, instrumentor, uninstalled):  # noqa: ARG001 # undoes at the end
    found = Instrumented(strict.url)
    install(request_tokens=True)
    with instrumented(instrumentor, found.provider):
        yield found


def statuses(server, before):
    return [exchange.status for exchange in server.exchanges()[before:]]


def test_a_server_that_refuses_is_told_once_and_asked_no_more(refused, strict, caplog):
    before = len(strict.exchanges())
    with caplog.at_level(logging.WARNING, "art_otel"), refused.client() as client, refused.rollout():
        for _ in range(3):
            assert client.chat.completions.create(**ASK).choices[0].logprobs is None
    assert statuses(strict, before) == [400, 200, 200, 200]
    assert len([record for record in caplog.records if "refuses" in record.message]) == 1
    assert [call.failed for call in refused.calls()] == [False] * 3
    assert all(call.choices[0].message.content for call in refused.calls())


def test_a_refusal_is_logged_without_the_password_of_the_server(refused, strict, caplog):
    address = strict.url.replace("://", "://alice:hunter2@")
    with caplog.at_level(logging.WARNING, "art_otel"), refused.client() as client, refused.rollout():
        client.with_options(base_url=address).chat.completions.create(**ASK)
    assert f"{strict.url}/ refuses" in caplog.text
    assert "alice" not in caplog.text
    assert "hunter" not in caplog.text


def test_a_refusal_is_of_one_model_and_kind_of_answer_and_for_some_minutes(refused, strict, monkeypatch):
    """A judge behind a shared gateway says nothing of the policy."""
    before = len(strict.exchanges())
    with refused.client() as client, refused.rollout():
        for ask in (ASK, ASK, ASK | {"stream": True}, ASK | {"model": "judge"}, ASK | {"model": "judge"}):
            client.chat.completions.create(**ask)
        monkeypatch.setattr(token_requests, "_REMEMBERED", 0.0)
        client.chat.completions.create(**ASK)
    assert statuses(strict, before) == [400, 200, 200, 400, 200, 400, 200, 200, 400, 200]


def test_an_async_client_is_refused_once(refused, strict):
    before = len(strict.exchanges())

    async def main():
        async with refused.async_client() as client:
            with refused.rollout():
                for _ in range(2):
                    assert [chunk async for chunk in await client.chat.completions.create(**ASK, stream=True)]

    asyncio.run(main())
    assert statuses(strict, before) == [400, 200, 200]
    asked = ["stream_options" in exchange.body for exchange in strict.exchanges()[before:]]
    assert asked == [True, False, False], "the app's own request"
    assert [call.failed for call in refused.calls()] == [False] * 2


def test_a_refusal_that_the_app_caused_is_the_apps(refused, strict):
    before = len(strict.exchanges())
    with refused.client() as client, refused.rollout():
        with pytest.raises(openai.BadRequestError, match="unheard"):
            client.chat.completions.create(**ASK, extra_body={"unheard": 1})
        with pytest.raises(openai.BadRequestError, match="unheard"):
            client.completions.create(model=MODEL, prompt="Hi", extra_body={"unheard": 1})
        client.chat.completions.create(**ASK)
    assert statuses(strict, before)[:2] == [400, 400], "asked again once"
    assert statuses(strict, before)[-2:] == [400, 200], "the server was not taken for one that refuses our fields"


def test_what_the_app_says_about_the_fields_stands(app, server):
    with app.client() as client, app.rollout():
        client.chat.completions.create(**ASK, logprobs=False, extra_body={"return_token_ids": False})
        client.chat.completions.create(**ASK, logprobs=True, top_logprobs=2)
    bodies = [exchange.body for exchange in server.exchanges()[-2:]]
    assert (bodies[0]["logprobs"], bodies[0]["return_token_ids"]) == (False, False)
    assert (bodies[1]["logprobs"], bodies[1]["top_logprobs"], bodies[1]["return_token_ids"]) == (True, 2, True)
    assert [call.prompt_token_ids is None for call in app.calls()] == [True, False]


@pytest.mark.usefixtures("uninstalled")
def test_nothing_is_asked_unless_told_to(server, instrumentor):
    app = Instrumented(server.url)
    install()
    with instrumented(instrumentor, app.provider), app.client() as client, app.rollout():
        client.chat.completions.create(**ASK)
        list(client.chat.completions.create(**ASK, stream=True))
    assert [exchange.body for exchange in server.exchanges()[-2:]] == [ASK, ASK | {"stream": True}]
    for call in app.calls():
        assert call.choices[0].message.content
        assert call.choices[0].token_ids is None


def test_the_apps_own_options_are_not_changed(app, server):
    body = {"top_k": 1}
    with app.client() as client, app.rollout():
        client.chat.completions.create(**ASK, extra_body=body)
    assert body == {"top_k": 1}
    assert server.exchanges()[-1].body["return_token_ids"] is True


def test_azure_is_asked_too(app, server):
    client = openai.AzureOpenAI(
        base_url=f"{server.url}/", api_key="k", api_version="1", max_retries=0, default_query={}
    )
    with client, app.rollout(), pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**ASK)
    assert server.exchanges()[-1].body["return_token_ids"] is True


def test_a_prompt_that_is_echoed_is_asked_for_nothing(app, server):
    """With `return_token_ids` vLLM leaves out the echoed prompt."""
    before = len(server.exchanges())
    with app.client() as client, app.rollout():
        client.completions.create(model=MODEL, prompt="Hi", echo=True)
    (asked,) = server.exchanges()[before:]
    assert asked.body == {"model": MODEL, "prompt": "Hi", "echo": True}


def test_ids_that_the_server_left_out_are_told(tmp_path, instrumentor, uninstalled):  # noqa: ARG001 # undoes at the end
    """llama.cpp lists no token that ends inside a character, and counts it whatever the instrumentor counts."""
    with ModelServer(tmp_path, "--loses-a-token") as losing:
        app = Instrumented(losing.url)
        install(request_tokens=True)
        with instrumented(instrumentor, app.provider), app.client() as client, app.rollout():
            client.chat.completions.create(**ASK)
            client.chat.completions.create(**ASK, n=2)
    for call in app.calls():
        assert kinds(call) == ("miscounted",)
        assert {choice.token_ids for choice in call.choices} == {None}
        assert call.prompt_token_ids


def test_a_refusal_that_names_no_field_counts_when_the_next_request_is_refused_too():
    """A server may refuse one request for what it sampled, as where a log probability is no number."""
    requests, target, body = TokenRequests(), target_of("http://server", {"model": "m"}), b'{"message": "bad"}'
    path = "/v1/chat/completions"

    def refuse() -> None:
        asked = requests.ask(path, target, {})
        requests.accepted(requests.less(asked, body), target, 400, body)

    refuse()
    assert requests.ask(path, target, {}) is not NOTHING
    refuse()  # the request before it was answered
    refuse()
    assert requests.ask(path, target, {}) is NOTHING


def test_a_refusal_of_requests_with_tools_says_nothing_of_others():
    """As llama.cpp refuses; what another server refuses it refuses of all."""
    requests, path, tools = TokenRequests(), "/v1/chat/completions", {"model": "m", "stream": True, "tools": [{}]}
    with_tools, without = (target_of("http://llama", body) for body in (tools, {**tools, "tools": None}))
    for refusal in (b"logprobs is not supported with tools + stream", b"logprobs is not supported"):
        requests.accepted(requests.less(requests.ask(path, with_tools, tools), refusal), with_tools, 400, refusal)
        assert requests.ask(path, with_tools, tools) is NOTHING
        assert (requests.ask(path, without, {}) is NOTHING) == (b"tools" not in refusal)
