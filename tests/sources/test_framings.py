"""The collector's framings: one zstd stream, an object a message, and what is none of them."""

import gzip
import json

import pytest

from art_otel.errors import SourceError
from tests.sources.requests import (
    damages_of,
    lines,
    numbers,
    prefixed,
    read_bytes,
    span,
    to_protobuf,
    traces,
    zstd,
)

REQUESTS = [traces(span(number, name=f"{number * 7919 % 1013:x}" * 50), span(number + 100)) for number in range(1, 9)]
JSON = [json.dumps(request).encode() for request in REQUESTS]
PROTOBUF = [to_protobuf(request) for request in REQUESTS]
MESSAGES = {"otlp-json": JSON, "otlp-protobuf": PROTOBUF}
EXPECTED = [number for at in range(1, 9) for number in (at, at + 100)]


def test_one_zstd_stream(tmp_path):
    for name, data in (("otlp-json", lines(*REQUESTS)), ("otlp-protobuf", prefixed(*PROTOBUF))):
        for compressed in (zstd(data), b"".join(zstd(data[at : at + 999]) for at in range(0, len(data), 999))):
            records, account = read_bytes(tmp_path, compressed)
            assert numbers(records) == EXPECTED
            assert (account.format, account.compression) == (name, "zstd")


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd])
def test_an_object_of_awss3exporter_is_one_message(name, compress, tmp_path):
    file = {"otlp-json": "traces_123456789.json", "otlp-protobuf": "traces_123456789.binpb"}[name]
    records, account = read_bytes(tmp_path, compress(MESSAGES[name][0]), file)
    assert (numbers(records), account.format) == ([1, 101], name)
    assert not damages_of(records)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_zstd_frame_a_message_is_no_known_format(name, tmp_path):
    """What older file exporters wrote with `compression: zstd`."""
    with pytest.raises(SourceError, match="no known format"):
        read_bytes(tmp_path, prefixed(*(zstd(message) for message in MESSAGES[name])))
