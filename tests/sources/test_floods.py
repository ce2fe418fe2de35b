"""Time and memory grow with the input and no faster; here each input would take minutes or gigabytes otherwise."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from art_otel.sources.backends.values import MAX_PREFIX
from tests.dumps import make_span
from tests.examples import daily
from tests.sources.requests import (
    TRACE,
    damages_of,
    numbers,
    read_bytes,
    reasons_of,
    spans_of,
)
from tests.sources.test_hostile_backends import BACKENDS, dump
from tests.sources.test_laws import laws

EVENT = re.compile(r"(?P<name>.*?)\|(?P<attributes>\{.*\})\|(?P<dropped>[0-9]{1,9})", re.DOTALL)
LINK = re.compile(r"(?P<trace>[0-9a-f]*)\|(?P<span>[0-9a-f]*)\|.*?\|(?P<attributes>\{.*\})\|[0-9]+", re.DOTALL)
PIECES = st.lists(st.sampled_from(["|", "{", "}", "|{", "}|", "|{}|", "a", "1", '"k":1', "\n", "٣"])).map("".join)


@pytest.mark.parametrize("name", daily(BACKENDS, one_in=4))
def test_small_objects_between_large_ones(name, tmp_path):
    large, less = (b'{"large":"%b"}\n' % (b"x" * size) for size in (5_000_000, 3_000_000))  # both are held at once
    small, count = b"{}\n", 12_000
    data = dump(name, make_span(1)) + b"\n" + large + small * count + less + dump(name, make_span(2))
    records, account = read_bytes(tmp_path, data)
    assert numbers(records) == [1, 2]
    assert account.quarantined == (0 if name.startswith("console") else count + 2)


@pytest.mark.parametrize("name", ["jaeger-json", "phoenix-json"])
def test_fields_behind_the_list_of_records(name, tmp_path):
    whole = dump(name, make_span(1)).rstrip()
    assert whole.endswith(b"}")
    fields = b', "a": []' * 25_000
    records, _ = read_bytes(tmp_path, whole[:-1] + fields + b"}")
    assert (numbers(records), damages_of(records)) == ([1], [])
    records, _ = read_bytes(tmp_path, whole[:-1] + fields)
    assert (numbers(records), reasons_of(records)) == ([1], ["torn"])


def nested_in(name: str, attributes: dict) -> bytes:
    """A dump of three spans, of which the second has nested attributes."""
    data = dump(name, make_span(1), make_span(2, attributes={"swap": "here"}), make_span(3))
    written = json.dumps({"swap": "here"}).encode()
    assert written in data
    return data.replace(written, json.dumps(attributes).encode())


def test_a_long_name_that_many_attributes_repeat(tmp_path):
    inner = {f"a{number}": number for number in range(2000)}
    records, _ = read_bytes(tmp_path, nested_in("phoenix-json", {"k" * MAX_PREFIX: inner}))
    assert [len(one.attributes) for one in spans_of(records)][1] >= len(inner)
    for value in (inner, [{"a": 1}] * 2000):
        long = {"k" * 100_000: value}
        records, account = read_bytes(tmp_path, nested_in("phoenix-json", long))
        assert numbers(records) == [1, 3]
        assert (reasons_of(records), account.quarantined) == (["bad field"], 1)
        assert str(MAX_PREFIX) in damages_of(records)[0].detail


def zipkin(folder, **fields):
    given = {"traceId": TRACE, "id": "00000000000000aa", "timestamp": 1, "duration": 1, **fields}
    return read_bytes(folder, json.dumps([given]).encode())[0]


@laws
@given(
    text=st.builds(
        "{}{}{}".format, PIECES, st.sampled_from(["", "|{}|1", '|{"k":1}|123456789', "|{}|1234567890"]), PIECES
    )
)
@example(text="a|{|{}|1")
@example(text="|{|1")
def test_the_first_attributes_of_an_annotation_end_its_name(text, tmp_path):
    match = EVENT.fullmatch(text)
    ((read,),) = [one.events for one in zipkin(tmp_path, annotations=[{"timestamp": 5, "value": text}])]
    try:
        attributes = json.loads(match["attributes"]) if match else None
    except ValueError:
        attributes = None
    if match and attributes is not None:
        told = (match["name"], attributes, int(match["dropped"]))
        assert (read.name, read.attributes, read.dropped_attributes_count) == told
    elif not text.startswith(('"', "{")):
        assert (read.name, read.attributes) == (text, {})


@laws
@given(text=st.builds("{}{}{}".format, PIECES, st.sampled_from(["", "|{}|1", '|{"k":1}|1']), PIECES))
@example(text="{x|{}|0")
@example(text="{}|0")
@example(text="|{}|0")
def test_the_first_attributes_of_a_link_end_its_state(text, tmp_path):
    tag = f"{TRACE}|00000000000000bb|{text}"
    match = LINK.fullmatch(tag)
    (read,) = zipkin(tmp_path, tags={"otlp.link.0": tag})
    try:
        attributes = json.loads(match["attributes"]) if match else None
    except ValueError:
        attributes = None
    assert [link.attributes for link in read.links] == ([attributes] if attributes is not None else [])


def test_a_text_that_might_be_many_annotations(tmp_path):
    many = "|{" * 200_000 + "}|" * 200_000
    (read,) = zipkin(tmp_path, annotations=[{"timestamp": 5, "value": many}], tags={"otlp.link.0": f"||{many}"})
    assert (read.events[0].name, read.links) == (many, ())
