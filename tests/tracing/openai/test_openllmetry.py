"""OpenLLMetry's faults: each is shown without its repair, so that we learn when it is gone, and then with it."""

import logging
import types

import openai
import pytest

from art_otel.tracing.openai import capture, install
from art_otel.tracing.openai.client import Patches
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi #order=reversed"}]}


@pytest.fixture(params=["faulty", "repaired"])
def is_repaired(request, monkeypatch):
    if request.param == "faulty":
        monkeypatch.setattr("art_otel.tracing.openai.capture.REPAIRS", ())
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
    assert [choice.index for choice in traced.call().choices] == [0, 1]


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


def test_a_stream_with_reasoning_that_is_no_dict(traced, is_repaired):
    with traced.client() as client, traced.rollout():
        asked = {"model": MODEL, "input": "Hi", "reasoning": openai.types.Reasoning(effort="low")}
        if not is_repaired:
            with pytest.raises((AttributeError, TypeError)):
                list(client.responses.create(**asked, stream=True))
            return
        assert list(client.responses.create(**asked, stream=True))


def test_parameters_that_were_not_given(traced, is_repaired, caplog):
    asked = {"model": MODEL, "messages": ASK["messages"], "temperature": openai.omit}
    with traced.client() as client, traced.rollout():
        client.chat.completions.create(**asked, reasoning_effort=openai.omit)
    assert ("Invalid type" in caplog.text) != is_repaired


@pytest.mark.usefixtures("uninstalled")
def test_another_calls_response_is_not_taken(server):
    app = Instrumented(server.url)
    install()
    with app.client() as client, app.rollout():
        client.responses.create(model=MODEL, input="Not recorded")
        with instrumented("openllmetry", app.provider), pytest.raises(openai.APIStatusError):
            client.responses.retrieve("resp-of-another")
    assert not [span for span in app.ended if "art.response.choices" in span.attributes]


def test_what_is_not_as_the_fault_has_it_is_left_alone():
    for _, name, repair in capture.REPAIRS:
        module = types.ModuleType("other")
        before = dict(vars(module))
        capture.repair(module, name, repair, Patches())
        assert vars(module) == before
