"""Parquet: real exports give what they hold; broken and lying files are named and cost no other file."""

import contextlib
import io
import json
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.errors import SourceError
from art_otel.sources import FileAccount, Limits, find_inputs, read_file
from art_otel.sources.files.parquet_lines import read_lines, write_lines
from art_otel.sources.files.parquet_rows import json_rows
from tests.conversions import convert_files
from tests.sources.requests import (
    TRACE,
    damages_of,
    lines,
    numbers,
    read_bytes,
    reasons_of,
    span,
    spans_of,
    standard_input,
    traces,
)
from tests.sources.test_laws import laws
from tests.sources.writers import clickhouse
from tests.sources.writers.parquet import EXPORTS, parquet

CLICKHOUSE = EXPORTS / "clickhouse_otel_traces.parquet"
PHOENIX = EXPORTS / "phoenix_spans.parquet"
SPANS = [span(number, name=f"span {number}") for number in range(1, 8)]
ROWS = clickhouse.rows([traces(*SPANS)], time=int, attributes=clickhouse._pairs)


def written(rows: list[dict], schema=clickhouse.SCHEMA, **options) -> bytes:
    return parquet(pa.Table.from_pylist(rows, schema=schema), **options)


def test_the_real_export_of_clickhouse(tmp_path):
    records, account = read_bytes(tmp_path, CLICKHOUSE.read_bytes())
    assert (account.format, account.compression, account.bytes) == ("clickhouse", "parquet", CLICKHOUSE.stat().st_size)
    assert (len(records), account.spans) == (600, 600)
    root, call = records[:2]
    assert (root.name, root.kind, root.parent_span_id, root.status) == ("rollout", "internal", None, "unset")
    assert (root.start_ns, root.end_ns) == (1795187037202916723, 1795187037202916723 + 102232)
    assert root.attributes["art.reward"] == "8.5"
    assert root.attributes["art.metrics.keys"] == ["a", "b"]
    assert root.resource.attributes["service.name"] == "art-rollouts"
    assert (root.scope.name, root.scope.version) == ("art_otel", "0.1.0")
    assert call.parent_span_id == root.span_id
    assert call.attributes["art.completion.token_ids"][:2] == [129626, 120236]
    assert call.attributes["art.completion.logprobs"][0] == -0.5871255046951435
    assert json.loads(call.attributes["gen_ai.input.messages"])[0]["role"] == "system"
    assert (call.events[0].name, call.events[0].attributes) == (
        "gen_ai.choice",
        {"index": "0", "finish_reason": "stop"},
    )


def test_the_real_export_of_phoenix(tmp_path):
    records, account = read_bytes(tmp_path, PHOENIX.read_bytes())
    assert (account.format, account.compression, account.spans) == ("phoenix-dataframe", "parquet", 1260)
    call, _, root = records[:3]
    assert root.parent_span_id is None
    assert (root.attributes["art.reward"], root.attributes["art.ok"]) == (199.5, True)
    assert root.attributes["art.rollout.id"] == "r199"
    assert "llm.model_name" not in root.attributes
    assert (call.start_ns, call.end_ns) == (1795187123394495000, 1795187123394538000)
    assert call.attributes["llm.input_messages.1.message.content"] == "turn 0 é ☃ "
    assert call.attributes["llm.output_messages.0.message.finish_reason"] == "stop"
    assert call.attributes["llm.token_count.prompt"] == 11
    assert call.attributes["art.completion.token_ids"][0] == 114515
    assert call.attributes["llm.invocation_parameters"] == '{"temperature": 1.0}'
    assert None not in call.attributes.values()
    assert call.events[0].time_ns == 1795187123394536000


@pytest.mark.parametrize(("export", "calls", "rollouts"), [(CLICKHOUSE, 400, 200), (PHOENIX, 840, 420)])
def test_a_real_export_converts(export, calls, rollouts, tmp_path):
    trajectories, report = convert_files(tmp_path / "out", export)
    assert (report.calls.total, report.calls.completed, len(trajectories)) == (calls, calls, rollouts)
    assert all(found.reward == float(found.rollout_id.removeprefix("r")) + 0.5 for found in trajectories)
    assert all(turn.message.content.startswith("ok") for found in trajectories for turn in found.turns)
    assert not report.quarantine


def test_parquet_from_standard_input():
    (source,) = find_inputs(["-"])
    account = FileAccount()
    with standard_input(CLICKHOUSE.read_bytes()):
        assert len(list(read_file(source, account))) == 600
    assert account.bytes == CLICKHOUSE.stat().st_size


def test_a_table_of_something_else(tmp_path):
    (tmp_path / "other.parquet").write_bytes(parquet(pa.table({"a": ["x" * 100] * 50_000})))
    (tmp_path / "none.parquet").write_bytes(parquet(pa.table({"a": pa.array([], pa.string())})))
    empty, other = FileAccount(), FileAccount()
    first, second = find_inputs([tmp_path])
    assert list(read_file(first, empty)) == list(read_file(second, other)) == []
    assert (empty.note, other.note, other.compression) == ("empty", "no known format", "parquet")


def test_columns_of_other_types(tmp_path):
    """As other versions write them: text without its mark, dictionaries, other units, JSON columns."""
    texts = ("TraceId", "SpanId", "SpanName", "SpanKind", "ScopeName")
    table = pa.Table.from_pylist(ROWS, schema=clickhouse.SCHEMA)
    for name in texts:
        column = table[name].cast(pa.binary()) if name != "SpanKind" else table[name].dictionary_encode()
        table = table.set_column(table.schema.get_field_index(name), name, column)
    named = pa.array(["SPAN_KIND_CLIENT"] * len(ROWS))
    microseconds = table["Timestamp"].cast(pa.int64()).combine_chunks()
    table = table.set_column(table.schema.get_field_index("SpanKind"), "SpanKind", named)
    table = table.set_column(0, "Timestamp", microseconds.cast(pa.timestamp("us")))
    nested = pa.array([{"art": {"rollout": {"id": "r"}, "ok": True}, "n": 3}] * len(ROWS))
    table = table.set_column(table.schema.get_field_index("SpanAttributes"), "SpanAttributes", nested)
    records, _ = read_bytes(tmp_path, parquet(table))
    assert numbers(records) == list(range(1, 8))
    assert records[0].start_ns == 1000 * 1000
    assert (records[0].kind, records[0].attributes) == ("client", {"art.rollout.id": "r", "art.ok": True, "n": 3})


def test_lists_are_restored_only_where_nothing_else_can_be_meant(tmp_path):
    texts = {
        "list": '{"values":[{"intValue":"1"},{"doubleValue":"NaN"},{"bytesValue":"AP8="},{"boolValue":false}]}',
        "deep": '{"values":[{"arrayValue":{"values":[{"stringValue":"a"}]}},{"arrayValue":{}},{"kvlistValue":{}}]}',
        "dict": '{"values":[{"key":"a","value":{"stringValue":"b"}}]}',
    }
    kept = {
        "text": '[{"role":"user"}]',
        "empty": '{"values":[]}',
        "other": '{"values":[{"text":"a"}]}',
        "bare": '{"values":["a"]}',
        "number": '{"values":[{"intValue":"one"}]}',
        "cut": '{"values":[{"intValue":"1"}',
        "deeper": '{"values":[{"arrayValue":' + '{"values":[{"arrayValue":' * 5000,
    }
    row = {**ROWS[0], "SpanAttributes": list({**texts, **kept}.items())}
    records, account = read_bytes(tmp_path, written([row]))
    assert records[0].attributes == {
        "list": [1, None, b"\x00\xff", False],
        "deep": [["a"], [], {}],
        "dict": {"a": "b"},
        **kept,
    }
    (damage,) = damages_of(records)
    assert (damage.reason, damage.partial, account.partly_damaged) == ("not a finite number", True, 1)


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
    assert (damage.reason, damage.kind, account.damaged) == (reason, "span", 1)
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


def test_numbers_that_are_not_finite(tmp_path):
    table = pa.table(
        {
            "context.trace_id": [TRACE] * 2,
            "context.span_id": [f"{1:016x}", f"{2:016x}"],
            "start_time": pa.array([1000, 1000], pa.timestamp("ns")),
            "attributes.count": [float("nan"), 2.0],
            "attributes.art": [{"reward": 1.0, "more": [1.0]}, {"reward": float("nan"), "more": [float("inf")]}],
        }
    )
    records, account = read_bytes(tmp_path, parquet(table))
    first, second = spans_of(records)
    assert first.attributes == {"art.reward": 1.0, "art.more": [1.0]}  # NaN of a column is how pandas says nothing
    assert second.attributes == {"count": 2.0, "art.reward": None, "art.more": [None]}
    assert (reasons_of(records), account.partly_damaged) == (["not a finite number"], 1)


def test_phoenix_rows_that_are_no_spans(tmp_path):
    table = {"context.trace_id": [TRACE], "context.span_id": [f"{1:016x}"], "start_time": ["noon"]}
    records, _ = read_bytes(tmp_path, parquet(pa.table(table)))
    assert reasons_of(records) == ["bad field"]
    table["name"] = [5]
    records, _ = read_bytes(tmp_path, parquet(pa.table(table)))
    assert reasons_of(records) == ["bad field"]
    assert damages_of(records)[0].span_id == f"{1:016x}"
    deep = {"a": 1}
    for _ in range(70):
        deep = {"a": deep}
    for name in ("art", "metadata"):
        found = {**table, "start_time": ["2026-11-20T15:05:23+00:00"], "name": ["x"], f"attributes.{name}": [deep]}
        records, _ = read_bytes(tmp_path, parquet(pa.table(found)))
        assert reasons_of(records) == ["nested too deep"]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_a_dataframe_as_json_has_times_in_any_unit(tmp_path, unit):
    """pandas' `to_json` writes milliseconds unless it is told otherwise."""
    moment = 1_763_651_123 * 10**9
    row = {"name": "x", "context.trace_id": TRACE, "context.span_id": f"{1:016x}"}
    row |= {"start_time": moment // unit, "end_time": (moment + 5 * 10**9) // unit}
    (span,), account = read_bytes(tmp_path, json.dumps(row).encode() + b"\n")
    assert account.format == "phoenix-dataframe"
    assert (span.start_ns, span.end_ns) == (moment, moment + 5 * 10**9)


def test_a_number_that_is_a_time_in_no_unit_is_set_aside(tmp_path):
    row = {"context.trace_id": TRACE, "context.span_id": f"{1:016x}", "name": "x", "start_time": 99 * 10**15}
    (damage,), _ = read_bytes(tmp_path, json.dumps(row).encode() + b"\n")
    assert (damage.reason, damage.detail) == (
        "bad field",
        "99000000000000000 is a time in no unit, from nanoseconds to seconds",
    )


def test_what_phoenix_parsed_is_json_text_again(tmp_path):
    table = {
        "context.trace_id": [TRACE] * 2,
        "context.span_id": [f"{1:016x}", f"{2:016x}"],
        "start_time": ["2026-11-20T15:05:23.000001Z"] * 2,
        "span_kind": ["LLM", "UNKNOWN"],
        "attributes.metadata": [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        "attributes.art": [{"metadata": {"level": 3}}, None],
    }
    records, _ = read_bytes(tmp_path, parquet(pa.table(table)))
    expected = {"metadata": '{"a":1}', "art.metadata.level": 3, "openinference.span.kind": "LLM"}
    assert [record.attributes for record in records] == [expected, {"metadata": '{"b":"x"}'}]


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
    assert (damage.reason, account.damaged) == ("torn", 1)
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

    (tmp_path / "x.parquet").write_bytes(lying(CUT, change))
    (source,) = find_inputs([tmp_path / "x.parquet"])
    account = FileAccount()
    with contextlib.suppress(SourceError):
        records = list(read_file(source, account))
        assert len(records) == account.spans + account.damaged + account.partly_damaged
    assert account.error is None or account.error.startswith(source.name)


@laws
@given(data=st.data())
def test_any_bytes_in_the_reader_itself(data):
    content = bytearray(CUT)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(4, len(content) - 600))
        content[at] = data.draw(st.integers(0, 255))
    for found in read_lines(io.BytesIO(content)):
        assert isinstance(found, bytes) or found[0] in ("torn", "over a limit", "unreadable")


def test_the_program_itself():
    output, problems = io.BytesIO(), io.StringIO()
    write_lines(io.BytesIO(CUT), output, problems)
    assert [json.loads(line)["SpanName"] for line in output.getvalue().splitlines()] == [one["name"] for one in SPANS]
    write_lines(io.BytesIO(b"PAR1 no"), output, problems)
    reason, place, detail = problems.getvalue().split("\t")
    assert (reason, place) == ("unreadable", "")
    assert detail.endswith("\n")


def test_values_of_every_type_become_json():
    columns = {
        "text": pa.array([b"\xff"], pa.binary()),
        "large": pa.array(["é"], pa.large_string()),
        "fixed": pa.array([b"abcd"], pa.binary(4)),
        "map": pa.array([[("k", b"\xff")]], pa.map_(pa.string(), pa.binary())),
        "struct": pa.array(
            [{"at": 5, "in": [b"\xfe"]}], pa.struct({"at": pa.timestamp("s"), "in": pa.list_(pa.binary())})
        ),
        "null": pa.array([None], pa.int64()),
        "named": pa.array(["a"]).dictionary_encode(),
        "decimal": pa.array(["1.5"]).cast(pa.decimal128(3, 1)),
        "date": pa.array([1], pa.date32()),
    }
    lied = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xfd"]).buffers())
    for extra in ({}, {"lied": lied}):
        (line,) = json_rows(pa.record_batch({**columns, **extra}))
        found = json.loads(line.decode(errors="surrogateescape"))
        assert found["text"] == "\udcff"
        assert found["map"] == [["k", "\udcff"]]
        assert (found["large"], found["fixed"], found["named"]) == ("é", "abcd", "a")
        assert found["struct"] == {"at": 5 * 10**9, "in": ["\udcfe"]}
        assert (found["decimal"], found["date"]) == ("1.5", "1970-01-02")
        assert "null" not in found


def test_limits_of_decompressed_bytes_hold_for_rows_too(tmp_path):
    records, _ = read_bytes(tmp_path, CLICKHOUSE.read_bytes(), limits=Limits(max_decompressed_bytes=300_000))
    assert 50 < len(spans_of(records)) < 600
    assert reasons_of(records)[-1] == "over a limit"


def test_a_footer_that_needs_more_memory_than_there_is_is_over_a_limit(tmp_path):
    wide = parquet(pa.table({f"column_of_a_wide_table_{number}": ["a"] for number in range(20_000)}))
    for mebibytes in (1, 84, 92, 100, 120):  # at one of them it is thrift's reader that gets no memory
        records, _ = read_bytes(tmp_path, wide, limits=Limits(max_parquet_memory=mebibytes << 20))
        assert reasons_of(records) == ["over a limit"]
