"""Content left out: structure stays, what was said goes."""

import json

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from art_otel.conventions import parse_call, role_of
from art_otel.conventions.content_names import names_content
from art_otel.sources import FileStats, Limits, Reading, read_lines_of
from art_otel.spans import Span
from art_otel.tracing.sdk.span_lines import OtlpJsonEncoder, content_environment, without_content
from tests.conventions.recorded import MODES, spans
from tests.gaps import unread
from tests.tracing.sdk.rewritten import App, Torn, messages

SCENARIOS = ("sync_tools", "stream_sync", "n2", "parse", "responses_api", "raw_response", "long100", "error_retry")


def as_sdk_span(span: Span) -> ReadableSpan:
    """A recorded span as the SDK held it."""
    kind = SpanKind.INTERNAL if span.kind == "unspecified" else SpanKind[span.kind.upper()]
    status = Status(StatusCode[span.status.upper()], span.status_message or None)
    provider = TracerProvider(shutdown_on_exit=False)
    made = provider.get_tracer(span.scope.name).start_span(span.name, kind=kind, attributes=span.attributes)
    for event in span.events:
        made.add_event(event.name, event.attributes, event.time_ns)
    context = SpanContext(int(span.trace_id, 16), int(span.span_id, 16), is_remote=False, trace_flags=TraceFlags(1))
    return ReadableSpan(
        name=span.name,
        context=context,
        attributes=made.attributes,
        events=made.events,
        kind=kind,
        status=status,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=InstrumentationScope(span.scope.name, span.scope.version),
    )


def read_back(span: ReadableSpan) -> Span:
    """The span as a reader of the spool gets it."""
    reading = Reading(path="test", limits=Limits(), stats=FileStats())
    (record,) = read_lines_of([OtlpJsonEncoder().line(span)], reading)
    return record


def said_in(span: Span) -> set[str]:
    """Every text that a model read or wrote, as the conventions read it."""
    call = parse_call(span)
    said = [*(call.input_messages or ()), *(choice.message for choice in call.choices or ())]
    texts = {text for one in said for text in (one.content, one.reasoning, one.refusal, one.parts)}
    texts |= {tool.arguments for one in said for tool in one.tool_calls}
    texts |= {json.dumps(tool["function"]["parameters"]) for tool in call.tools or () if "function" in tool}
    return {text for text in texts if text and len(text) > 3}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", MODES)
def test_a_recorded_call_keeps_its_structure_only(mode, scenario):
    calls = [span for span in spans(mode, scenario) if role_of(span) == "inference"]
    assert calls or (mode.startswith("otelv2") and scenario == "responses_api")
    for recorded in calls:
        span = as_sdk_span(recorded)
        before = parse_call(read_back(span))
        without_content(span)
        after_span = read_back(span)
        written = OtlpJsonEncoder().line(span).decode()
        assert not [text for text in said_in(recorded) if json.dumps(text)[1:-1] in written]
        after = parse_call(after_span)
        assert (after.input_messages, after.choices, after.tools) == (None, None, None)
        assert (after.prompt_token_ids, after.error) in ((None, None), (None, "the span's status is an error"))
        assert (after.request_model, after.operation_name) == (before.request_model, before.operation_name)
        assert (after.start_ns, after.end_ns, after.usage) == (before.start_ns, before.end_ns, before.usage)
        assert (after.failed, after.error_type) == (before.failed, before.error_type)
        assert after.response_id == (None if mode == "openinference" else before.response_id)
        assert role_of(after_span) == "inference"
        assert not unread(after)


def test_parameters_keep_their_numbers():
    given = {"model": "m", "temperature": 0.5, "stop": ["secret"], "tools": [{"a": "b"}], "stream": True, "user": "u"}
    for value in (json.dumps(given), given):
        span = ReadableSpan(name="s", attributes={"art.request.parameters": value})
        without_content(span)
        kept = json.loads(span.attributes["art.request.parameters"])
        assert kept == {"model": "m", "temperature": 0.5, "stream": True}


@pytest.mark.parametrize("value", ["{cut", "[1]", "null", "[" * 100_000])
def test_parameters_that_cannot_be_read_go(value):
    span = ReadableSpan(name="s", attributes={"llm.invocation_parameters": value})
    without_content(span)
    assert span.attributes["llm.invocation_parameters"] == "{}"


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.input.messages",
        "gen_ai.prompt.0.content",
        "gen_ai.completion.0.tool_calls.0.arguments",
        "gen_ai.tool.call.result",
        "llm.input_messages.0.message.contents.1.message_content.text",
        "llm.tools.0.tool.json_schema",
        "input.value",
        "traceloop.entity.input",
        "ai.prompt.messages",
        "ai.response.toolCalls",
        "art.tokens.prompt",
        "art.logprobs.completion.0",
        "art.response.choices",
        "art.request.messages",
        "exception.message",
        "some.new.convention.prompt",
        "vendor.messages.0.body",
    ],
)
def test_names_of_content(name):
    assert names_content(name)


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.request.model",
        "gen_ai.response.id",
        "gen_ai.response.finish_reasons",
        "gen_ai.output.type",
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
        "input.mime_type",
        "llm.model_name",
        "art.metadata.prompt",
        "art.extra.input",
        "art.rollout.name",
        "openinference.span.kind",
        "exception.type",
        "server.address",
    ],
)
def test_names_of_structure(name):
    assert not names_content(name)


def test_numbers_are_no_content_whatever_they_are_called():
    kept = {"llm.usage.prompt": 3, "message.size": (1, 2.5), "body": {"length": 5}, "prompt": None}
    span = ReadableSpan(name="s", attributes={**kept, "message.text": ("a",), "body.parts": {"a": [b"b"]}})
    without_content(span)
    assert span.attributes == kept


def test_events_links_and_errors(tmp_path):
    app = App(tmp_path, without_content)
    linked = SpanContext(trace_id=1, span_id=2, is_remote=True)
    span = app.tracer.start_span("chat m", links=[trace.Link(linked, {"message": "said", "kind": "k"})])
    span.set_attribute("gen_ai.input.messages", messages("said"))
    span.set_attribute("art.metadata.task", "t")
    span.add_event("gen_ai.user.message", {"content": "said", "role": "user"})
    span.add_event("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": '{"content": "said"}'})
    span.add_event("gen_ai.content.prompt", {"gen_ai.prompt": "said"})
    span.add_event("gen_ai.client.inference.operation.details", {"gen_ai.output.messages": [{"role": "said"}]})
    span.add_event("art.log", {"art.log.message": "the app's own words"})
    span.record_exception(ValueError("said"))
    span.set_status(Status(StatusCode.ERROR, "said"))
    span.end()
    (kept,) = app.spans
    assert dict(kept.attributes) == {"art.metadata.task": "t"}
    assert [(event.name, dict(event.attributes)) for event in kept.events] == [
        ("gen_ai.user.message", {"role": "user"}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop"}),
        ("gen_ai.client.inference.operation.details", {}),
        ("art.log", {"art.log.message": "the app's own words"}),
        ("exception", {"exception.type": "ValueError", "exception.escaped": "False"}),
    ]
    assert dict(kept.links[0].attributes) == {"kind": "k"}
    assert (kept.status.status_code, kept.status.description) == (StatusCode.ERROR, None)
    assert "said" not in app.everything()


def test_the_switches_of_the_instrumentors():
    on, off = content_environment(capture=True), content_environment(capture=False)
    assert on["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] == "SPAN_ONLY"
    assert off["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] == "NO_CONTENT"
    assert on["USE_OTEL_LITELLM_REQUEST_SPAN"] == off["USE_OTEL_LITELLM_REQUEST_SPAN"] == "true"
    assert off.keys() <= on.keys()
    on.clear()
    assert content_environment(capture=True)


def test_a_span_that_cannot_be_read_keeps_its_name_only(caplog):
    span = ReadableSpan(name="chat m", attributes=Torn({"art.rollout.id": "r", "input.value": "said"}))
    without_content(span)
    assert (span.name, dict(span.attributes)) == ("chat m", {"art.rollout.id": "r"})
    assert len(caplog.records) == 1


def test_what_is_nested_too_deep_is_content():
    deep: object = 1
    for _ in range(40):
        deep = [deep]
    span = ReadableSpan(name="s", attributes={"message.deep": deep, "deep": deep})
    without_content(span)
    assert list(span.attributes) == ["deep"]
