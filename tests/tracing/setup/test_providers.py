"""Our processor on whatever provider there is, and a provider with the exporters that variables ask for."""

import os

import pytest
from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import Link, NoOpTracerProvider, SpanContext

from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.setup.providers import (
    SystemIdGenerator,
    add_processor,
    entry_points_of,
    exporter_names,
    make_provider,
)
from art_otel.tracing.setup.recording import make_recording
from art_otel.tracing.setup.settings import Settings

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


class OwnIds(RandomIdGenerator):
    """An app's own, as for X-Ray."""


class Wrapper(NoOpTracerProvider):
    """As those that wrap the SDK's."""

    def __init__(self) -> None:
        self.processors: list[SpanProcessor] = []

    def add_span_processor(self, processor: SpanProcessor) -> None:
        self.processors.append(processor)


class Handing(NoOpTracerProvider):
    """As Logfire's, which hands everything to another."""

    def __init__(self, provider) -> None:
        self.provider = provider

    def set_provider(self, provider) -> None:
        self.provider = provider


class Fixed(NoOpTracerProvider):
    """One that always hands to the same."""

    def __init__(self, provider) -> None:
        self.provider = provider


def processors(provider: TracerProvider) -> tuple[SpanProcessor, ...]:
    return provider._active_span_processor._span_processors


def test_ids_of_the_app_s_own_stay():
    provider = TracerProvider(id_generator=OwnIds(), shutdown_on_exit=False)
    attachment = add_processor(provider, RecordingSpanProcessor())
    assert isinstance(provider.id_generator, OwnIds)
    plain = TracerProvider(shutdown_on_exit=False)
    other = add_processor(plain, RecordingSpanProcessor())
    assert isinstance(plain.id_generator, SystemIdGenerator)
    attachment.detach()
    other.detach()
    assert type(plain.id_generator) is RandomIdGenerator


def test_tracers_made_meanwhile_are_left_as_the_provider_was():
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    early = provider.get_tracer("early")
    attachment = add_processor(provider, RecordingSpanProcessor())
    late = provider.get_tracer("late")
    assert early.start_span("x").is_recording()
    assert late.start_span("x").is_recording()
    attachment.detach()
    for tracer in (early, late, provider.get_tracer("after")):
        assert (tracer.sampler, type(tracer.id_generator)) == (ALWAYS_OFF, RandomIdGenerator)
        assert not tracer.start_span("x").is_recording()


def test_processors_that_run_side_by_side_are_warned_of(caplog):
    several = ConcurrentMultiSpanProcessor(1)
    provider = TracerProvider(active_span_processor=several, shutdown_on_exit=False)
    attachment = add_processor(provider, RecordingSpanProcessor())
    assert "side by side" in caplog.text
    attachment.detach()
    several._executor.shutdown()


def test_a_provider_that_wraps_the_sdk_s_gets_the_processor_last_and_a_warning(caplog):
    provider, processor = Wrapper(), RecordingSpanProcessor()
    attachment = add_processor(provider, processor)
    assert provider.processors == [processor]
    assert "before they are scrubbed" in caplog.text
    attachment.detach()


def test_the_provider_that_another_hands_to_is_recorded_and_so_is_the_next(caplog, tmp_path):
    first, second = (TracerProvider(shutdown_on_exit=False) for _ in range(2))
    handing = Handing(Handing(first))
    recording = make_recording(Settings(dir=tmp_path))
    for provider in (handing, first, handing):
        recording.attach(provider)
    assert processors(first) == (recording.processor,)
    handing.provider.set_provider(second)
    assert (handing.provider.provider, processors(second)) == (second, (recording.processor,))
    handing.set_provider(second)
    assert processors(second) == (recording.processor,)
    assert recording.end()[-2:] == [first, second]
    assert (processors(first), processors(second)) == ((), ())
    handing.set_provider(first)
    assert (handing.provider, processors(first), caplog.text) == (first, (), "")


def test_a_provider_that_hands_to_none_that_records_is_recorded_once_it_does(caplog, tmp_path):
    handing = Handing(NoOpTracerProvider())
    recording = make_recording(Settings(dir=tmp_path))
    recording.attach(handing)
    assert "nothing is recorded" in caplog.text
    provider = TracerProvider(shutdown_on_exit=False)
    handing.set_provider(provider)
    assert processors(provider) == (recording.processor,)
    recording.end()


def test_a_fault_while_following_does_not_stop_the_app(caplog, tmp_path, monkeypatch):
    handing = Handing(TracerProvider(shutdown_on_exit=False))
    recording = make_recording(Settings(dir=tmp_path))
    recording.attach(handing)
    monkeypatch.setattr("art_otel.tracing.setup.recording.add_processor", lambda *_: 1 / 0)
    provider = TracerProvider(shutdown_on_exit=False)
    handing.set_provider(provider=provider)
    assert handing.provider is provider
    assert "ZeroDivisionError" in caplog.text
    recording.end()


def test_a_provider_that_always_hands_to_the_same_is_recorded(tmp_path):
    provider = TracerProvider(shutdown_on_exit=False)
    recording = make_recording(Settings(dir=tmp_path))
    recording.attach(Fixed(provider))
    assert processors(provider) == (recording.processor,)
    recording.end()


def test_a_provider_without_processors_is_not_recorded_and_may_be_tried_again(caplog, tmp_path):
    recording = make_recording(Settings(dir=tmp_path))
    recording.attach(NoOpTracerProvider())
    assert recording.attachments == []
    assert "nothing is recorded" in caplog.text
    assert "NoOpTracerProvider" in caplog.text
    provider = TracerProvider(shutdown_on_exit=False)
    recording.attach(provider)
    recording.attach(provider)
    assert recording.end() == [provider]


@pytest.mark.parametrize(
    ("given", "environ", "names"),
    [
        (None, {}, ()),
        (None, ENDPOINT, ("otlp",)),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, ("otlp",)),
        ((), ENDPOINT, ()),
        (("console",), ENDPOINT, ("console",)),
    ],
)
def test_exporters_are_those_that_somebody_asked_for(given, environ, names):
    assert exporter_names(given, environ) == names


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, ("otlp_proto_grpc", "otlp_proto_http")),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("otlp_proto_grpc",)),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            ("otlp_proto_http",),
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, ("otlp (http/json)",)),
    ],
)
def test_the_protocol_says_which_otlp(environ, found):
    assert entry_points_of("otlp", environ) == found


LIMITED = [
    *("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"),
    *("OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT"),
]
"""What may be limited, in the order in which `sizes_of_a_large_span` counts it."""


def sizes_of_a_large_span() -> list[int]:
    """How much our provider keeps of a span that has 130 of everything; none of its values is cut."""
    provider = make_provider(Settings(), os.environ)
    many = {f"a.{number}": "x" * 5000 for number in range(130)}
    other = SpanContext(1, 1, is_remote=False)
    span = provider.get_tracer("t").start_span("s", attributes=many, links=[Link(other, many)] * 130)
    for _ in range(130):
        span.add_event("e", many)
    span.end()
    assert {len(value) for value in span.attributes.values()} == {5000}
    provider.shutdown()
    kept = span.attributes, span.events[0].attributes, span.links[0].attributes, span.events, span.links
    return [len(one) for one in kept]


@pytest.mark.parametrize(
    ("limited", "few"),
    [({}, ()), *(({name: "7"}, (name,)) for name in LIMITED), ({"OTEL_ATTRIBUTE_COUNT_LIMIT": "7"}, LIMITED[:3])],
)
def test_our_provider_drops_nothing_but_what_a_variable_limits(monkeypatch, limited, few):
    for name in LIMITED:
        monkeypatch.delenv(name, raising=False)
    for name, value in limited.items():
        monkeypatch.setenv(name, value)
    assert sizes_of_a_large_span() == [7 if name in few else 130 for name in LIMITED]


def test_an_exporter_that_is_installed_is_used_and_one_that_is_missing_costs_only_itself(caplog):
    provider = make_provider(Settings(exporters=("no-such", "console")), {})
    (processor,) = provider._active_span_processor._span_processors
    assert isinstance(processor, BatchSpanProcessor)
    assert "not exported to no-such" in caplog.text
    provider.shutdown()


def test_an_exporter_that_fails_costs_only_itself(caplog, monkeypatch):
    monkeypatch.setattr("importlib.metadata.EntryPoint.load", lambda _: 1 / 0)
    provider = make_provider(Settings(exporters=("console",)), {})
    assert "console: ZeroDivisionError" in caplog.text
    provider.shutdown()
