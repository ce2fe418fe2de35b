"""ClickHouse rows of `otel_traces`: as JSONEachRow, and as Parquet with the columns of the export in tests/exports."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.sources.writers.parquet import EXPORTS
from tests.sources.writers.requests import plain, spans_of, text_of

SCHEMA = pq.read_schema(EXPORTS / "clickhouse_otel_traces.parquet")


def write_lines(requests: list[dict]) -> bytes:
    """`FORMAT JSONEachRow`."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows(requests, time=_text_time, attributes=_plain))


def write(requests: list[dict]) -> bytes:
    """`FORMAT Parquet`; lists as an exporter writes them that calls `AsString`."""
    return _parquet(rows(requests, time=int, attributes=_pairs))


def write_otlp_lists(requests: list[dict]) -> bytes:
    """As the export in tests/exports/ has them: lists in OTLP's JSON."""
    return _parquet(rows(requests, time=int, attributes=_otlp_pairs))


def write_entries(requests: list[dict]) -> bytes:
    """As tools without maps write that Parquet anew (polars): each map is a list of entries."""
    fields = [column.with_type(_without_maps(column.type)) for column in SCHEMA]
    return _parquet(rows(requests, time=int, attributes=_entries), pa.schema(fields))


def _without_maps(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_without_maps(kind.value_type))
    return pa.list_(pa.struct([kind.key_field, kind.item_field])) if pa.types.is_map(kind) else kind


def write_nested(requests: list[dict]) -> bytes:
    """`FORMAT Parquet` from a table made with `flatten_nested = 0`."""
    found = [_nested(row) for row in rows(requests, time=int, attributes=_pairs)]
    return _parquet(found, pa.schema(_nested_fields()))


def write_nested_lines(requests: list[dict]) -> bytes:
    """`FORMAT JSONEachRow` from a table made with `flatten_nested = 0`."""
    found = rows(requests, time=_text_time, attributes=_plain)
    return b"".join(json.dumps(_nested(row)).encode() + b"\n" for row in found)


def _nested(row: dict) -> dict:
    """Each group of parallel lists as one list of objects."""
    flat = {name: value for name, value in row.items() if "." not in name}
    for group in ("Events", "Links"):
        columns = {name.removeprefix(f"{group}."): row[name] for name in row if name.startswith(f"{group}.")}
        flat[group] = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return flat


def _nested_fields() -> list[pa.Field]:
    plain_ones = [column for column in SCHEMA if "." not in column.name]
    return plain_ones + [
        pa.field(group, pa.list_(pa.struct([_item(column, group) for column in SCHEMA if _in(column, group)])))
        for group in ("Events", "Links")
    ]


def _in(column: pa.Field, group: str) -> bool:
    return column.name.startswith(f"{group}.")


def _item(column: pa.Field, group: str) -> pa.Field:
    return pa.field(column.name.removeprefix(f"{group}."), column.type.value_type)


def _parquet(found: list[dict], schema=SCHEMA) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(found, schema=schema), file, row_group_size=3)
    return file.getvalue()


def rows(requests: list[dict], *, time, attributes) -> list[dict]:
    """A row a span, in the columns' order."""
    return [_row(written, time, attributes) for written in spans_of(requests)]


def _row(written, time, attributes) -> dict:
    span = written.span
    events, links = span.get("events", ()), span.get("links", ())
    given = {pair["key"]: pair["value"] for pair in span.get("attributes", ())}
    return {
        "Timestamp": time(span["startTimeUnixNano"]),
        "TraceId": span["traceId"],
        "SpanId": span["spanId"],
        "ParentSpanId": span.get("parentSpanId", ""),
        "TraceState": "",
        "SpanName": span["name"],
        "SpanKind": written.kind.capitalize(),
        "ServiceName": written.resource.get("service.name", ""),
        "ResourceAttributes": attributes({name: {"stringValue": text_of(v)} for name, v in written.resource.items()}),
        "ScopeName": written.scope.get("name", ""),
        "ScopeVersion": written.scope.get("version", ""),
        "SpanAttributes": attributes(given),
        "Duration": written.end - written.start,
        "StatusCode": written.status.capitalize(),
        "StatusMessage": written.message,
        "Events.Timestamp": [time(event["timeUnixNano"]) for event in events],
        "Events.Name": [event["name"] for event in events],
        "Events.Attributes": [attributes(_given(event)) for event in events],
        "Links.TraceId": [link["traceId"] for link in links],
        "Links.SpanId": [link["spanId"] for link in links],
        "Links.TraceState": ["" for _ in links],
        "Links.Attributes": [attributes(_given(link)) for link in links],
    }


def _given(owner) -> dict:
    return {pair["key"]: pair["value"] for pair in owner.get("attributes", ())}


def _plain(values: dict) -> dict:
    return {name: text_of(value) for name, value in plain({"key": k, "value": v} for k, v in values.items()).items()}


def _pairs(values: dict) -> list:
    return list(_plain(values).items())


def _entries(values: dict) -> list:
    return [{"key": key, "value": value} for key, value in _pairs(values)]


def _otlp_pairs(values: dict) -> list:
    texts = _plain(values)
    lists = {name: json.dumps(value["arrayValue"]) for name, value in values.items() if "arrayValue" in value}
    return list({**texts, **{name: text.replace('": ', '":') for name, text in lists.items()}}.items())


def _text_time(nanoseconds) -> str:
    seconds, fraction = divmod(int(nanoseconds), 10**9)
    moment = pa.scalar(seconds, pa.timestamp("s")).as_py()
    return f"{moment:%Y-%m-%d %H:%M:%S}.{fraction:09d}"
