"""A call whose span only the spool gets is written with its bodies; what is read of it is what a collector's says."""

import json

import openai
import pytest
from opentelemetry import trace

from art_otel.live import RolloutBuffer
from art_otel.scrubbing import Scrubber
from art_otel.tracing.openai import install
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.sdk.span_lines import SpanScrubber, without_content
from tests.scrubbing.secrets import SECRETS
from tests.tracing.openai.instrumented import MODEL, Instrumented, instrumented

KEY = SECRETS["openai"][1]
BODIES = ("art.request.body", "art.response.body")

pytestmark = pytest.mark.usefixtures("uninstalled")


def record(server, monkeypatch, asks, *, exported, rewrites):
    """The attributes of the calls in the lines, and the calls that are read of them, after `asks(client)`."""
    app = Instrumented(server.url, rollouts=False)
    rollouts = RolloutBuffer()
    recording = RecordingSpanProcessor(rollouts=rollouts, rewrites=rewrites)
    several = app.provider._active_span_processor
    several._span_processors = (recording, *(several._span_processors if exported else ()))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", app.provider)
    install(request_tokens=True, scrubber=Scrubber())
    with instrumented(None, app.provider), app.client() as client, app.rollout() as root:
        rollout_id = root.attributes["art.rollout.id"]
        rollouts.keep(rollout_id)
        asks(client)
    lines = [
        json.loads(line if isinstance(line, bytes) else line.read()) for line in rollouts._rollouts[rollout_id].lines
    ]
    spans = [line["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for line in lines]
    names = [{each["key"]: each["value"] for each in span["attributes"]} for span in spans if "endTimeUnixNano" in span]
    return [one for one in names if "gen_ai.operation.name" in one], rollouts.calls(rollout_id)


def facts(call):
    """What a call says but for its ids and times. The server samples anew for each request."""
    choices = [
        (
            choice.index,
            choice.finish_reason,
            len(choice.message.tool_calls),
            choice.token_ids is None,
            choice.logprobs is None,
        )
        for choice in call.choices or ()
    ]
    texts = (call.input_messages, choices, call.prompt_token_ids is None, call.closed_by_app, call.gaps)
    asked = (call.request_model, call.parameters, call.stream, call.tools)
    return (*texts, *asked, call.failed, call.usage is None, call.error)


def ask_all(client):
    hi = [{"role": "user", "content": "Hi #calls=1"}]
    weather = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    client.chat.completions.create(model=MODEL, messages=hi, n=2, temperature=0.5, tools=weather)
    assert list(client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], stream=True))
    client.responses.create(model=MODEL, input="Hi", instructions="Be brief.")
    client.completions.create(model=MODEL, prompt="Hi")
    with client.chat.completions.create(model=MODEL, messages=hi[:1], stream=True) as left:
        next(iter(left))
    with pytest.raises(openai.APIStatusError):
        client.with_options(max_retries=0).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi #fail=500"}]
        )


@pytest.mark.parametrize("rewrites", [[], [SpanScrubber(Scrubber())]], ids=["as they are", "scrubbed"])
def test_the_spool_has_bodies_and_gives_the_calls_that_a_collector_s_spans_give(server, monkeypatch, rewrites):
    raw, calls = record(server, monkeypatch, ask_all, exported=False, rewrites=rewrites)
    whole, expected = record(server, monkeypatch, ask_all, exported=True, rewrites=rewrites)
    assert all(BODIES[0] in one and "art.request.parameters" not in one for one in raw)
    assert not any(name in one for one in whole for name in BODIES)
    assert len(calls) == len(expected) == 6
    for call, other in zip(calls, expected, strict=True):
        assert facts(call) == facts(other)
    assert calls[0].choices[1].token_ids is not None


def test_no_secret_is_in_the_bodies_of_a_line(server, monkeypatch):
    def ask(client):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": f"My key is {KEY}"}])

    (raw,), (call,) = record(server, monkeypatch, ask, exported=False, rewrites=[SpanScrubber(Scrubber())])
    assert KEY not in json.dumps(raw)
    assert raw["art.scrubbed.content"] == {"boolValue": True}
    assert call.choices[0].token_ids is None


def test_without_content_there_are_no_bodies(server, monkeypatch):
    (line, *_), _ = record(server, monkeypatch, ask_all, exported=False, rewrites=[without_content])
    assert not any(name in line for name in BODIES)
    assert "0.5" in json.dumps(line["art.request.parameters"])
