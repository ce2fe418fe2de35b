"""WRITERS: functions that write OTLP requests in another format, by a name; the first word is the Format's.

Each takes requests in OTLP JSON (dicts) and gives the bytes of one file.
"""

from tests.sources.writers import (
    clickhouse,
    console,
    jaeger,
    mlflow,
    otlp_envelopes,
    phoenix,
    phoenix_dataframe,
    zipkin,
)

WRITERS = {
    "otlp-json of Tempo's v1 API": otlp_envelopes.write_tempo_v1,
    "otlp-json of Tempo's v2 API": otlp_envelopes.write_tempo_v2,
    "otlp-json of Jaeger's v3 API": otlp_envelopes.write_jaeger_v3,
    "jaeger-json": jaeger.write,
    "zipkin-json of a collector": zipkin.write_from_collector,
    "zipkin-json of an SDK": zipkin.write_from_sdk,
    "console": console.write,
    "console in lines": console.write_lines,
    "phoenix-json": phoenix.write,
    "mlflow-json": mlflow.write,
    "mlflow-json in lines": mlflow.write_hex,
    "clickhouse in lines": clickhouse.write_lines,
    "clickhouse in nested lines": clickhouse.write_nested_lines,
}

PARQUET_WRITERS = {
    "clickhouse": clickhouse.write,
    "clickhouse with lists in OTLP's JSON": clickhouse.write_otlp_lists,
    "clickhouse with maps as lists": clickhouse.write_entries,
    "clickhouse with nested columns": clickhouse.write_nested,
    "phoenix-dataframe": phoenix_dataframe.write,
}
"""Formats see the rows of these, and not their bytes."""

EVERY_WRITER = {**WRITERS, **PARQUET_WRITERS}
