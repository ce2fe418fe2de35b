"""Finished spans without secrets, for every exporter of the app."""

import contextlib
import json

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions import parse_call
from art_otel.conventions.bodies.tokens import encode_ids, encode_logprobs
from art_otel.scrubbing import Scrubber
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Span
from art_otel.tracing.sdk.span_lines import SpanScrubber, without_content
from tests.scrubbing.secrets import SECRETS, canaries
from tests.tracing.sdk.rewritten import App, Torn, messages

KEY = SECRETS["openai"][1]
GONE = "[scrubbed:openai key]"
ELSEWHERE = SpanContext(trace_id=1, span_id=2, is_remote=True, trace_flags=TraceFlags(1))
IDS = encode_ids(TokenIds.of([1, 2, 3]))
LOGPROBS = encode_logprobs(Logprobs.of([0.0, -1.0, -2.0]))


def scrubbed(attributes, mode="on", **parts) -> ReadableSpan:
    span = ReadableSpan(name="s", attributes=attributes, **parts)
    assert SpanScrubber(Scrubber(mode))(span) is span
    return span


def calls_of(app: App) -> list:
    app.everything()
    found = [one for source in find_inputs([app.file]) for one in read_file(source, FileStats())]
    return [parse_call(one) for one in found if isinstance(one, Span)]


def spill(app: App, secret: str) -> None:
    """A secret in every place of a span where there is room for one."""
    tracer = app.provider.get_tracer(f"scope {secret}", f"1 {secret}", attributes={"of the scope": secret})
    links = [Link(ELSEWHERE, {"of the link": secret, "deep": [secret]})]
    with (
        contextlib.suppress(RuntimeError),
        tracer.start_as_current_span(f"name {secret}", links=links, attributes={"early": secret}) as span,
    ):
        span.set_attribute("gen_ai.input.messages", messages("hello", f'"{secret}"\n'))
        span.set_attribute("arguments", json.dumps({"of": json.dumps({"the": [f"call {secret}"]})}))
        span.set_attribute("listed", ["a", secret])
        span.set_attribute("nested", {"a": [{"b": f"x {secret}"}], f"key {secret}": 1})
        span.set_attribute(f"name of {secret}", 1)
        span.set_attribute("art.metadata.note", f"see {secret}")
        span.set_attribute("art.rollout.id", "r")
        span.add_event(f"event {secret}", {"what": secret, "body": {"content": [secret]}})
        for chunk in (secret[: len(secret) // 2], secret[len(secret) // 2 :]):
            span.add_event("chunk", {"delta": chunk})
        raise RuntimeError(f"failed with {secret}")


@pytest.mark.parametrize("name", SECRETS)
def test_no_canary_in_any_byte(name, tmp_path):
    kind, secret = SECRETS[name]
    app = App(tmp_path, SpanScrubber(Scrubber()), resource={"service.name": "app", "env": f"of {secret}"})
    spill(app, secret)
    everything = app.everything()
    assert not [word for word in canaries(secret) if word in everything]
    assert not [word for word in canaries(secret) if word[: len(word) // 2 - 1] in everything]
    assert f"[scrubbed:{kind}]" in everything
    (span,) = app.spans
    assert span.attributes["art.scrubbed"] > 10
    assert span.attributes["art.scrubbed.content"] is True
    assert span.attributes["art.rollout.id"] == "r"
    assert dict(span.resource.attributes)["art.scrubbed"] == 1
    assert span.resource.attributes["service.name"] == "app"
    assert json.loads(span.attributes["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": "hello"}]
    assert json.loads(json.loads(span.attributes["arguments"])["of"])["the"][0].startswith("call ")


def test_no_canary_in_a_span_that_lost_its_rollout_s_id_to_the_sdk_s_limit(tmp_path):
    app = App(tmp_path, SpanScrubber(Scrubber()))
    tracer = app.provider.get_tracer("app")
    marks = {"art.rollout.id": "r", "art.rollout.name": "x"}
    with (
        tracer.start_as_current_span("rollout x", attributes=marks),
        tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}) as span,
    ):
        for number in range(200):
            span.set_attribute(f"gen_ai.prompt.{number}.content", f"key {KEY}")
    assert not [word for word in canaries(KEY) if word in app.everything()]


def test_the_rest_of_the_span_stays(tmp_path):
    app = App(tmp_path, SpanScrubber(Scrubber()), max_span_attributes=3, max_events=1, max_links=1)
    span = app.tracer.start_span("s", links=[Link(ELSEWHERE), Link(ELSEWHERE, {"key": KEY})], start_time=5)
    for number in range(5):
        span.set_attribute(f"a{number}", KEY if number == 4 else number)
        span.add_event(f"e{number}", {"at": number}, timestamp=number)
    span.set_status(Status(StatusCode.ERROR, f"bad {KEY}"))
    span.end(9)
    (kept,) = app.spans
    assert dict(kept.attributes) == {"a2": 2, "a3": 3, "a4": GONE, "art.scrubbed": 3}
    assert (kept.dropped_attributes, kept.dropped_events, kept.dropped_links) == (2, 4, 1)
    assert [(event.name, event.timestamp, dict(event.attributes)) for event in kept.events] == [("e4", 4, {"at": 4})]
    assert [(link.context, dict(link.attributes)) for link in kept.links] == [(ELSEWHERE, {"key": GONE})]
    assert (kept.status.status_code, kept.status.description) == (StatusCode.ERROR, f"bad {GONE}")
    assert (kept.start_time, kept.end_time, kept.get_span_context()) == (5, 9, span.get_span_context())
    with pytest.raises(TypeError):
        kept.attributes["a2"] = 1
    app.everything()


CLEAN = {
    "text": "t",
    "usage.input_tokens": 5,
    "listed": ("a", b"b", {"c": None}),
    "gen_ai.response.finish_reasons": ("stop",),
    "art.tokens.prompt": IDS,
}


@pytest.mark.parametrize("nested", [{}, {"deep": {"a": [None, {"b": b"c"}]}}])
def test_a_clean_span_is_left_as_it_is(nested):
    span = scrubbed({**CLEAN, **nested})
    assert dict(span.attributes) == {**CLEAN, **nested}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("http.request.header.authorization", ("Basic a", "b"), ("[scrubbed:authorization]",) * 2),
        ("http.response.header.set-cookie", "a=b", "[scrubbed:set cookie]"),
        ("headers", {"Authorization": "Bearer x"}, {"Authorization": "[scrubbed:authorization]"}),
        ("http.request.body", '{"user": "u", "password": "p"}', '{"user": "u", "password": "[scrubbed:password]"}'),
        ("art.metadata.secret", KEY, GONE),
        ("gen_ai.secret", KEY, GONE),
        ("raw", f"\xff {KEY}".encode("latin-1"), f"\xff {GONE}".encode("latin-1")),
    ],
)
def test_names_and_forms_of_secrets(name, value, kept):
    span = scrubbed({name: value})
    assert span.attributes[name] == kept
    assert span.attributes["art.scrubbed"] == (2 if isinstance(value, tuple) else 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("art.metadata.secret", "crane"),
        ("art.metadata.target_token", "Yes"),
        ("art.metadata.db", '{"password": "p", "port": 1}'),
        ("art.metadata_json.db", '{"password": "p", "port": 1}'),
        ("art.extra", '{"secret": "crane"}'),
        ("art.env_state.secret", "crane"),
        ("gen_ai.tool.call.arguments", '{"password": "p"}'),
        ("gen_ai.prompt.0.content", '{"password": "p"}'),
        ("llm.password", "p"),
        ("input.value", '{"messages": [{"content": "{\\"password\\": \\"p\\"}"}]}'),
        ("output.value", '{"secret": "crane"}'),
        ("session-token", "t"),
        ("OPENAI_API_KEY", "k"),
        ("db.password", 1234),
        ("password", ""),
    ],
)
def test_what_no_name_takes_away(name, value):
    assert dict(scrubbed({name: value}).attributes) == {name: value}


def test_messages_and_the_log_are_beyond_names():
    """Their attributes have names of their own: `content`, `message`."""
    app_words = {"art.log.message": '{"secret": "crane"}', "secret": "crane"}
    span = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("s")
    span.add_event("gen_ai.choice", {"message": '{"arguments": "{\\"password\\": \\"p\\"}"}'})
    span.add_event("art.log", app_words)
    span.end()
    SpanScrubber(Scrubber())(span)
    assert [dict(event.attributes) for event in span.events][1] == app_words
    assert "art.scrubbed" not in span.attributes


def call(app: App, asked: str, answered: str, **more) -> None:
    packed = {"art.tokens.prompt": IDS, "art.tokens.completion.0": IDS, "art.logprobs.completion.0": LOGPROBS}
    attributes = {"gen_ai.operation.name": "chat", **packed, **more}
    with app.tracer.start_as_current_span("chat m", attributes=attributes) as span:
        span.set_attribute("gen_ai.input.messages", messages(asked))
        choices = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answered}}]
        span.set_attribute("art.response.choices", json.dumps(choices))


def test_marking_alters_nothing(tmp_path):
    app = App(tmp_path, SpanScrubber(Scrubber("mark")))
    call(app, KEY, "ok", **{"http.request.header.authorization": ("x",)})
    (kept,) = app.spans
    assert kept.attributes["http.request.header.authorization"] == ("x",)
    (found,) = calls_of(app)
    assert found.has_gap("scrubbed")
    assert found.extra == {"art.scrubbed": 2, "art.scrubbed.content": True}
    assert found.input_messages[0].content == KEY
    assert found.choices[0].token_ids.tolist() == [1, 2, 3]


def test_a_resource_is_scrubbed_once_and_stays_the_same_one():
    scrub = SpanScrubber(Scrubber())
    for shared in [Resource({"a": KEY}) for _ in range(300)]:
        spans = [ReadableSpan(name="s", resource=shared) for _ in range(2)]
        for span in spans:
            scrub(span)
        assert spans[0].resource is spans[1].resource
        assert dict(spans[0].resource.attributes) == {"a": GONE, "art.scrubbed": 1}
    assert len(scrub._shared) <= 256


@pytest.mark.parametrize("kept", [{}, {"art.rollout.id": "r"}])
def test_a_span_that_cannot_be_scrubbed_leaves_empty(kept, caplog):
    scrub = SpanScrubber(Scrubber())
    for number in range(1, 6):
        span = ReadableSpan(name=KEY, attributes=Torn(kept, a=KEY), events=(KEY,))
        scrub(span)
        assert (span.name, dict(span.attributes)) == (
            "[scrubbed:failed]",
            {"art.scrubbed": 1, "art.scrubbed.content": True, **kept},
        )
        assert not span.events
        assert scrub.failures == number
    assert len(caplog.records) == 3


def test_what_an_sdk_lets_nobody_change_is_not_written():
    span = ReadableSpan(name="s", attributes={"a": KEY})
    del span._events
    with pytest.raises(AttributeError):
        SpanScrubber(Scrubber())(span)


def test_without_content_and_scrubbed(tmp_path):
    app = App(tmp_path, without_content, SpanScrubber(Scrubber()))
    spill(app, KEY)
    assert KEY not in app.everything()
    assert app.spans[0].name == f"name {GONE}"
