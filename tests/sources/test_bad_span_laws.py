"""Laws: whatever is bad in one span, or torn behind it, every other span of its request is read as without it."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.sources import format_named
from tests.examples import examples
from tests.sources.requests import (
    TRACE,
    attributes,
    batch_of,
    damages_of,
    lines,
    log,
    logs,
    prefixed,
    read_bytes,
    reasons_of,
    span,
    spans_of,
    to_protobuf,
    traces,
)
from tests.sources.test_laws import laws, mutated

BAD = f"{0xBAD:016x}"
LISTS = attributes(l={"arrayValue": {"values": [{"intValue": "1"}, {"kvlistValue": {"values": []}}]}})
FULL = span(
    0xBAD,
    parentSpanId=f"{1:016x}",
    **attributes(text={"stringValue": "a"}, n={"intValue": "5"}, b={"bytesValue": "AA=="}, x={"doubleValue": 1.5}),
    events=[{"timeUnixNano": "1500", "name": "e", **LISTS}],
    links=[{"traceId": TRACE, "spanId": f"{2:016x}", **LISTS}],
    status={"code": 2, "message": "m"},
    droppedAttributesCount=1,
)
WRONG = st.sampled_from(
    [2**64, str(2**64), -(2**70), 10**4000, 0.5, float("nan"), "one", "", True, None, [5], {}, {"a": []}]
)
many = settings(laws, max_examples=examples(200))


def places(value, path=()):
    """Each place inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


@st.composite
def requests(draw, record):
    """Requests with one record among good spans, and the same without it."""
    batches = [traces(*map(span, some)) for some in draw(st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1))]
    whole = {"resourceSpans": [batch["resourceSpans"][0] for batch in batches]}
    without = copy.deepcopy(whole)
    beside = draw(st.sampled_from(whole["resourceSpans"]))["scopeSpans"][0]["spans"]
    beside.insert(draw(st.integers(0, len(beside))), record)
    return whole, without


@many
@given(data=st.data(), place=st.sampled_from([place for place in places(FULL) if place]), value=WRONG)
def test_a_wrong_value_anywhere_in_a_span_costs_at_most_that_span(data, place, value, tmp_path):
    bad = copy.deepcopy(FULL)
    inside = bad
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    whole, without = data.draw(requests(bad))
    records, account = read_bytes(tmp_path, lines(traces(span(0xA)), whole, traces(span(0xB))))
    others = [read for read in spans_of(records) if read.name != FULL["name"] and read.span_id != BAD]
    assert others == spans_of(read_bytes(tmp_path, lines(traces(span(0xA)), without, traces(span(0xB))))[0])
    lost = [damage for damage in damages_of(records) if not damage.partial]
    assert len(lost) == account.quarantined == len(others) + 1 - account.spans
    for damage in lost:
        assert damage.kind == "span"
        assert damage.path.startswith(f"{tmp_path}/in.dump:2 / ")
        assert (damage.span_id, damage.trace_id) == (BAD, TRACE) or place[0] in ("spanId", "traceId")


def encoded_span(fields: dict) -> bytes:
    """One span as it stands in a request."""
    request = to_protobuf({"resourceSpans": [{"scopeSpans": [{"spans": [fields]}]}]})
    for _ in range(3):  # batch, scope, span
        size = 1
        while request[size] > 0x7F:
            size += 1
        request = request[size + 1 :]
    return request


@many
@given(numbers=st.lists(st.integers(1, 9), max_size=5), at=st.integers(0, 5), data=st.data())
def test_wrong_bytes_in_a_protobuf_span_cost_at_most_that_span(numbers, at, data, tmp_path):
    encoded = [encoded_span(span(number)) for number in numbers]
    bad = data.draw(mutated(encoded_span(FULL)))
    good = to_protobuf(traces(span(0xA)))
    records, account = read_bytes(
        tmp_path, prefixed(good, batch_of(encoded_span(span(0xC)), *encoded[:at], bad, *encoded[at:]), good)
    )
    expected = [0xA, 0xC, *numbers, 0xA]
    kept = [int(read.span_id, 16) for read in spans_of(records)]
    assert [number for number in kept if number in range(0x10)] == expected
    assert account.quarantined <= 1


TEXT = {
    "resourceSpans": [
        {**traces(span(1, name='"}], \\ \U0001f600'), span(4, **LISTS))["resourceSpans"][0], "schemaUrl": "a, b"},
        {
            "scopeSpans": [
                {"spans": [span(2), {**span(3), "flags": 1}], "schemaUrl": "x", "n": True},
            ],
            "other": {"a": [1, 2.5, None, False]},
        },
    ],
    "resourceLogs": logs(log(), log())["resourceLogs"],
    "more": [{"spans": "no"}],
}


@pytest.mark.parametrize(("indent", "step"), [(None, 3), (1, 5)])
def test_what_is_whole_before_a_tear_is_kept(indent, step, tmp_path):
    text = json.dumps(TEXT, indent=indent, ensure_ascii=indent is None)
    objects = [json.JSONDecoder().raw_decode(text, at) for at, mark in enumerate(text) if mark == "{"]
    ends = [end for value, end in objects if value.keys() & {"startTimeUnixNano", "eventName"}]
    assert len(ends) == 6
    for cut in range(text.index("[") + 1, len(text) - 1, step):
        records, _ = read_bytes(tmp_path, text[:cut].encode(), format=format_named("otlp-json"))
        assert reasons_of(records) == ["torn"]
        assert len(records) - 1 == sum(end <= cut for end in ends)
