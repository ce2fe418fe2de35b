"""Instrumented: an app's openai clients under one instrumentor, in a rollout, with token capture."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import openai
from openinference.instrumentation.openai import OpenAIInstrumentor as OpenInference
from opentelemetry import trace
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor as GenAI
from opentelemetry.instrumentation.openai import OpenAIInstrumentor as OpenLLMetry
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from art_otel.conventions import parse_call, role_of
from art_otel.sources import FileStats, Limits, Reading, read_lines_of
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.sdk.span_lines import OtlpJsonEncoder
from art_otel.trajectories import SpanGroup, build_trajectories

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of pydantic, in OpenLLMetry
    importlib.import_module("opentelemetry.instrumentation.openai.v1")

MODEL = "Qwen/Qwen3-8B"

INSTRUMENTORS = {"openllmetry": OpenLLMetry, "genai": GenAI, "openinference": OpenInference}

_WRAPPED = {
    "openai": ("OpenAI", "AsyncOpenAI"),
    "openai._base_client": ("SyncAPIClient", "AsyncAPIClient", "BaseClient"),
    "openai.resources.chat.completions": ("Completions", "AsyncCompletions"),
    "openai.resources.completions": ("Completions", "AsyncCompletions"),
    "openai.resources.embeddings": ("Embeddings", "AsyncEmbeddings"),
    "openai.resources.images": ("Images", "AsyncImages"),
    "openai.resources.responses": ("Responses", "AsyncResponses"),
}

_UNWRAPPED = {
    each: dict(vars(each))
    for module, names in _WRAPPED.items()
    if module.startswith("openai.resources.")
    for each in (getattr(importlib.import_module(module), name) for name in names)
}
"""What instrumentors wrap, as it is while tests are collected."""

_RUNNING = []
"""The instrumentors of the blocks that run, one in the other."""


class Instrumented:
    """Clients of a server, and the calls that were recorded of them."""

    def __init__(self, url: str, *, rollouts: bool = True) -> None:
        self.url = url
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.exporter = InMemorySpanExporter()
        if rollouts:
            self.provider.add_span_processor(RecordingSpanProcessor())
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("app")

    def client(self, **options) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key="k", max_retries=0, **options)

    def async_client(self, **options) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=self.url, api_key="k", max_retries=0, **options)

    @contextmanager
    def rollout(self) -> Iterator[trace.Span]:
        with self.tracer.start_as_current_span("rollout test", attributes={"art.rollout.id": "r"}) as span:
            yield span

    @property
    def ended(self) -> list[ReadableSpan]:
        """The spans of calls that ended so far."""
        return [span for span in self.exporter.get_finished_spans() if role_of(parsed(span)) == "inference"]

    def recordings(self):
        """What each span of a call says."""
        return [parse_call(parsed(span)) for span in self.ended]

    def calls(self):
        """The calls of the rollout, each once."""
        return self.trajectory().calls

    def trajectory(self):
        """The rollout, as a dump of its spans is read."""
        spans = [parsed(span) for span in self.exporter.get_finished_spans()]
        (trajectory,) = build_trajectories(SpanGroup(spans=spans)).trajectories
        return trajectory

    def call(self):
        (only,) = self.calls()
        return only


def parsed(span: ReadableSpan):
    """The span as it is read from its own line."""
    reading = Reading(path="test", limits=Limits(), stats=FileStats())
    (record,) = read_lines_of([OtlpJsonEncoder().line(span)], reading)
    return record


@contextmanager
def instrumented(name: str | None, provider: TracerProvider) -> Iterator[None]:
    """openai's classes under an instrumentor, and afterwards as they were: not every instrumentor undoes all it did."""
    instrumentor = INSTRUMENTORS[name]() if name else None
    if not _RUNNING:  # a test that set tracing up may have left one on, for another provider
        for one in (make() for make in INSTRUMENTORS.values()):
            if one.is_instrumented_by_opentelemetry:
                one.uninstrument()
                for each, known in _UNWRAPPED.items():
                    _restore(each, known)
    classes = [getattr(importlib.import_module(module), each) for module, found in _WRAPPED.items() for each in found]
    before = [dict(vars(each)) for each in classes]
    if instrumentor is not None:
        instrumentor.instrument(tracer_provider=provider)
    _RUNNING.append(name)
    try:
        yield
    finally:
        _RUNNING.pop()
        if instrumentor is not None:
            instrumentor.uninstrument()
        for each, known in zip(classes, before, strict=True):
            _restore(each, known)


def _restore(each: type, known: dict) -> None:
    for attribute, value in list(vars(each).items()):
        if attribute not in known:
            delattr(each, attribute)
        elif known[attribute] is not value:
            setattr(each, attribute, known[attribute])
