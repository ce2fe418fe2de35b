"""What fuzzing found (`python -m tests.fuzz`), each as its smallest input."""

import json

import pytest

from art_otel.sources import FileAccount, find_inputs, read_file, split_inputs
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


def test_a_byte_order_mark_is_nothing_in_any_line_and_part(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"".join(b"\xef\xbb\xbf" + line + b"\n" for line in LINES))
    records = check_parts(path)
    assert len(records) == len(LINES)
    assert all(isinstance(record, Span) for record in records)


def check_parts(path):
    inputs = find_inputs([path])
    whole = list(read_file(inputs[0], FileAccount()))
    splits = split_inputs(inputs, -(-inputs[0].size // 3))
    assert len(splits) == 3
    assert [record for split in splits for source in split for record in read_file(source, FileAccount())] == whole
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
