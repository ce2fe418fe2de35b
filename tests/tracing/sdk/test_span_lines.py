"""Span lines: whatever is on a span becomes a line that the reader of dumps reads back."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import Link, SpanContext, Status, StatusCode

from art_otel.sources import FileStats, Limits, Reading, read_lines_of
from art_otel.spans import Quarantined, Span
from art_otel.tracing.sdk.span_lines import OtlpJsonEncoder

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def read(span: ReadableSpan):
    line = OtlpJsonEncoder().line(span)
    assert line.count(b"\n") == 1
    return list(read_lines_of([line], Reading(path="live", limits=Limits(), stats=FileStats())))


def span_with(attributes=None, **fields) -> ReadableSpan:
    return ReadableSpan(
        "a span",
        context=SpanContext(1, 2, is_remote=False),
        attributes=attributes,
        start_time=5,
        end_time=9,
        resource=Resource({}),
        **fields,
    )


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), VALUES, max_size=5))
def test_attributes_come_back(attributes):
    (record,) = read(span_with(attributes))
    assert isinstance(record, Span)
    assert record.attributes == attributes


def test_everything_of_a_span_comes_back():
    provider = TracerProvider(resource=Resource({"service.name": "agent"}), shutdown_on_exit=False)
    tracer = provider.get_tracer("scope", "1.2")
    link = Link(SpanContext(3, 4, is_remote=True), {"why": "judged"})
    span = tracer.start_span("work", links=[link], attributes={"a": ["x", "y"]})
    span.add_event("said", {"what": "hello"}, timestamp=7)
    span.set_status(Status(StatusCode.ERROR, "it broke"))
    (running,) = read(span)
    span.end()
    (ended,) = read(span)
    assert running.end_ns is None
    assert ended.end_ns is not None
    assert (ended.name, ended.status, ended.status_message) == ("work", "error", "it broke")
    assert (ended.scope.name, ended.scope.version) == ("scope", "1.2")
    assert ended.resource.attributes["service.name"] == "agent"
    assert [(event.name, event.attributes) for event in ended.events] == [("said", {"what": "hello"})]
    assert [(one.trace_id, one.span_id, one.attributes) for one in ended.links] == [
        (f"{3:032x}", f"{4:016x}", {"why": "judged"})
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**70, "\ud800 alone", "a\x00b", [[["x"] * 3] * 3] * 3])
def test_hostile_values_cost_themselves_only(value):
    records = read(span_with({"bad": value, "good": "kept"}))
    (span,) = [record for record in records if isinstance(record, Span)] or [None]
    whole = [record for record in records if isinstance(record, Quarantined) and not record.partial]
    assert span is None or span.attributes["good"] == "kept"
    assert (span is None) == bool(whole)


def test_deep_values_are_capped():
    deep: object = "bottom"
    for _ in range(900):
        deep = [deep]
    (record,) = read(span_with({"deep": deep, "good": "kept"}))
    assert record.attributes["good"] == "kept"


def test_a_lone_surrogate_anywhere_does_not_cost_the_span():
    (record,) = read(span_with({"k\ud800": "v\ud800"}, status=Status(StatusCode.ERROR, "s\ud800")))
    assert record.attributes == {"k\ufffd": "v\ufffd"}
