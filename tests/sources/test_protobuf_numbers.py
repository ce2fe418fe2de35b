"""Lists of whole numbers in protobuf are the same whether they are read at once or one by one, whatever the bytes."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from art_otel.sources.otlp import protobuf_numbers as otlp_protobuf_numbers
from art_otel.sources.otlp.protobuf_numbers import WholeNumbers
from tests.sources.requests import attributes, prefixed, read_bytes, span, spans_of, to_protobuf, traces

NUMBERS = WholeNumbers()
int64 = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 200_000)
few = st.builds(AnyValue, int_value=st.integers(0, 30)) | st.builds(AnyValue, int_value=int64)
others = st.one_of(
    st.builds(AnyValue),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, double_value=st.floats()),
    st.builds(AnyValue, string_value=st.text(st.sampled_from("\x18\x08\x00\x0aa"), max_size=6)),
    st.builds(AnyValue, bytes_value=st.binary(max_size=6)),
    st.builds(AnyValue, array_value=st.builds(ArrayValue, values=st.lists(few, max_size=3))),
    st.just(AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(int_value=24))]))),
)


def one_by_one(array):
    """The numbers, when every value of the list is one."""
    kinds = [value.WhichOneof("value") for value in array.values]
    return [value.int_value for value in array.values] if set(kinds) == {"int_value"} else None


@given(st.lists(int64, min_size=8, max_size=40))
def test_whole_numbers_are_read_at_once(numbers):
    array = ArrayValue(values=[AnyValue(int_value=number) for number in numbers])
    assert NUMBERS.read(array) == numbers


@given(st.lists(few, min_size=8, max_size=16), st.lists(st.tuples(st.integers(0, 16), others), max_size=3))
def test_a_list_that_holds_anything_else_is_not(values, beside):
    for place, other in beside:
        values.insert(place, other)
    array = ArrayValue(values=values)
    assert NUMBERS.read(array) in (None, one_by_one(array))


varint = st.integers(0, 127).map(lambda number: bytes([number])) | st.binary(min_size=1, max_size=2).map(
    lambda data: bytes(byte | 0x80 for byte in data) + b"\x01"
)
number_field = varint.map(lambda number: b"\x18" + number)
odd_field = st.one_of(
    number_field,
    varint.map(lambda number: b"\x98\x00" + number),  # the tag in two bytes
    varint.map(lambda number: b"\x08" + number),  # string_value as a number: unknown
    varint.map(lambda number: b"\x50" + number),  # field 10: unknown
    st.just(b"\x19" + bytes(8)),  # int_value as eight bytes: unknown
    st.just(b"\x1a\x02\x18\x05"),  # int_value as bytes: unknown
    st.just(b"\x0a\x01a"),
    st.just(b"\x10\x01"),
)
value = st.one_of(number_field, number_field, st.lists(odd_field, max_size=3).map(b"".join))
element = st.one_of(
    value.map(lambda data: b"\x0a" + bytes([len(data)]) + data),
    value.map(lambda data: b"\x0a" + bytes([len(data)]) + data),
    varint.map(lambda number: b"\x08" + number),  # values as a number: unknown to the list, but a number to packed ones
    st.just(b"\x08\x18"),
    varint.map(lambda number: b"\x10" + number),
)


@given(st.lists(element, min_size=8, max_size=24).map(b"".join))
def test_odd_encodings_of_a_list(data):
    try:
        array = ArrayValue.FromString(data)
    except DecodeError:
        return
    assert NUMBERS.read(array) in (None, one_by_one(array))


PLAIN = traces(span(**attributes(ids={"arrayValue": {"values": [{"intValue": str(at * 997)} for at in range(12)]}})))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3), st.integers(0, 400))
def test_a_damaged_request_is_read_the_same(tmp_path_factory, changes, cut):
    data = bytearray(to_protobuf(PLAIN))
    for place, byte in changes:
        data[place % len(data)] = byte
    data = bytes(data[: len(data) - cut % 5])
    folder = tmp_path_factory.mktemp("damaged")
    with pytest.MonkeyPatch.context() as patch:
        at_once = read_or_raise(folder, prefixed(data))
        patch.setattr(otlp_protobuf_numbers, "_FEW", 1 << 30)
        assert read_or_raise(folder, prefixed(data)) == at_once


def read_or_raise(folder, data):
    """What `read_bytes` gives, or what it says when no format knows the bytes."""
    try:
        return read_bytes(folder, data)
    except Exception as error:  # noqa: BLE001 # which of them is not what is tested
        return str(error)


def test_a_list_of_numbers_in_a_span(tmp_path):
    records, _ = read_bytes(tmp_path, prefixed(to_protobuf(PLAIN)))
    (found,) = spans_of(records)
    assert found.attributes == {"ids": [at * 997 for at in range(12)]}
