"""Parquet files that explode: what is over the memory limit is named, and the rest of the file is read."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.sources import Limits
from tests.sources.requests import TRACE, damages_of, read_bytes, reasons_of
from tests.sources.writers.parquet import parquet


def bomb(column: str, *, rows: int, size: int, copies: int = 1) -> bytes:
    """A file that repeats one long text: a dictionary of one entry, and an index for each place."""
    text = pa.array(["a" * size])
    long = pa.DictionaryArray.from_arrays(pa.array([0] * rows * copies, pa.int32()), text)
    if copies > 1:
        long = pa.ListArray.from_arrays(pa.array(range(0, rows * copies + 1, copies), pa.int32()), long)
    ids = {"TraceId": [TRACE] * rows, "SpanId": [f"{at + 1:016x}" for at in range(rows)], "SpanName": ["x"] * rows}
    table = {**ids, "Timestamp": pa.array([1000] * rows, pa.timestamp("ns")), column: long}
    return parquet(pa.table(table), compression="zstd", store_schema=False, write_statistics=False)


def test_one_row_that_explodes(tmp_path):
    data = bomb("Events.Name", rows=1, size=1_000_000, copies=10_000)
    assert len(data) < 2000
    records, account = read_bytes(tmp_path, data)
    assert (reasons_of(records), account.damaged) == (["over a limit"], 1)
    (damage,) = damages_of(records)
    assert damage.path.endswith("in.dump:row group 1, row 1")
    assert "Limits.max_parquet_memory" in damage.detail
    peak, _ = reading(tmp_path, data, Limits())
    assert peak < 10**9


def test_rows_that_are_too_many_for_a_batch_are_read_one_by_one(tmp_path):
    limits = Limits(max_parquet_memory=200 << 20)
    data = bomb("StatusMessage", rows=300, size=1_000_000)
    peak, read = reading(tmp_path, data, limits)
    assert read == [["Span", f"{number:016x}"] for number in range(1, 301)]
    assert peak < 10**9


def test_row_groups_beside_one_that_explodes_are_kept(tmp_path):
    few = pq.read_table(io.BytesIO(bomb("Events.Name", rows=2, size=10, copies=2)))
    much = few.slice(0, 1).set_column(few.num_columns - 1, "Events.Name", pa.array([["a" * (60 << 20)] * 4]))
    file = io.BytesIO()
    with pq.ParquetWriter(file, few.schema, compression="zstd", store_schema=False) as writer:
        for group in (few, much.cast(few.schema), few):
            writer.write_table(group)
    records, _ = read_bytes(tmp_path, file.getvalue(), limits=Limits(max_parquet_memory=200 << 20))
    over = [damage.path for damage in damages_of(records) if damage.reason == "over a limit"]
    assert [path.rpartition(":")[2] for path in over] == ["row group 2, row 1"]
    assert len(records) == 5


def test_a_long_text_in_many_rows_is_stopped_by_the_size_of_the_file(tmp_path):
    data = bomb("StatusMessage", rows=600, size=1_000_000)
    assert len(data) < 100_000
    records, account = read_bytes(tmp_path, data, limits=Limits(max_decompression_ratio=2000))
    assert 500 < account.spans < 560
    (damage,) = (damage for damage in damages_of(records) if "--max-decompression-ratio" in damage.detail)
    assert damage.reason == "over a limit"


READING = """
import json, resource, sys
from art_otel.sources import FileAccount, Limits, find_inputs, read_file
(source,) = find_inputs([sys.argv[1]])
records = read_file(source, FileAccount(), limits=Limits(max_parquet_memory=int(sys.argv[2])))
read = [(type(record).__name__, record.span_id) for record in records]
own = 0
if sys.platform == "linux":
    own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) << 10, read]))
"""
"""Its own `ru_maxrss` would count that of the process it was forked from."""


def reading(folder: Path, data: bytes, limits: Limits) -> tuple[int, list[list[str]]]:
    """In a process that only reads: the most bytes that it, or a process of its, has in memory, and what it read."""
    (folder / "read.dump").write_bytes(data)
    command = [sys.executable, "-c", READING, str(folder / "read.dump"), str(limits.max_parquet_memory)]
    peak, read = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return peak, read
