"""An attribute value beyond its limit is set aside in every format; its span, its line and its file are kept."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.sources import Limits
from art_otel.spans import LogRecord, Quarantined, Span, size_of
from tests.dumps import attribute, make_span, request_of
from tests.sources.requests import (
    TRACE,
    attributes,
    damages_of,
    lines,
    log,
    logs,
    prefixed,
    read_bytes,
    span,
    spans_of,
    to_protobuf,
    traces,
)
from tests.sources.writers import EVERY_WRITER

LIMIT = 1000
LIMITS = Limits(max_attribute_bytes=LIMIT)
ADVICE = "raise --max-attribute-bytes (Limits.max_attribute_bytes) to read this"
WRITE = {
    "otlp-json": lambda requests: lines(*requests),
    "otlp-json pretty": lambda requests: json.dumps(requests, indent=1).encode(),
    "otlp-protobuf": lambda requests: b"".join(map(to_protobuf, requests)),
    "otlp-protobuf with lengths": lambda requests: prefixed(*map(to_protobuf, requests)),
    **EVERY_WRITER,
}
LARGE = {"ascii": "x" * (LIMIT + 1), "utf-8": "é" * (LIMIT // 2) + "x", "list": ["y" * 100] * 10}
TEXTS_ONLY = ("jaeger", "zipkin", "clickhouse")
"""Their attributes are texts, also for a list."""


def with_value(value):
    event = {"timeUnixNano": "1500000", "name": "e", "attributes": [{"key": "k", "value": {"stringValue": "v"}}]}
    kept = {"gen_ai.operation.name": "chat", "large": value, "after": "it"}
    return make_span(2, 1, attributes=kept, events=[event])


@pytest.mark.parametrize("name", WRITE)
@pytest.mark.parametrize("what", LARGE)
def test_a_large_value_costs_itself_only(name, what, tmp_path):
    value = LARGE[what]
    request = request_of(make_span(1), with_value(value), make_span(3, 1), scope="lib", resource={"a": "b"})
    data = WRITE[name]([request])
    unlimited, _ = read_bytes(tmp_path, data)
    records, account = read_bytes(tmp_path, data, limits=LIMITS)
    (damage,) = damages_of(records)
    assert damage.path.endswith(f' / trace {1:032x} / span {2:016x} / attributes["large"]')
    assert damage.path.startswith(f"{tmp_path}/in.dump")
    assert (damage.reason, damage.kind, damage.partial) == ("over a limit", "span", True)
    assert damage.detail.endswith(f" bytes; {ADVICE}")
    if not name.startswith(TEXTS_ONLY) or isinstance(value, str):
        assert damage.detail.startswith(f"a value of {size_of(value)} bytes; ")
    assert account.partly_damaged == 1
    expected = [
        {**one.attributes, **({"large": None} if "large" in one.attributes else {})} for one in spans_of(unlimited)
    ]
    assert [one.attributes for one in spans_of(records)] == expected
    assert [without_attributes(one) for one in spans_of(records)] == [
        without_attributes(one) for one in spans_of(unlimited)
    ]


def without_attributes(read: Span) -> tuple[object, ...]:
    return tuple(getattr(read, name) for name in Span.__struct_fields__ if name != "attributes")


@pytest.mark.parametrize("name", WRITE)
def test_a_value_as_large_as_the_limit_is_kept(name, tmp_path):
    data = WRITE[name]([request_of(make_span(1), with_value("é" * (LIMIT // 2)))])
    assert len(data) > LIMIT or name in ("clickhouse", "phoenix-dataframe")
    records, _ = read_bytes(tmp_path, data, limits=LIMITS)
    assert not damages_of(records)
    assert spans_of(records)[1].attributes["large"] == "é" * (LIMIT // 2)


def test_events_links_and_all_that_is_large_of_a_span_are_one_damage(tmp_path):
    large = attributes(a={"stringValue": "x" * 2000}, b={"intValue": 1})
    two = attributes(
        one={"bytesValue": "QUJD" * 1000},
        two={"kvlistValue": {"values": [{"key": "k" * 900, "value": {"arrayValue": {"values": [{}] * 100}}}]}},
    )
    good = attributes(c={"stringValue": "y"})
    events = [{"timeUnixNano": "7", "name": "e", **good}, {"timeUnixNano": "8", "name": "f", **large}]
    line = lines(traces(span(1, **two, events=events, links=[{"traceId": TRACE, "spanId": f"{9:016x}", **large}])))
    for data in (line, to_protobuf(json.loads(line))):
        read, damage = read_bytes(tmp_path, data, limits=LIMITS)[0]
        assert isinstance(read, Span)
        assert read.attributes == {"one": None, "two": None}
        assert [event.attributes for event in read.events] == [{"c": "y"}, {"a": None, "b": 1}]
        assert [link.attributes for link in read.links] == [{"a": None, "b": 1}]
        assert isinstance(damage, Quarantined)
        assert damage.path.endswith('events[1].attributes["a"]')
        assert damage.detail == (
            f'a value of 2000 bytes; {ADVICE}; also: links[0].attributes["a"], attributes["one"], attributes["two"]'
        )


def test_a_large_value_of_a_resource_is_told_once(tmp_path):
    request = traces(*(span(number) for number in (1, 2, 3)), resource="x" * 2000)
    for data in (lines(request), to_protobuf(request)):
        damage, *kept = read_bytes(tmp_path, data, limits=LIMITS)[0]
        assert isinstance(damage, Quarantined)
        assert damage.path.endswith(' / resource.attributes["service.name"]')
        assert (damage.trace_id, damage.partial) == (None, True)
        assert [read.resource.attributes for read in kept] == [{"service.name": None}] * 3


def test_a_large_body_of_a_log_record(tmp_path):
    record = log(body={"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "x" * 2000}}]}})
    for data in (lines(logs(record, log())), to_protobuf(logs(record, log()))):
        read, damage, other = read_bytes(tmp_path, data, limits=LIMITS)[0]
        assert isinstance(read, LogRecord)
        assert (read.body, read.event_name) == (None, "e")
        assert isinstance(damage, Quarantined)
        assert (damage.kind, damage.span_id, damage.partial) == ("log", f"{1:016x}", True)
        assert damage.path.endswith(" / body")
        assert isinstance(other, LogRecord)


def test_a_large_value_beside_a_bad_span_and_in_a_torn_message(tmp_path):
    large = span(2, **attributes(large={"stringValue": "x" * 2000}))
    torn_line = lines(traces(span(1), large, span(3)))[:-40]
    torn_message = to_protobuf(traces(span(1), large, span(3)))[:-40]
    for data in (lines(traces(span(1), large, {"traceId": 5})), torn_line, torn_message):
        records, _ = read_bytes(tmp_path, data, limits=LIMITS)
        assert [one.attributes.get("large", "") for one in spans_of(records)] == ["", None]
        assert [damage.reason for damage in damages_of(records) if damage.partial] == ["over a limit"]
        assert len(damages_of(records)) == 2


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9)
    | st.binary(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=9),
    max_leaves=30,
)


def any_value(value):
    """As `attribute`, with what else a value may be."""
    if value is None:
        return {}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": any_value(item)} for key, item in value.items()]}}
    return attribute(value)


@settings(deadline=None, max_examples=60)
@given(value=json_values)
def test_no_value_counts_more_than_the_bytes_it_stood_in(value):
    """So a message within the limit needs no look."""
    size = size_of(value)
    text = json.dumps(any_value(value), separators=(",", ":"), ensure_ascii=False)
    assert size <= len(text.encode())
    assert size <= len(to_protobuf(traces(span(1, attributes=[{"key": "k", "value": any_value(value)}]))))
    assert size <= len(json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=bytes.hex).encode())


@settings(deadline=None, max_examples=60)
@given(value=json_values, limit=st.integers(1, 60))
def test_a_value_counts_the_same_in_every_encoding(value, limit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    request = traces(span(1, attributes=[{"key": "k", "value": any_value(value)}]))
    limits = Limits(max_attribute_bytes=limit)
    found = [read_bytes(folder, data, limits=limits)[0] for data in (lines(request), to_protobuf(request))]
    as_json, as_protobuf = ([one for one in records if isinstance(one, Span)] for records in found)
    assert as_json == as_protobuf
    assert (as_json[0].attributes == {"k": None}) == (size_of(value) > limit or value is None)
