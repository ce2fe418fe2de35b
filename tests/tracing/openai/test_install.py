"""Installing: in any order, any number of times, and never in the way of the app."""

import inspect
import logging
import subprocess
import sys
import types
from functools import partial

import openai
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

from art_otel.exchange import exchange
from art_otel.tracing import openai as capture
from art_otel.tracing.openai import install, uninstall
from art_otel.tracing.openai.client import Hooks, Patches, hook
from art_otel.tracing.openai.stream import ResponseTee
from tests.tracing.openai.expected import check_whole
from tests.tracing.openai.instrumented import INSTRUMENTORS, MODEL, Instrumented, instrumented

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
HOOKED = ("request", "_process_response", "_build_request", "_send_request")

pytestmark = pytest.mark.usefixtures("uninstalled")


def test_it_may_be_installed_after_the_instrumentor_and_after_the_client(server, instrumentor):
    app = Instrumented(server.url)
    with instrumented(instrumentor, app.provider), app.client() as client, app.rollout():
        install(request_tokens=True)
        client.chat.completions.create(**ASK)
        list(client.chat.completions.create(**ASK, stream=True))
        uninstall()
    for call in app.calls():
        check_whole(call, server)


def test_uninstalling_leaves_the_client_as_it_was():
    clients = (openai.OpenAI, openai.AsyncOpenAI)
    before = [inspect.getattr_static(client, name) for client in clients for name in HOOKED]
    install(request_tokens=True)
    install(request_tokens=True)
    during = [inspect.getattr_static(client, name) for client in clients for name in HOOKED]
    assert not set(map(id, before)) & set(map(id, during))
    uninstall()
    uninstall()
    assert [inspect.getattr_static(client, name) for client in clients for name in HOOKED] == before


def test_what_others_put_over_it_stays_and_does_nothing_any_more(server, monkeypatch):
    app = Instrumented(server.url)
    taken = install(request_tokens=True)
    for name in HOOKED:
        ours = getattr(openai.OpenAI, name)
        monkeypatch.setattr(openai.OpenAI, name, lambda *given, _ours=ours, **named: _ours(*given, **named))
    uninstall()
    with instrumented("genai", app.provider), app.client() as client, app.rollout():
        client.chat.completions.create(**ASK)
    assert taken.calls == 0
    assert server.exchanges()[-1].body == ASK


@pytest.mark.long
def test_installing_imports_neither_openai_nor_an_instrumentor():
    code = """
import sys
from art_otel.tracing.openai import install
first = install(request_tokens=True)
second = install(request_tokens=True)
print([name for name in ("openai", "httpx2", "opentelemetry.instrumentation.openai") if name in sys.modules])
import openai
print(openai.OpenAI._process_response.__wrapped__ is openai._base_client.SyncAPIClient._process_response)
print(first.problems, second.problems)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout.split("\n")[:3] == ["[]", "True", "() ()"], found.stderr


def test_a_client_that_changed_is_left_alone_and_told_once(caplog):
    class OpenAI:
        def _process_response(self, *, everything):
            return everything

    changed = types.ModuleType("openai")
    changed.OpenAI = OpenAI
    changed.__version__ = "99"
    patches = Patches()
    around = {name: lambda method: method for name in ("request", "build", "process", "stream", "asking_build")}
    with caplog.at_level(logging.WARNING, "art_otel"):
        assert hook(changed, patches, Hooks(**around)) == [
            "openai 99: OpenAI.request is gone: calls of OpenAI get no exact tokens",
            "openai 99 has no AsyncOpenAI: its calls get no exact tokens",
        ]
    OpenAI.request = OpenAI._build_request = lambda _, options: options
    problem, *_ = hook(changed, patches, Hooks(**around))
    assert problem.startswith("openai 99: OpenAI._process_response has no options, response: calls of OpenAI get no")
    OpenAI._process_response = lambda _, *, options, response: (options, response)
    problem, _ = hook(changed, Patches(), Hooks(**around, send=lambda method: method))
    assert problem == "openai 99: OpenAI._prepare_request is gone: OpenAI asks no server for token ids"
    assert OpenAI()._process_response(options=1, response=2) == (1, 2)


def test_before_openai_3_requests_are_sent_by_httpx():
    class OpenAI:
        def _process_response(self, *, options, response): ...
        def _build_request(self, options): ...
        def _prepare_request(self, request): ...
        def request(self, options): ...

    class Http:
        def send(self, request, *, stream): ...

    class AsyncHttp:
        async def send(self, request, *, stream): ...

    older = types.ModuleType("openai")
    older.OpenAI, older.AsyncOpenAI = OpenAI, type("AsyncOpenAI", (OpenAI,), {})
    older._base_client = types.SimpleNamespace(httpx=types.SimpleNamespace(Client=Http, AsyncClient=AsyncHttp))
    patches = Patches()
    before = Http.send, AsyncHttp.send
    around = dict.fromkeys(("request", "build", "process", "stream", "asking_build"), partial)
    hooks = Hooks(**around, send=lambda send: lambda: send)
    assert hook(older, patches, hooks) == []
    assert (Http.send(), AsyncHttp.send()) == before
    patches.undo()
    assert (Http.send, AsyncHttp.send) == before


def test_what_is_missing_is_logged(caplog, monkeypatch):
    monkeypatch.delattr(openai, "AsyncOpenAI")
    with caplog.at_level(logging.WARNING, "art_otel"):
        assert install().problems == (f"openai {openai.__version__} has no AsyncOpenAI: its calls get no exact tokens",)
    assert len(caplog.records) == 1


def test_a_version_that_the_app_set_stands(server):
    app = Instrumented(server.url)
    versions = iter(("ours", "ours at the end"))
    install(policy_version=lambda _: next(versions))

    class Marks(SpanProcessor):
        def on_start(self, span, parent_context=None):  # noqa: ARG002 # as it is called
            span.set_attribute("art.policy.version", "theirs")

    app.provider.add_span_processor(Marks())
    with instrumented("genai", app.provider), app.client() as client, app.rollout():
        client.chat.completions.create(**ASK)
    assert (app.call().policy_version, app.call().policy_version_end) == ("theirs", None)


PLACES = [
    (capture.call.ClientCall, "begin"),
    (capture.call.ClientCall, "answer"),
    (capture.call.ClientCall, "_leave"),
    (capture.capture, "current_call"),
    (ResponseTee, "joined"),
    (ResponseTee, "content"),
    (capture.call, "json_object"),
    (ResponseTee, "is_to_come"),
    (capture.call, "answer_attributes"),
    (capture.call, "attributes_of"),
    (exchange, "json_object"),
    (capture.capture, "_asking"),
    (capture.capture.copy, "copy"),
    (capture.stream, "vars"),
    (capture.call, "current_call_span"),
    (capture.call, "_start"),
    (capture.call, "texts_are_clean"),
    (capture.call, "asked_attributes"),
    (capture.call, "request_attributes"),
    (capture.call, "_exchange"),
]
"""What is called between the app and its client."""

FAULTS = [
    pytest.param(
        *(place, name, instrumentor),
        id=f"{name}-{instrumentor}",
        marks=[pytest.mark.long] * ((number + at) % len(INSTRUMENTORS) != 0),
    )
    for number, (place, name) in enumerate(PLACES)
    for at, instrumentor in enumerate(sorted(INSTRUMENTORS))
]


@pytest.mark.parametrize(("place", "name", "instrumentor"), FAULTS)
def test_no_fault_of_ours_reaches_the_app(server, instrumentor, monkeypatch, place, name):
    app = Instrumented(server.url)
    install(request_tokens=True)

    def fault(*_, **__):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(place, name, property(fault) if name == "is_to_come" else fault, raising=False)
    with instrumented(instrumentor, app.provider), app.client() as client, app.rollout():
        assert client.chat.completions.create(**ASK).choices[0].message.content
        assert list(client.chat.completions.create(**ASK, stream=True))
        assert client.responses.create(model=MODEL, input="Hi").output_text
        assert list(client.responses.create(model=MODEL, input="Hi", stream=True))
        with client.chat.completions.with_streaming_response.create(**ASK) as response:
            assert response.read()
    assert len(app.ended) == 5


def test_a_span_that_cannot_be_written_to_is_left_alone(server):
    class Slotted(trace.NonRecordingSpan):
        __slots__ = ()
        attributes = {"art.rollout.id": "r", "gen_ai.operation.name": "chat"}  # noqa: RUF012 # never changed
        name = "chat"

        def is_recording(self):
            return True

    app = Instrumented(server.url)
    install()
    span = Slotted(trace.INVALID_SPAN_CONTEXT)
    with trace.use_span(span), app.client() as client:
        assert client.chat.completions.create(**ASK).choices[0].message.content
    span.end()
