"""Compression is known by its magic; a stream cut or broken anywhere gives what stands before that place."""

import gzip

import pytest

from art_otel.sources import Limits
from art_otel.spans import Span
from tests.sources.requests import COMPRESSORS, damages_of, lines, read_bytes, reasons_of, span, spans_of, traces

NUMBERS = range(1, 401)
LINES = [lines(traces(span(number, name=f"{number * 7919 % 1013:x}" * 9))) for number in NUMBERS]
PLAIN = b"".join(LINES)


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_one_stream_or_several(compression, tmp_path):
    compress = COMPRESSORS[compression]
    for data in (compress(PLAIN), b"".join(compress(line) for line in LINES)):
        records, account = read_bytes(tmp_path, data)
        assert records == spans_of(read_bytes(tmp_path, PLAIN)[0])
        assert (account.compression, account.bytes) == (compression, len(data))


def test_zstd_may_begin_with_a_frame_to_skip(tmp_path):
    for low in (0x50, 0x5F):
        skipped = bytes([low]) + b"\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"any"
        records, account = read_bytes(tmp_path, b"".join(skipped + COMPRESSORS["zstd"](line) for line in LINES))
        assert (len(spans_of(records)), damages_of(records)) == (len(NUMBERS), [])
        assert (account.format, account.compression) == ("otlp-json", "zstd")


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_cut_anywhere(compression, tmp_path):
    data = COMPRESSORS[compression](PLAIN)
    most = 0
    for cut in range(20, len(data), len(data) // 23):
        records, account = read_bytes(tmp_path, data[:cut])
        assert reasons_of(records) == ["torn"]
        assert [read.span_id for read in spans_of(records)] == [f"{n:016x}" for n in NUMBERS][: account.spans]
        assert account.quarantined == 1
        most = max(most, account.spans)
    assert most > 200


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_rubbish_after_the_end(compression, tmp_path):
    records, _ = read_bytes(tmp_path, COMPRESSORS[compression](PLAIN) + b"rubbish")
    assert len(spans_of(records)) == len(NUMBERS)
    assert reasons_of(records) == ["torn"]
    assert damages_of(records)[0].path.endswith("in.dump")


def test_broken_inside(tmp_path):
    data = bytearray(gzip.compress(PLAIN))
    data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
    records, _ = read_bytes(tmp_path, bytes(data))
    assert "torn" in reasons_of(records)  # deflate cannot tell at once, so that some rubbish lines come before
    assert [read.span_id for read in records[:100]] == [f"{number:016x}" for number in NUMBERS[:100]]


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_nothing_but_a_header(compression, tmp_path):
    records, account = read_bytes(tmp_path, COMPRESSORS[compression](PLAIN)[:6])
    assert reasons_of(records) == ["torn"]
    assert account.note == "empty"


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_a_bomb_is_stopped(compression, tmp_path):
    bomb = COMPRESSORS[compression](PLAIN + b" " * (64 << 20))
    limits = Limits(max_decompressed_bytes=8 << 20, max_message_bytes=1 << 20)
    records, _ = read_bytes(tmp_path, bomb, limits=limits)
    assert len(spans_of(records)) == len(NUMBERS)
    assert reasons_of(records)[-1] == "over a limit"
    assert all(isinstance(record, Span) for record in records[: len(NUMBERS)])
