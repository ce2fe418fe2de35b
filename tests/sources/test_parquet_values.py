"""Values of Parquet columns: none of any type fails its row, and columns that nobody reads cost nothing."""

import datetime as dt
import json

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.errors import SourceError
from art_otel.sources.backends import clickhouse as clickhouse_format
from art_otel.sources.backends import phoenix_dataframe
from art_otel.sources.files.parquet_columns import CLICKHOUSE, PHOENIX, read_columns
from art_otel.sources.files.parquet_rows import json_rows
from tests.sources.requests import TRACE, read_bytes, reasons_of, spans_of
from tests.sources.test_laws import laws
from tests.sources.writers.parquet import EXPORTS, parquet

ROWS = 3
UNITS = ("s", "ms", "us", "ns")
OF_WIDTH = {
    1: [pa.int8(), pa.uint8(), pa.bool8()],
    2: [pa.float16(), pa.int16()],
    4: [pa.int32(), pa.float32(), pa.date32(), pa.time32("s"), pa.time32("ms")],
    8: [pa.uint64(), pa.float64(), pa.date64(), pa.time64("us"), pa.time64("ns"), pa.opaque(pa.int64(), "a", "b")]
    + [kind for unit in UNITS for kind in (pa.duration(unit), pa.timestamp(unit), pa.timestamp(unit, "No/Where"))],
    16: [pa.decimal128(38, 5), pa.decimal128(3, -3), pa.binary(16), pa.uuid(), pa.month_day_nano_interval()],
    32: [pa.decimal256(76, 3)],
}
TEXTS = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view(), pa.json_()]
UNMARKED = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def lying(kind: pa.DataType, rows: int, buffers: list) -> pa.Array:
    """An array of any bytes, which nobody has looked at."""
    is_extension = isinstance(kind, pa.BaseExtensionType)
    storage = pa.Array.from_buffers(kind.storage_type if is_extension else kind, rows, buffers)
    return pa.ExtensionArray.from_storage(kind, storage) if is_extension else storage


@st.composite
def fixed_arrays(draw, rows):
    width = draw(st.sampled_from(sorted(OF_WIDTH)))
    data = draw(st.binary(min_size=width * rows, max_size=width * rows))
    return lying(draw(st.sampled_from(OF_WIDTH[width])), rows, [None, pa.py_buffer(data)])


@st.composite
def text_arrays(draw, rows):
    kind = draw(st.sampled_from(TEXTS))
    values = draw(st.lists(st.none() | st.binary(max_size=20), min_size=rows, max_size=rows))
    storage = pa.string() if kind == pa.json_() else kind
    return lying(kind, rows, pa.array(values, UNMARKED.get(storage, storage)).buffers())


@st.composite
def arrays(draw, rows=ROWS, depth=3):
    if not depth or draw(st.booleans()):
        return draw(fixed_arrays(rows) | text_arrays(rows))
    way = draw(st.sampled_from(["list", "large list", "view", "pairs", "fields", "map", "named", "union", "runs"]))
    inner = draw(arrays(2 * rows if way == "pairs" else rows, depth - 1))
    ends = range(rows + 1)
    if way == "list":
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner)
    if way == "large list":
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), inner)
    if way == "view":
        return pa.ListViewArray.from_arrays(pa.array(ends[:-1], pa.int32()), pa.array([1] * rows, pa.int32()), inner)
    if way == "pairs":
        return pa.FixedSizeListArray.from_arrays(inner, 2)
    if way == "fields":
        return pa.StructArray.from_arrays(
            [inner, draw(arrays(rows, depth - 1))], names=["a", draw(st.sampled_from("ab"))]
        )
    if way == "map":
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), pa.array(["k"] * rows), inner)
    if way == "union":
        of_first = pa.array([0] * rows, pa.int8())
        return pa.UnionArray.from_sparse(of_first, [inner, draw(arrays(rows, depth - 1))])
    if way == "runs":
        return pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([1], pa.duration("ns")))
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), inner)


@laws
@given(column=arrays())
def test_no_value_of_any_type_fails_its_row(column):
    lines = list(json_rows(pa.RecordBatch.from_arrays([pa.array(range(ROWS)), column], names=["id", "v"])))
    assert [json.loads(line.decode(errors="surrogateescape"))["id"] for line in lines] == list(range(ROWS))


ROW = {
    "duration": (pa.array([1001, None], pa.duration("ns")), 1001),
    "long duration": (pa.array([2**62, None], pa.duration("s")), 2**62 * 10**9),
    "duration in microseconds": (pa.array([7, None], pa.duration("us")), 7000),
    "time": (pa.array([1001, None], pa.time64("ns")), 1001),
    "time of day": (pa.array([dt.time(0, 0, 1), None], pa.time32("s")), 10**9),
    "date": (pa.array([dt.date(2024, 1, 2), None]), "2024-01-02"),
    "far date": (pa.array([2**31 - 1, None], pa.date32()), 2**31 - 1),
    "times": (pa.array([[1001], None], pa.large_list(pa.timestamp("ns"))), [1001]),
    "named bytes": (pa.array([b"abc", None]).dictionary_encode(), "abc"),
    "view": (pa.array([b"abc", None], pa.binary_view()), "abc"),
}


@pytest.mark.parametrize("name", ROW)
def test_what_becomes_of_values(name):
    column, expected = ROW[name]
    first, second = json_rows(pa.RecordBatch.from_arrays([column], names=["v"]))
    assert json.loads(first) == {"v": expected}
    assert json.loads(second) == {}


def spans_of_phoenix(**columns) -> bytes:
    table = {"context.trace_id": [TRACE] * 2, "context.span_id": [f"{1:016x}", f"{2:016x}"], "name": ["x"] * 2}
    return parquet(pa.table({**table, "start_time": pa.array([1000] * 2, pa.timestamp("ns")), **columns}))


def test_a_latency_that_somebody_added_is_no_matter_and_one_that_is_an_attribute_is_read(tmp_path):
    latency = pa.array([1001, 1002], pa.duration("ns"))
    records, _ = read_bytes(tmp_path, spans_of_phoenix(latency=latency, **{"attributes.latency": latency}))
    assert [record.attributes for record in records] == [{"latency": 1001}, {"latency": 1002}]


def test_bytes_in_a_column_that_nobody_reads_cost_no_row(tmp_path):
    digests = pa.array([b"\xff\xfe"] * 2)
    lied = pa.Array.from_buffers(pa.string(), 2, digests.buffers())
    others = {"digest": digests, "digest.sha": digests, "text": lied, "fixed": pa.array([b"\xff"] * 2, pa.binary(1))}
    records, _ = read_bytes(tmp_path, spans_of_phoenix(**others))
    assert (len(spans_of(records)), reasons_of(records)) == (2, [])
    records, _ = read_bytes(tmp_path, spans_of_phoenix(name=digests))
    assert reasons_of(records) == ["invalid UTF-8"] * 2


def test_the_columns_that_are_read_are_those_that_the_formats_know():
    def names(row: type) -> set[str]:
        return {field.encode_name for field in msgspec.structs.fields(row)}

    assert names(clickhouse_format._Row) == CLICKHOUSE.ids | CLICKHOUSE.others
    assert names(phoenix_dataframe._Row) == PHOENIX.ids | PHOENIX.others
    assert PHOENIX.prefix == phoenix_dataframe._PREFIX
    assert read_columns(["resourceSpans", "TraceId"]) is None


def test_an_encrypted_file_is_called_so(tmp_path):
    plain = (EXPORTS / "phoenix_spans.parquet").read_bytes()
    for encrypted in (b"PARE" + plain[4:-4] + b"PARE", plain[:-4] + b"PARE"):
        with pytest.raises(SourceError, match=r"encrypted .*; export it unencrypted$"):
            read_bytes(tmp_path, encrypted)
