"""What fuzzing found (`python -m tests.fuzz`), each as its smallest input."""

import gzip
import json

import pyarrow as pa
import pytest

from art_otel.sources import FileAccount, find_inputs, read_file
from art_otel.sources.files import parts
from art_otel.sources.files.parts import share_inputs
from art_otel.sources.files.streams import HEAD_BYTES
from art_otel.spans import Span
from tests.conversions import convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.sources.requests import read_bytes
from tests.sources.writers import WRITERS


def test_a_message_that_is_refused_only_when_it_is_decoded_costs_no_conversion(tmp_path):
    root = make_span(1, name="rollout x")
    call = chat_span(2, 1, ["a"], "b", attributes={"gen_ai.input.messages": '[{"role":"user","content":1e999}]'})
    dump = write_lines(tmp_path / "in.jsonl", [request_of(root, call)])
    (trajectory,), _ = convert_files(tmp_path / "out", dump)
    assert trajectory.calls[0].choices[0].message.content == "b"
    assert not trajectory.complete


LINES = [json.dumps(request_of(make_span(number))).encode() for number in range(1, 30)]
LONG = b" " * 10_000
BETWEEN = {
    "rubbish": (b"rubbish" + LONG + b"\n") * 400,
    "blank lines": (LONG + b"\n") * 400,
    "another format": (b'{"data":[{"traceID":"5","spans":[]}]}' + LONG + b"\n") * 400,
}
"""Enough of it that nothing else is seen where a part begins."""


@pytest.mark.parametrize("name", BETWEEN)
def test_a_part_is_of_the_format_of_its_file(name, tmp_path, monkeypatch):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(LINES) + b"\n" + BETWEEN[name] + b"\n".join(LINES))
    check_parts(path, monkeypatch)


def test_a_byte_order_mark_is_nothing_in_any_line_and_part(tmp_path, monkeypatch):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"".join(b"\xef\xbb\xbf" + line + b"\n" for line in LINES))
    records = check_parts(path, monkeypatch)
    assert len(records) == len(LINES)
    assert all(isinstance(record, Span) for record in records)


@pytest.mark.parametrize("pack", [lambda data: gzip.compress(data, 0), pa.Codec("zstd", -100).compress])
def test_a_packed_file_through_which_its_text_shines_is_in_one_piece(pack, tmp_path, monkeypatch):
    path = tmp_path / "in.jsonl.packed"
    path.write_bytes(bytes(pack(b"\n".join(LINES))))
    assert b'"resourceSpans":' in path.read_bytes()
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 1)
    assert share_inputs(find_inputs([path]), 3) == [find_inputs([path])]


def check_parts(path, monkeypatch):
    inputs = find_inputs([path])
    whole = list(read_file(inputs[0], FileAccount()))
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 1)
    shares = share_inputs(inputs, 3)
    assert len(shares) == 3
    assert [record for share in shares for source in share for record in read_file(source, FileAccount())] == whole
    return whole


def test_blank_lines_are_no_protobuf(tmp_path):
    records, account = read_bytes(tmp_path, b"\n" * 50)
    assert (records, account.format, account.note) == ([], None, "empty")


def test_a_dump_behind_a_megabyte_of_blank_lines_is_read(tmp_path):
    records, _ = read_bytes(tmp_path, b"\n" * (HEAD_BYTES + 1) + LINES[0])
    assert [type(record) for record in records] == [Span]


def test_a_glob_that_is_no_text_stops_no_conversion(tmp_path):
    dump = write_lines(tmp_path / "in.jsonl", [request_of(make_span(1, name="rollout x"))])
    _, report = convert_files(tmp_path / "out", dump, rollout_spans=["\udcff*"])
    assert report.spans.read == 1


@pytest.mark.parametrize("blank", [b"\n\n\n", b"\n" * 40])
def test_a_dump_behind_blank_lines_is_no_protobuf(blank, tmp_path):
    dump = b'[{"traceId":"%032x","id":"%016x","name":"x","timestamp":1,"duration":2}]' % (5, 6)
    records, account = read_bytes(tmp_path, blank + dump)
    assert account.format == "zipkin-json"
    assert [type(record) for record in records] == [Span]


@pytest.mark.parametrize("writer", ["console", "console in lines", "clickhouse in lines"])
@pytest.mark.parametrize("value", [str(2**70), "NaN", "[" * 100 + "]" * 100])
def test_a_resource_that_cannot_be_kept_costs_no_span(writer, value, tmp_path):
    request = request_of(make_span(1, name="rollout x"), chat_span(2, 1, ["a"], "b"), resource={"bad": "@"})
    (tmp_path / "in.dump").write_bytes(WRITERS[writer]([request]).replace(b'"@"', value.encode()))
    (trajectory,), report = convert_files(tmp_path / "out", tmp_path / "in.dump")
    assert len(trajectory.calls) == 1
    assert report.spans.used == 2
    assert len(report.quarantine) == 2
