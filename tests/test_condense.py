"""Condensed spans expand to what they were, and nobody remembers more than a few texts."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_otel.engines import buckets as buckets_module
from art_otel.engines import condense
from art_otel.engines.buckets import Buckets, Held, read_bucket, size_of
from art_otel.engines.weights import weigh_traces
from art_otel.spans import Resource, Scope, Span

LONG, MEMORY = 24, 400


@pytest.fixture(autouse=True)
def small_texts(monkeypatch):
    monkeypatch.setattr(condense, "LONG", LONG)
    monkeypatch.setattr(condense, "MEMORY", MEMORY)


RESOURCES = [Resource(), *(Resource(attributes={"pod": name * 40}) for name in ("a", "b", "b"))]
"""One that is small, and three that are worth an entry, of which two are equal."""

pieces = st.text(st.sampled_from('ab:"é🙂'), min_size=1, max_size=40)


@st.composite
def many_spans(draw):
    """Spans of a few traces whose texts mostly go on with an earlier one of any trace, or with a part of one."""
    texts = [""]
    spans = []
    for number in range(draw(st.integers(0, 30))):
        attributes = {}
        for name in draw(st.sets(st.sampled_from(["prompt", "ids", "other"]))):
            earlier = draw(st.sampled_from(texts))
            cut = draw(st.integers(0, 6))
            head = draw(st.sampled_from(["", "", f"i4:{number}:"]))
            attributes[name] = head + earlier[: len(earlier) - cut] + draw(pieces)
            texts.append(attributes[name])
        attributes["count"] = number
        trace_id = draw(st.sampled_from(["1" * 32, "2" * 32, "3" * 32]))
        spans.append(
            Span(
                trace_id=trace_id,
                span_id=f"{number + 1:016x}",
                name="chat",
                start_ns=number,
                end_ns=None,
                attributes=attributes,
                resource=draw(st.sampled_from(RESOURCES)),
            )
        )
    return spans


def condensed(spans):
    condenser = condense.Condenser()
    return [condenser.condense(span) for span in spans]


# The fixture only sets numbers, which no example changes.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(many_spans(), st.sets(st.sampled_from("123")))
def test_what_is_condensed_expands_also_without_other_traces(spans, seen):
    expander = condense.Expander()
    for span, (shorter, echoes, _) in zip(spans, condensed(spans), strict=True):
        if span.trace_id[0] in seen:
            assert expander.expand(shorter, echoes) == span


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(many_spans())
def test_what_is_saved_is_the_difference_of_the_encodings(spans):
    for span, (shorter, _, saved) in zip(spans, condensed(spans), strict=True):
        difference = len(msgspec.msgpack.encode(span)) - len(msgspec.msgpack.encode(shorter))
        # Texts of less than 256 bytes have a shorter header than long ones, of which alone the size is asked.
        assert difference <= saved <= difference + 2 * len(span.attributes)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(many_spans())
def test_a_bucket_gives_its_records_and_their_whole_weight(tmp_path_factory, spans):
    folder = tmp_path_factory.mktemp("buckets")
    buckets = Buckets(folder, 1, budget=300)
    for span in spans:
        buckets.add(0, span)
    content = buckets.content(0)
    assert list(read_bucket(content)) == spans
    assert list(read_bucket(content, {"2" * 32})) == [span for span in spans if span.trace_id == "2" * 32]
    weights = weigh_traces(content, 100)
    assert sum(weight.spans for weight in weights.values()) == len(spans)
    assert sum(weight.different for weight in weights.values()) == len({span.key for span in spans})
    once = {span.key for span in spans}
    assert all(weight.bytes <= size_of(content) for weight in weights.values())
    if len(once) == len(spans) and len(weights) == 1:
        assert sum(weight.bytes for weight in weights.values()) == size_of(content)
    assert size_of(content) >= sum(len(msgspec.msgpack.encode(span)) for span in spans)


@pytest.mark.parametrize(
    "large",
    [
        {"resource": Resource(attributes={"pod": "x" * 100_000})},
        {"scope": Scope(name="x" * 100_000)},
        {
            "scope": Scope(name="lib", version="x" * 100_000),
            "resource": Resource(attributes={"pod": "p"}),
        },
    ],
)
def test_an_origin_stands_once_before_all_that_have_it(large):
    spans = [
        Span(trace_id="1" * 32, span_id=f"{at:016x}", name="x", start_ns=1, end_ns=2, **large) for at in range(1, 99)
    ]
    content = bucket_of_one(spans)
    assert sum(len(piece.data) for piece in content) < 120_000
    read = list(read_bucket(content))
    assert read == spans
    assert len({id(record.resource) for record in read}) == 1
    assert ("scope" not in large) or len({id(record.scope) for record in read}) == 1


def test_an_origin_weighs_once_in_each_trace_that_has_it():
    small, large = Resource(attributes={"pod": "y" * 1000}), Resource(attributes={"pod": "x" * 100_000})
    times = {"name": "x", "start_ns": 1, "end_ns": 2}
    spans = [
        Span(trace_id=trace * 32, span_id=f"{at:016x}", resource=resource, **times)
        for at in range(1, 9)
        for trace, resource in (("1", large), ("2", large), ("3", small), ("1", small))
    ]
    for delivered in (spans, [*reversed(spans), *spans], sorted(spans, key=lambda span: len(span.resource.attributes))):
        weights = weigh_traces(bucket_of_one(delivered), 100)
        assert {trace[0]: weight.bytes // 10_000 for trace, weight in weights.items()} == {"1": 10, "2": 10, "3": 0}


def bucket_of_one(spans):
    buckets = Buckets(Path(), 1, budget=1 << 30)
    for span in spans:
        buckets.add(0, span)
    return buckets.content(0)


def test_a_conversation_takes_what_is_new_of_it(monkeypatch):
    monkeypatch.setattr(condense, "MEMORY", 10_000)
    history, spans = "", []
    for turn in range(50):
        history += f"turn {turn}: " + "x" * 10
        attributes = {"p": history}
        spans.append(
            Span(
                trace_id="1" * 32, span_id=f"{turn + 1:016x}", name="c", start_ns=1, end_ns=None, attributes=attributes
            )
        )
    found = condensed(spans)
    assert sum(len(msgspec.msgpack.encode((span, echoes))) for span, echoes, _ in found) < 50 * 200
    assert all(echoes[0].place == 0 for _, echoes, _ in found[2:])


# As above.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(many_spans(), st.sampled_from([0, 300, 1 << 20]), st.sampled_from([2, 500, 1 << 20]))
def test_buckets_keep_their_order_whatever_goes_to_disk_when(monkeypatch, tmp_path_factory, spans, budget, piece):
    monkeypatch.setattr(buckets_module, "_PIECE", piece)
    buckets = Buckets(tmp_path_factory.mktemp("buckets"), 3, budget)
    for span in spans:
        buckets.add(int(span.trace_id[0]) % 3, span)
    if budget == 0 or buckets.spilled:
        buckets.flush()
    for bucket in range(3):
        content = buckets.content(bucket)
        assert list(read_bucket(content)) == [span for span in spans if int(span.trace_id[0]) % 3 == bucket]
        assert not (buckets.spilled and any(isinstance(part, Held) for part in content))
