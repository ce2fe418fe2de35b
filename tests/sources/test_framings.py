"""The collector's framings: zstd a message at a time and as one stream, and an object a message."""

import contextlib
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.errors import SourceError
from art_otel.sources import Limits
from art_otel.sources.files.encodings import PARQUET_MAGICS
from tests.sources.requests import (
    damages_of,
    lines,
    numbers,
    prefixed,
    read_bytes,
    reasons_of,
    span,
    to_protobuf,
    traces,
    zstd,
)
from tests.sources.test_laws import laws, mutated, read

REQUESTS = [traces(span(number, name=f"{number * 7919 % 1013:x}" * 50), span(number + 100)) for number in range(1, 9)]
JSON = [json.dumps(request).encode() for request in REQUESTS]
PROTOBUF = [to_protobuf(request) for request in REQUESTS]
MESSAGES = {"otlp-json": JSON, "otlp-protobuf": PROTOBUF}
EXPECTED = [number for at in range(1, 9) for number in (at, at + 100)]
GOOD = {"otlp-json": lines(traces(span(0xA))).rstrip(), "otlp-protobuf": to_protobuf(traces(span(0xA)))}


def framed(*messages: bytes) -> bytes:
    """Older file exporters: a length and a zstd frame for each message."""
    return prefixed(*(zstd(message) for message in messages))


@pytest.mark.parametrize("name", MESSAGES)
def test_a_zstd_frame_a_message(name, tmp_path):
    data = framed(*MESSAGES[name])
    records, account = read_bytes(tmp_path, data)
    assert numbers(records) == EXPECTED
    assert (account.format, account.compression, account.bytes) == (name, "zstd", len(data))
    assert not damages_of(records)


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd])
def test_an_object_of_awss3exporter_is_one_message(name, compress, tmp_path):
    file = {"otlp-json": "traces_123456789.json", "otlp-protobuf": "traces_123456789.binpb"}[name]
    records, account = read_bytes(tmp_path, compress(MESSAGES[name][0]), file)
    assert (numbers(records), account.format) == ([1, 101], name)
    assert not damages_of(records)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_lengths_of_a_little_endian_machine_are_read_too(count, tmp_path):
    """A receiver of one's own may write `struct.pack("I", …)`."""
    little = b"".join(len(message).to_bytes(4, "little") + message for message in PROTOBUF[:count])
    for dump in (little, little + PROTOBUF[0][:2]):
        records, account = read_bytes(tmp_path, dump)
        assert (numbers(records), account.format) == (EXPECTED[: 2 * count], "otlp-protobuf")
        assert reasons_of(records) == ([] if dump is little else ["torn"])


@pytest.mark.parametrize("name", MESSAGES)
def test_a_frame_that_is_broken_costs_no_other(name, tmp_path):
    frames = [bytearray(zstd(message)) for message in MESSAGES[name]]
    frames[2][-9:] = b"\xff" * 9
    frames[4] = bytearray(b"no frame")
    records, account = read_bytes(tmp_path, prefixed(*map(bytes, frames)))
    assert numbers(records) == [number for number in EXPECTED if number not in (3, 103, 5, 105)]
    assert [damage.path.rpartition(":")[2] for damage in damages_of(records)] == ["message 3", "message 5"]
    assert (reasons_of(records), account.quarantined) == (["torn", "torn"], 2)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_first_message_may_be_the_broken_one(name, tmp_path):
    first = bytearray(zstd(MESSAGES[name][0]))
    first[9:] = b"\xff" * (len(first) - 9)
    bad = json.dumps(traces(span(9, kind="no kind"))).encode()
    bad = bad if name == "otlp-json" else to_protobuf(traces(span(9, startTimeUnixNano="0")))
    records, _ = read_bytes(tmp_path, prefixed(bytes(first), *map(zstd, [*MESSAGES[name][1:], bad])))
    assert numbers(records) == EXPECTED[2:]
    places = [damage.path.partition(" / ")[0].rpartition(":")[2] for damage in damages_of(records)]
    assert places == [{"otlp-json": "9", "otlp-protobuf": "message 9"}[name], "message 1"]


@pytest.mark.parametrize("name", MESSAGES)
def test_cut_anywhere(name, tmp_path):
    data = framed(*MESSAGES[name])
    lengths = [len(framed(message)) for message in MESSAGES[name]]
    whole = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    for cut in range(30, len(data), 17):
        records, account = read_bytes(tmp_path, data[:cut])
        kept = numbers(records)
        assert kept == EXPECTED[: len(kept)]
        assert len(kept) >= 2 * sum(end <= cut for end in whole[1:])
        assert account.quarantined == (cut not in whole)
        assert reasons_of(records) == ["torn"] * account.quarantined


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_over_the_limit_costs_no_other(name, tmp_path):
    huge = traces(span(77, name="x" * (3 << 20)))
    bomb = {"otlp-json": json.dumps(huge).encode(), "otlp-protobuf": to_protobuf(huge)}[name]
    first, *others = MESSAGES[name]
    incompressible = prefixed(zstd(first), zstd(bomb), b"\x28\xb5\x2f\xfd" + bytes(2 << 20), *map(zstd, others))
    records, _ = read_bytes(tmp_path, incompressible, limits=Limits(max_message_bytes=1 << 20))
    assert numbers(records) == EXPECTED
    assert reasons_of(records) == ["over a limit", "over a limit"]
    assert [damage.path.rpartition(":")[2] for damage in damages_of(records)] == ["message 2", "message 3"]


def test_nothing_but_broken_frames(tmp_path):
    records, account = read_bytes(tmp_path, prefixed(b"\x28\xb5\x2f\xfd????"))
    assert reasons_of(records) == ["torn"]
    assert account.note == "empty"


@pytest.mark.parametrize("name", MESSAGES)
@laws
@given(data=st.data())
def test_mutated_frames(name, data, tmp_path):
    frames = data.draw(mutated(framed(*MESSAGES[name])))
    is_taken_for_parquet = frames.startswith(PARQUET_MAGICS)  # which a named file then has to be
    with contextlib.suppress(SourceError) if is_taken_for_parquet else contextlib.nullcontext():
        read(tmp_path, frames)


@pytest.mark.parametrize("name", MESSAGES)
@laws
@given(bad=st.binary(max_size=60))
def test_any_frame_beside_good_ones(name, bad, tmp_path):
    good = zstd(GOOD[name])
    records, _ = read(tmp_path, prefixed(good, bad, good))
    assert numbers(records) == [0xA, 0xA]
