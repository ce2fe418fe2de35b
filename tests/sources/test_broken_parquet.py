"""Parquet that is broken, lies or is beyond a limit is named, and costs no other row and no other file."""

import contextlib
import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.errors import SourceError
from art_otel.sources import Limits
from tests.conversions import convert_files
from tests.sources.requests import TRACE, damages_of, lines, numbers, read_bytes, reasons_of, span, traces
from tests.sources.test_laws import laws
from tests.sources.test_parquet import PHOENIX, ROWS, SPANS, written
from tests.sources.writers import clickhouse
from tests.sources.writers.parquet import parquet

BAD_CELLS = {
    "TraceId": ("zz", "bad id"),
    "SpanId": ("0" * 16, "bad id"),
    "Timestamp": (-1, "bad field"),
    "Duration": (2**64 - 5, "bad field"),
    "SpanKind": ("Sideways", "bad field"),
    "StatusCode": ("Fine", "bad field"),
    "Events.Name": (["e"], "bad field"),
    "SpanAttributes": ([("a", '{"values":[{"intValue":"99999999999999999999"}]}')], "bad field"),
}


@pytest.mark.parametrize("column", BAD_CELLS)
def test_a_bad_cell_costs_no_other_row(column, tmp_path):
    value, reason = BAD_CELLS[column]
    rows = [*ROWS[:3], {**ROWS[3], column: value}, *ROWS[4:]]
    records, account = read_bytes(tmp_path, written(rows, row_group_size=4))
    assert numbers(records) == [1, 2, 3, 5, 6, 7]
    (damage,) = damages_of(records)
    assert (damage.reason, damage.kind, account.quarantined) == (reason, "span", 1)
    assert damage.path.partition(" / ")[0].endswith("in.dump:4")
    assert column == "TraceId" or damage.trace_id == TRACE


def test_text_that_is_not_utf8_costs_no_other_row(tmp_path):
    table = pa.Table.from_pylist(ROWS, schema=clickhouse.SCHEMA)
    names = pa.array([b"ok"] * 3 + [b"\xff\xfe"] + [b"\xed\xa0\x80"] + [b"ok"] * 2)
    lying = pa.Array.from_buffers(pa.string(), 7, names.buffers())  # says that it is UTF-8
    for column in (names, lying):
        records, _ = read_bytes(tmp_path, parquet(table.set_column(5, "SpanName", column)))
        assert numbers(records) == [1, 2, 3, 6, 7]
        assert reasons_of(records) == ["invalid UTF-8", "invalid UTF-8"]
        assert [damage.span_id for damage in damages_of(records)] == [f"{4:016x}", f"{5:016x}"]


def test_a_time_that_nothing_can_hold_costs_no_other_row(tmp_path):
    table = pa.Table.from_pylist(ROWS, schema=clickhouse.SCHEMA)
    times = pa.array([1000, 2000, 2**62, 3000, 4000, 5000, 6000], pa.timestamp("us", "UTC"))
    records, _ = read_bytes(tmp_path, parquet(table.set_column(0, "Timestamp", times)))
    assert numbers(records) == [1, 2, 4, 5, 6, 7]
    assert reasons_of(records) == ["bad field"]


CUT = clickhouse.write([traces(*SPANS)])


@pytest.mark.parametrize("cut", [4, 12, len(CUT) // 2, len(CUT) - 1])
def test_a_file_without_its_footer(cut, tmp_path):
    (tmp_path / "cut.parquet").write_bytes(CUT[:cut])
    (tmp_path / "good.jsonl").write_bytes(lines(traces(span())))
    _, report = convert_files(tmp_path / "out", tmp_path)
    assert report.spans.read == 1
    (unread,) = report.unread
    assert unread.error is not None
    assert "cut.parquet: cannot be read as Parquet (" in unread.error
    assert unread.error.endswith("is it cut off? export it again")


def test_a_row_group_that_is_broken_costs_no_other(tmp_path):
    metadata = pq.read_metadata(io.BytesIO(CUT))
    data = bytearray(CUT)
    for column in range(metadata.num_columns):
        chunk = metadata.row_group(1).column(column)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        data[start : start + 16] = b"\xff" * 16
    records, account = read_bytes(tmp_path, bytes(data))
    assert numbers(records) == [1, 2, 3, 7]
    (damage,) = damages_of(records)
    assert (damage.reason, account.quarantined) == ("torn", 1)
    assert damage.path.endswith("in.dump:row group 2, row 1")


def lying(data: bytes, change) -> bytes:
    """The file with another footer."""
    (length,) = struct.unpack("<I", data[-8:-4])
    start = len(data) - 8 - length
    footer = change(bytearray(data[start:-8]))
    return data[:start] + bytes(footer) + struct.pack("<I", len(footer)) + b"PAR1"


@settings(parent=laws, max_examples=20)
@given(at=st.integers(0, 10**6), value=st.integers(0, 255), length=st.integers(1, 4))
def test_a_footer_that_lies_never_raises_anything_else(at, value, length, tmp_path):
    def change(footer: bytearray) -> bytearray:
        start = at % len(footer)
        footer[start : start + length] = bytes([value]) * length
        return footer

    data = lying(CUT, change)
    with contextlib.suppress(SourceError):
        records, account = read_bytes(tmp_path, data)
        assert len(records) == account.spans + account.quarantined + account.partly_quarantined


def test_what_is_beyond_a_limit_costs_no_neighbor(tmp_path):
    data = written(ROWS, row_group_size=2)
    size = pq.read_metadata(io.BytesIO(data)).row_group(0).total_byte_size
    records, _ = read_bytes(tmp_path, data, limits=Limits(max_decompressed_bytes=size * 5 // 2))
    assert (numbers(records), reasons_of(records)) == ([1, 2, 3, 4], ["over a limit"])
    rows = [*ROWS[:3], {**ROWS[3], "StatusMessage": "x" * 100_000}, *ROWS[4:]]
    records, _ = read_bytes(tmp_path, written(rows), limits=Limits(max_message_bytes=50_000))
    assert (numbers(records), reasons_of(records)) == ([1, 2, 3, 5, 6, 7], ["over a limit"])
    assert damages_of(records)[0].span_id == f"{4:016x}"


def test_an_encrypted_file_is_called_so(tmp_path):
    plain = PHOENIX.read_bytes()
    for encrypted in (b"PARE" + plain[4:-4] + b"PARE", plain[:-4] + b"PARE"):
        with pytest.raises(SourceError, match=r"encrypted .*; export it unencrypted$"):
            read_bytes(tmp_path, encrypted)
