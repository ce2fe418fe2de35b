"""The spans around a span are found by ids alone, and forgotten with the spans."""

import gc

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext

from art_otel.tracing.sdk import rollout_registry as ancestors
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.sdk.rollout_registry import path_up


def make_tracer():
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(RecordingSpanProcessor())
    return provider.get_tracer("t")


TRACER = make_tracer()


@st.composite
def trees(draw):
    """The parent of each span by its place, None for a root."""
    size = draw(st.integers(1, 8))
    return [draw(st.none() | st.integers(0, at - 1)) if at else None for at in range(size)]


@given(trees(), st.data())
def test_the_path_is_that_of_the_parents_whoever_has_ended(parents, data):
    spans = []
    for parent in parents:
        context = None if parent is None else trace.set_span_in_context(spans[parent])
        spans.append(TRACER.start_span("s", context=context or Context()))
    for at in data.draw(st.sets(st.sampled_from(range(len(spans))))):
        spans[at].end()
    for at, parent in enumerate(parents):
        path = [spans[at]]
        while parent is not None:
            path.append(spans[parent])
            parent = parents[parent]  # noqa: PLW2901 # one further up
        assert list(path_up(path[0].get_span_context())) == path
    for span in spans:
        span.end()


def test_the_parent_of_a_request_that_came_in_is_none_of_them():
    with TRACER.start_as_current_span("client") as client:
        sent = client.get_span_context()
        told = SpanContext(sent.trace_id, sent.span_id, is_remote=True, trace_flags=sent.trace_flags)
        context = trace.set_span_in_context(NonRecordingSpan(told))
        served = TRACER.start_span("server", context=context)
        assert list(path_up(served.get_span_context())) == [served]
        assert list(path_up(told)) == []
        served.end()


def test_nobody_is_kept():
    span = TRACER.start_span("s")
    context = span.get_span_context()
    span.end()
    known = len(ancestors._spans)
    del span
    gc.collect()
    assert len(ancestors._spans) < known
    assert list(path_up(context)) == list(path_up(None)) == []
