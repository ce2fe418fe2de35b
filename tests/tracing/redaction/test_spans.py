"""Finished spans without secrets, for every exporter of the app."""

import contextlib
import json
import logging

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions import parse_call
from art_otel.conventions.bodies.tokens import encode_ids, encode_logprobs
from art_otel.sources import FileAccount, find_inputs, read_file
from art_otel.spans import Span
from art_otel.tracing.processing import span_parts
from art_otel.tracing.redaction import Redactor
from art_otel.tracing.redaction.content import content_free, without_content
from tests.conversions import convert_files
from tests.tracing.redaction.secrets import SECRETS, canaries
from tests.tracing.redaction.spans import App, Torn, messages

KEY = SECRETS["openai"][1]
ELSEWHERE = SpanContext(trace_id=1, span_id=2, is_remote=True, trace_flags=TraceFlags(1))
IDS = encode_ids(TokenIds.of([1, 2, 3]))


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
        raise RuntimeError(f"failed with {secret}")


@pytest.mark.parametrize("name", SECRETS)
def test_no_canary_in_any_byte(name, tmp_path):
    kind, secret = SECRETS[name]
    app = App(tmp_path, Redactor().redact, resource={"service.name": "app", "env": f"of {secret}"})
    spill(app, secret)
    everything = app.everything()
    assert not [word for word in canaries(secret) if word in everything]
    assert f"[redacted:{kind}]" in everything
    (span,) = app.spans
    assert span.attributes["art.redacted"] > 10
    assert span.attributes["art.rollout.id"] == "r"
    assert span.resource.attributes["art.redacted"] == 1
    assert span.resource.attributes["service.name"] == "app"
    assert json.loads(span.attributes["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": "hello"}]
    assert json.loads(json.loads(span.attributes["arguments"])["of"])["the"][0].startswith("call ")


def test_no_canary_in_a_span_that_lost_its_rollout_s_id_to_the_sdk_s_limit(tmp_path):
    app = App(tmp_path, Redactor().redact)
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
    app = App(tmp_path, Redactor().redact, max_span_attributes=3, max_events=1, max_links=1)
    span = app.tracer.start_span("s", links=[Link(ELSEWHERE), Link(ELSEWHERE, {"key": KEY})], start_time=5)
    for number in range(5):
        span.set_attribute(f"a{number}", KEY if number == 4 else number)
        span.add_event(f"e{number}", {"at": number}, timestamp=number)
    span.set_status(Status(StatusCode.ERROR, f"bad {KEY}"))
    span.end(9)
    (kept,) = app.spans
    assert dict(kept.attributes) == {"a2": 2, "a3": 3, "a4": "[redacted:openai key]", "art.redacted": 3}
    assert (kept.dropped_attributes, kept.dropped_events, kept.dropped_links) == (2, 4, 1)
    assert [(event.name, event.timestamp, dict(event.attributes)) for event in kept.events] == [("e4", 4, {"at": 4})]
    assert [(link.context, dict(link.attributes)) for link in kept.links] == [
        (ELSEWHERE, {"key": "[redacted:openai key]"})
    ]
    assert (kept.status.status_code, kept.status.description) == (StatusCode.ERROR, "bad [redacted:openai key]")
    assert (kept.start_time, kept.end_time, kept.get_span_context()) == (5, 9, span.get_span_context())
    with pytest.raises(TypeError):
        kept.attributes["a2"] = 1
    app.everything()


def test_a_clean_span_is_left_as_it_is():
    span = ReadableSpan(
        name="s",
        attributes={
            "text": "t",
            "usage.input_tokens": 5,
            "time_per_output_token": 0.5,
            "listed": ("a", b"b", {"c": None}),
            "art.tokens.prompt": IDS,
        },
    )
    before = span._attributes
    assert Redactor().redact(span) == 0
    assert span._attributes is before
    assert Redactor().redacted(span) is span


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("authorization", "a", "[redacted:authorization]"),
        ("http.request.header.authorization", ("Basic a", "b"), ("[redacted:authorization]",) * 2),
        ("http.request.header.x_api_key", "short", "[redacted:x api key]"),
        ("http.request.header.X-Api-Key", "short", "[redacted:x api key]"),
        ("http.response.header.set-cookie", "a=b", "[redacted:set cookie]"),
        ("http.request.header.cookie", "a=b", "[redacted:cookie]"),
        ("openai.api_key", "k", "[redacted:api key]"),
        ("db.password", "p", "[redacted:password]"),
        ("app.secret", "s", "[redacted:secret]"),
        ("oauth.client_secret", "s", "[redacted:client secret]"),
        ("tls.private_key", "s", "[redacted:private key]"),
        ("oauth.access_token", "s", "[redacted:access token]"),
        ("oauth.refresh_token", "s", "[redacted:refresh token]"),
        ("password", "[redacted:x] y", "[redacted:password]"),
        ("raw", {"a": f"\xff {KEY}".encode("latin-1")}, {"a": b"\xff [redacted:openai key]"}),
        ("headers", {"Authorization": f"Bearer {KEY}"}, {"Authorization": "Bearer [redacted:openai key]"}),
        ("art.metadata.secret", KEY, "[redacted:openai key]"),
    ],
)
def test_names_that_tell_of_a_secret(name, value, kept):
    span = ReadableSpan(name="s", attributes={name: value})
    Redactor().redact(span)
    assert span.attributes[name] == kept
    assert span.attributes["art.redacted"] == (2 if isinstance(value, tuple) else 1)
    assert "art.redacted.content" not in span.attributes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("art.metadata.secret", "crane"),
        ("art.metadata.target_token", "Yes"),
        ("art.metadata.db", '{"password": "p", "port": 1}'),
        ("art.extra.password", "swordfish"),
        ("art.extra", '{"secret": "crane"}'),
        ("art.env_state.secret", "crane"),
        ("gen_ai.secret", "s"),
        ("llm.password", "p"),
        ("session-token", "t"),
        ("target_token", "Yes"),
        ("OPENAI_API_KEY", "k"),
        ("db.password_policy", "strict"),
        ("db.password", 1234),
        ("app.secret", b"b"),
        ("app.secret", {"b": "c"}),
        ("has_password", True),
        ("password", None),
        ("password", ""),
        ("password", "[redacted:secret]"),
        ("llm.eos_token", "</s>"),
        ("llm.token_count.prompt", 3),
        ("gen_ai.token.type", "input"),
        ("arguments", '{"password": "p"}'),
        ("headers", {"cookie": "y"}),
    ],
)
def test_what_no_name_takes_away(name, value):
    span = ReadableSpan(name="s", attributes={name: value})
    assert Redactor().redact(span) == 0
    assert span.attributes[name] == value


SAMPLED = "Run psql postgresql://postgres:postgres@localhost with .sk-toggleable-content-Box1 { color: red }"


def test_code_that_a_model_reads_and_writes_keeps_its_tokens(tmp_path):
    app = App(tmp_path, Redactor().redact)
    packed = {"art.tokens.prompt": IDS, "art.tokens.completion.0": IDS}
    with app.tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat", **packed}) as span:
        span.set_attribute("gen_ai.input.messages", messages(SAMPLED))
        choices = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": SAMPLED}}]
        span.set_attribute("art.response.choices", json.dumps(choices))
    app.everything()
    (read,) = [
        one for source in find_inputs([app.file]) for one in read_file(source, FileAccount()) if isinstance(one, Span)
    ]
    call = parse_call(read)
    assert call.extra == {}
    assert call.choices[0].message.content == SAMPLED
    assert call.choices[0].token_ids.tolist() == call.prompt_token_ids.tolist() == [1, 2, 3]


def test_what_is_nested_too_deep_is_read_as_its_repr():
    deep: object = KEY
    clean: object = "x"
    for _ in range(40):
        deep, clean = [deep], [clean]
    span = ReadableSpan(name="s", attributes={"deep": deep, "clean": clean})
    Redactor().redact(span)
    assert "[redacted:openai key]" in str(span.attributes["deep"])
    assert KEY not in str(span.attributes["deep"])
    assert str(clean).replace("[", "").replace("]", "").strip("'") == "x" in str(span.attributes["clean"])


def test_counts_add_up_when_a_span_is_redacted_again():
    span = ReadableSpan(name=KEY, attributes={"a": KEY})
    assert Redactor([], hook=lambda text: text.replace("a", "b")).redact(span) == 2
    assert Redactor().redact(span) == 4
    assert Redactor().redact(span) == 0
    assert span.attributes["art.redacted"] == 4


BODY = {
    "choices": [
        {
            "message": {"content": f"It is {KEY}"},
            "token_ids": [4, 5],
            "logprobs": {"content": [{"token": KEY[:2]}, {"token": KEY[2:]}]},
        }
    ],
    "prompt_token_ids": [1, 2],
}


def test_tokens_that_spell_a_secret_go_with_it(tmp_path):
    app = App(tmp_path, Redactor().redact)
    with app.tracer.start_as_current_span("chat m") as span:
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute(
            "input.value", json.dumps({"logprobs": True, "messages": [{"role": "user", "content": "?"}]})
        )
        span.set_attribute("output.value", json.dumps(BODY))
        span.set_attribute("art.tokens.prompt", IDS)
        span.set_attribute("art.tokens.completion.0", IDS)
        span.set_attribute("art.logprobs.completion.0", encode_logprobs(Logprobs.of([0.0, -1.0, -2.0])))
    (kept,) = app.spans
    body = json.loads(kept.attributes["output.value"])
    assert body["choices"] == [
        {"message": {"content": "It is [redacted:openai key]"}, "token_ids": None, "logprobs": None}
    ]
    assert body["prompt_token_ids"] is None
    assert json.loads(kept.attributes["input.value"])["logprobs"] is True
    assert not [name for name in kept.attributes if name.startswith(("art.tokens", "art.logprobs"))]
    assert kept.attributes["art.redacted.content"] is True
    app.everything()
    (read,) = [
        one for source in find_inputs([app.file]) for one in read_file(source, FileAccount()) if isinstance(one, Span)
    ]
    call = parse_call(read)
    assert call.extra == {"art.redacted": 1, "art.redacted.content": True}
    assert call.prompt_token_ids is None
    assert call.choices[0].token_ids is None
    assert call.choices[0].message.content == "It is [redacted:openai key]"


def test_tokens_go_from_bodies_that_were_cut_off_too():
    cut = json.dumps(BODY)[:-30]
    span = ReadableSpan(name="s", attributes={"output.value": cut, "nested": {"logprobs": [1], "deep": (KEY,)}})
    Redactor().redact(span)
    assert span.attributes["output.value"] == "[redacted:tokens]"
    assert span.attributes["nested"] == {"logprobs": None, "deep": ("[redacted:openai key]",)}


def test_tokens_nested_too_deep_to_look_at_go():
    deep: object = "x"
    for _ in range(40):
        deep = [deep]
    span = ReadableSpan(
        name="s", attributes={"message": KEY, "output.value": json.dumps({"token_ids": [1], "d": deep})}
    )
    Redactor().redact(span)
    assert "x" not in span.attributes["output.value"]


def test_tokens_stay_where_no_content_was_redacted():
    span = ReadableSpan(
        name=KEY,
        attributes={"server.url": f"http://h/?key={KEY}", "art.tokens.prompt": IDS, "output.value": '"token_ids"'},
    )
    assert Redactor().redact(span) == 2
    assert span.attributes["art.tokens.prompt"] == IDS
    assert "art.redacted.content" not in span.attributes


def parameters(**asked):
    return json.dumps({"model": "m", "tools": [{"type": "function", "function": {"name": "f"}}], **asked})


@pytest.mark.parametrize(
    ("attributes", "events", "is_content"),
    [
        ({"gen_ai.output.messages": messages(KEY)}, {}, True),
        ({"art.response.choices": json.dumps([{"message": {"content": KEY}}])}, {}, True),
        ({"input.value": KEY}, {}, True),
        ({"art.request.parameters": parameters(tools=[{"description": KEY}])}, {}, True),
        ({"art.request.parameters": parameters(user=KEY)}, {}, False),
        ({"llm.invocation_parameters": f"cut off {KEY}"}, {}, True),
        ({}, {"gen_ai.user.message": {"text": KEY}}, True),
        ({}, {"gen_ai.content.prompt": {"gen_ai.prompt": KEY}}, True),
        ({}, {"exception": {"exception.message": KEY, "exception.stacktrace": KEY}}, False),
        ({}, {"art.log": {"art.log.message": KEY}}, False),
        ({"server.url": KEY, "db.password": "p"}, {}, False),
    ],
)
def test_a_span_says_whether_what_a_model_read_or_wrote_was_altered(attributes, events, is_content):
    span = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("s", attributes=attributes)
    for name, said in events.items():
        span.add_event(name, said)
    span.end()
    kept = Redactor().redacted(span)
    assert kept.attributes["art.redacted"] >= 1
    assert kept.attributes.get("art.redacted.content") == (True if is_content else None)


def test_a_redacted_call_says_so_in_the_dataset(tmp_path):
    app = App(tmp_path, Redactor().redact)
    with app.tracer.start_as_current_span("rollout r", attributes={"art.rollout.id": "r", "art.metadata.a": KEY}):
        for answer in (KEY, "no secret"):
            with app.tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}) as span:
                span.set_attribute("gen_ai.output.messages", messages(answer))
    app.everything()
    (trajectory,), _ = convert_files(tmp_path / "out", app.file)
    assert [call.extra for call in trajectory.calls] == [{"art.redacted": 1, "art.redacted.content": True}, {}]
    assert trajectory.metadata == {"a": "[redacted:openai key]", "art.redacted": 1}


def test_a_running_span_is_told_redacted_and_goes_on():
    span = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("s", attributes={"a": KEY})
    copy = Redactor().redacted(span)
    assert dict(copy.attributes) == {"a": "[redacted:openai key]", "art.redacted": 1}
    assert copy.get_span_context() == span.get_span_context()
    assert copy.end_time is None
    assert span.attributes["a"] == KEY
    span.set_attribute("b", 1)
    span.end()


def test_the_hook_is_asked_for_texts_and_not_for_names():
    seen: set[str] = set()
    span = ReadableSpan(
        name="n",
        resource=Resource({"service.name": "app"}),
        instrumentation_scope=InstrumentationScope("scope", "1"),
        attributes={"k": "v", "art.rollout.id": "r", "list": ("w", 1), "art.tokens.prompt": IDS, "empty": ""},
    )
    Redactor(hook=lambda text: seen.add(text) or text).redact(span)
    assert seen == {"n", "v", "w", "app"}
    assert "art.redacted" not in span.attributes


def test_a_resource_is_redacted_once_and_stays_the_same_one():
    calls: list[str] = []
    redactor = Redactor(hook=lambda text: calls.append(text) or text.upper())
    for shared in [Resource({"a": "b"}) for _ in range(300)]:
        spans = [ReadableSpan(name="S", resource=shared) for _ in range(2)]
        for span in spans:
            redactor.redact(span)
        assert spans[0].resource is spans[1].resource
    assert calls.count("b") == 300


@pytest.mark.flood
def test_names_without_end_are_not_remembered_without_end():
    redactor = Redactor()
    for number in range(5_000):
        redactor.redact(ReadableSpan(name="s", attributes={f"name.{number}": 1}))
    assert len(redactor._clean._names) <= 4096


def test_a_conversation_that_goes_on_is_found_out_where_it_goes_on():
    redactor = Redactor()
    said = ["x" * 500] * 10
    for _ in range(5):
        assert redactor.redact(ReadableSpan(name="s", attributes={"gen_ai.input.messages": messages(*said)})) == 0
        said += ["y" * 500]
    for number in range(len(said)):
        leaking = [*said[:number], KEY, *said[number:]]
        assert redactor.redact(ReadableSpan(name="s", attributes={"gen_ai.input.messages": messages(*leaking)})) == 1
    half = messages(*said)[:-2]
    text = f"{half[:-10]} {KEY[:12]}"
    assert redactor.redact(ReadableSpan(name="s", attributes={"a": text})) == 0
    assert redactor.redact(ReadableSpan(name="s", attributes={"a": text + KEY[12:]})) == 1


@pytest.mark.parametrize("kept", [{}, {"art.rollout.id": "r"}])
def test_a_span_that_cannot_be_redacted_leaves_empty(kept, caplog):
    redactor = Redactor()
    for number in range(1, 6):
        span = ReadableSpan(name=KEY, attributes=Torn(kept, a=KEY), events=(KEY,))
        assert redactor.redact(span) == 1
        assert (span.name, dict(span.attributes)) == (
            "[redacted:failed]",
            {"art.redacted": 1, "art.redacted.content": True, **kept},
        )
        assert not span.events
        assert redactor.failures == number
    assert len(caplog.records) == 3
    copy = redactor.redacted(ReadableSpan(name=KEY, attributes=Torn(a=KEY)))
    assert dict(copy.attributes) == {"art.redacted": 1, "art.redacted.content": True}


class OtherSpan(ReadableSpan):
    """A finished span of an SDK that keeps its parts elsewhere."""

    @property
    def name(self):
        return "fixed"


def test_an_sdk_that_lets_nothing_be_changed_is_told_of(monkeypatch, caplog):
    monkeypatch.setattr(span_parts, "ReadableSpan", OtherSpan)
    redactor = Redactor()
    assert not redactor.in_place
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "other exporters of this app send is NOT" in caplog.text
    span = ReadableSpan(name="s", attributes={"a": KEY})
    assert redactor.redact(span) == 0
    assert span.attributes["a"] == KEY
    monkeypatch.undo()
    assert dict(redactor.redacted(span).attributes) == {"a": "[redacted:openai key]", "art.redacted": 1}


def test_this_sdk_lets_finished_spans_be_changed():
    assert span_parts.can_put()
    assert Redactor().in_place


def test_without_content_and_redacted(tmp_path):
    app = App(tmp_path, without_content, Redactor().redact)
    spill(app, KEY)
    assert KEY not in app.everything()
    assert content_free(app.spans[0]).name == "name [redacted:openai key]"
