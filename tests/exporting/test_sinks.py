"""Sinks: whole files or none, whatever happens on the way."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from art_otel.errors import UsageError
from art_otel.exporting import Folder, JsonLines, ParquetFile, whole_file


def files(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def breaking(records):
    yield from records
    raise RuntimeError("crash")


@pytest.mark.parametrize(
    ("sink", "name", "records"),
    [
        (JsonLines(), "a.jsonl", [{"a": 1}] * 3),
        (ParquetFile(pa.schema({"a": pa.int64()})), "a.parquet", [{"a": 1}] * 3000),
        (Folder(), "folder", [("a.bin", b"1"), ("a.bin", b"2")]),
    ],
)
def test_a_crash_leaves_what_was_there_before(tmp_path, sink, name, records):
    out = tmp_path / "new" / name
    with pytest.raises(RuntimeError, match="crash"):
        sink.write(breaking(records), out)
    assert files(tmp_path) == {}
    count, (file,) = sink.write(iter(records), out)
    before = files(tmp_path)
    assert count == len(records)
    assert file.is_file()
    with pytest.raises(RuntimeError, match="crash"):
        sink.write(breaking(records), out)
    assert files(tmp_path) == before


def test_json_lines_are_json_whatever_the_numbers(tmp_path):
    records = [{"a": "Zürich\n\u2028", "b": float("nan")}, {"b": float("inf")}]
    _, (file,) = JsonLines().write(iter(records), tmp_path / "a.jsonl")
    lines = file.read_bytes().splitlines()
    assert [json.loads(line) for line in lines] == [{"a": "Zürich\n\u2028", "b": None}, {"b": None}]


def test_no_records_are_an_empty_file_with_its_schema(tmp_path):
    schema = pa.schema({"a": pa.list_(pa.int32())})
    assert ParquetFile(schema).write(iter(()), tmp_path / "a.parquet")[0] == 0
    assert pq.read_schema(tmp_path / "a.parquet").equals(schema)
    assert JsonLines().write(iter(()), tmp_path / "a.jsonl")[0] == 0
    assert (tmp_path / "a.jsonl").read_bytes() == b""
    assert Folder().write(iter(()), tmp_path / "folder") == (0, ())


def test_parquet_keeps_rows_in_order_over_row_groups(tmp_path):
    sink = ParquetFile(pa.schema({"a": pa.int64()}))
    count, (file,) = sink.write(({"a": number} for number in range(2500)), tmp_path / "a.parquet")
    assert pq.read_table(file)["a"].to_pylist() == list(range(count))


def test_a_folder_has_a_file_for_each_path(tmp_path):
    records = [("a/1.bin", b"x"), ("a/1.bin", b"y"), ("b.bin", b"z")]
    count, found = Folder().write(iter(records), tmp_path / "out")
    assert count == 3
    assert files(tmp_path / "out") == {"a/1.bin": b"xy", "b.bin": b"z"}
    assert [str(path.relative_to(tmp_path / "out")) for path in found] == ["a/1.bin", "b.bin"]


@pytest.mark.parametrize("name", ["../up", "/etc/up", "a/../../up", "", ".", "a/..", "nul\0", "line\n"])
def test_a_path_that_leads_elsewhere_is_refused(tmp_path, name):
    with pytest.raises(UsageError):
        Folder().write(iter([(name, b"x")]), tmp_path / "out")
    assert files(tmp_path) == {}


def test_a_link_that_leads_elsewhere_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError):
        Folder().write(iter([("link/up", b"x")]), tmp_path / "out")


def test_a_path_that_comes_back_is_refused(tmp_path):
    with pytest.raises(UsageError, match="must be consecutive"):
        Folder().write(iter([("a", b"1"), ("b", b"2"), ("a", b"3")]), tmp_path / "out")


def test_a_whole_file_replaces_the_one_before(tmp_path):
    for text in (b"long", b"1"):
        with whole_file(tmp_path / "new" / "a") as file:
            file.write(text)
    assert files(tmp_path) == {"new/a": b"1"}


def test_large_rows_wait_in_small_groups(tmp_path):
    sink = ParquetFile(pa.schema({"ids": pa.list_(pa.int32()), "said": pa.list_(pa.struct({"text": pa.string()}))}))
    long = {"ids": [1] * 400_000, "said": []}
    packed = {"ids": np.ones(4_000_000, np.int32), "said": [{"text": "a" * 4_000_000}] * 4}
    rows = [long] * 4 + [packed] * 2 + [{"ids": [], "said": []}] * 1025
    _, (file,) = sink.write(iter(rows), tmp_path / "a.parquet")
    metadata = pq.read_metadata(file)
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert sizes == [3, 2, 1024, 2]
    found = pq.read_table(file)["ids"].to_pylist()
    assert list(map(len, found)) == [len(row["ids"]) for row in rows]


def test_who_writes_to_one_name_is_not_in_the_way_of_others(tmp_path):
    path = tmp_path / "a"
    with whole_file(path) as first:
        first.write(b"1")
        with whole_file(path) as second:
            second.write(b"2")
        assert path.read_bytes() == b"2"
    assert files(tmp_path) == {"a": b"1"}
