"""Parquet: real exports give what they hold, whatever the types of their columns."""

import json

import pyarrow as pa
import pytest

from art_otel.errors import SourceError
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.sources.files.parquet import plain_values
from tests.conversions import convert_files
from tests.examples import daily
from tests.sources.requests import (
    TRACE,
    damages_of,
    numbers,
    read_bytes,
    reasons_of,
    span,
    spans_of,
    standard_input,
    traces,
)
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


@pytest.mark.parametrize(
    ("export", "calls", "rollouts"), daily([(CLICKHOUSE, 400, 200), (PHOENIX, 840, 420)], one_in=2)
)
def test_a_real_export_converts(export, calls, rollouts, tmp_path):
    trajectories, report = convert_files(tmp_path / "out", export)
    assert (report.calls.total, report.calls.completed, len(trajectories)) == (calls, calls, rollouts)
    assert all(found.reward == float(found.rollout_id.removeprefix("r")) + 0.5 for found in trajectories)
    assert all(turn.message.content.startswith("ok") for found in trajectories for turn in found.turns)
    assert not report.quarantine


def test_parquet_from_standard_input():
    (source,) = find_inputs(["-"])
    account = FileStats()
    with standard_input(CLICKHOUSE.read_bytes()):
        assert len(list(read_file(source, account))) == 600
    assert account.bytes == CLICKHOUSE.stat().st_size


def test_a_table_of_something_else(tmp_path):
    (tmp_path / "other.parquet").write_bytes(parquet(pa.table({"a": ["x" * 100] * 50_000})))
    (tmp_path / "none.parquet").write_bytes(parquet(pa.table({"a": pa.array([], pa.string())})))
    empty, other = FileStats(), FileStats()
    first, second = find_inputs([tmp_path])
    assert list(read_file(first, empty)) == list(read_file(second, other)) == []
    assert (empty.note, other.note, other.compression) == ("no known format", "no known format", "parquet")


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
    assert (damage.reason, damage.partial, account.partly_quarantined) == ("not a finite number", True, 1)


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
    assert (reasons_of(records), account.partly_quarantined) == (["not a finite number"], 1)


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
        "99000000000000000 is not a time in any unit from nanoseconds to seconds",
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


VALUES = {
    "time": (pa.array([5, None], pa.timestamp("s")), 5 * 10**9),
    "time in another zone": (pa.array([5, None], pa.timestamp("us", "Europe/Berlin")), 5000),
    "duration": (pa.array([7, None], pa.duration("us")), 7000),
    "time of day": (pa.array([1, None], pa.time32("s")), 10**9),
    "date": (pa.array([1, None], pa.date32()), "1970-01-02"),
    "decimal": (pa.array(["1.5", None]).cast(pa.decimal128(3, 1)), "1.5"),
    "bytes": (pa.array([b"abc", None]), "abc"),
    "large text": (pa.array(["é", None], pa.large_string()), "é"),
    "view": (pa.array([b"abc", None], pa.binary_view()), "abc"),
    "name": (pa.array(["a", None]).dictionary_encode(), "a"),
    "number of pandas": (pa.array([1.5, float("nan")]), 1.5),
    "lists": (pa.array([[[1]], None], pa.large_list(pa.list_(pa.timestamp("ns")))), [[1]]),
    "pair": (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), [1.0, 2.0]),
    "map": (pa.array([[("k", b"v")], None], pa.map_(pa.string(), pa.binary())), [("k", "v")]),
    "struct": (
        pa.array([{"at": 5, "in": [b"x"]}, None], pa.struct({"at": pa.timestamp("s"), "in": pa.list_(pa.binary())})),
        {"at": 5 * 10**9, "in": ["x"]},
    ),
    "json": (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])), "{}"),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_are_plain(name):
    column, expected = VALUES[name]
    assert plain_values(column) == [expected, None]


def test_columns_that_somebody_added_cost_no_row(tmp_path):
    table = {"context.trace_id": [TRACE] * 2, "context.span_id": [f"{1:016x}", f"{2:016x}"], "name": ["x"] * 2}
    table |= {"start_time": pa.array([1000] * 2, pa.timestamp("ns")), "latency": pa.array([1, 2], pa.duration("ns"))}
    digests = pa.array([b"\xff\xfe"] * 2)
    lied = pa.Array.from_buffers(pa.string(), 2, digests.buffers())
    attribute = {"attributes.latency": table["latency"]}
    records, _ = read_bytes(tmp_path, parquet(pa.table({**table, **attribute, "digest": digests, "text": lied})))
    assert [record.attributes for record in records] == [{"latency": 1}, {"latency": 2}]
    records, _ = read_bytes(tmp_path, parquet(pa.table({**table, "name": digests})))
    assert reasons_of(records) == ["invalid UTF-8"] * 2


def test_our_own_parquet_says_what_reads_it(tmp_path):
    """Also where nobody looked at its footer before, as in a store."""
    table = pa.Table.from_pylist(ROWS, schema=clickhouse.SCHEMA).replace_schema_metadata({"art_otel.schema": "1"})
    with pytest.raises(SourceError, match="is already an art-otel dataset"):
        read_bytes(tmp_path, parquet(table))
