"""FORMATS: every dump format this version reads. A new one is a module and its line here.

Invariant: detection looks at content and takes the first format that knows it, so the narrower one stands first.
"""

from collections.abc import Collection
from typing import Final

from art_otel.errors import UsageError
from art_otel.sources.agents import atif, claude_code, codex, inspect_eval, mini_swe_agent, verifiers
from art_otel.sources.backends import (
    clickhouse,
    console,
    jaeger,
    mlflow,
    phoenix_dataframe,
    phoenix_rest,
    reward_rows,
    zipkin,
)
from art_otel.sources.format import Format
from art_otel.sources.otlp import json_format, protobuf_format

FORMATS: Final[tuple[Format, ...]] = (
    json_format.FORMAT,
    protobuf_format.FORMAT,
    jaeger.FORMAT,
    zipkin.FORMAT,
    phoenix_rest.FORMAT,
    mlflow.FORMAT,
    clickhouse.FORMAT,
    phoenix_dataframe.FORMAT,
    claude_code.FORMAT,
    codex.FORMAT,
    inspect_eval.FORMAT,
    verifiers.FORMAT,
    atif.FORMAT,
    mini_swe_agent.FORMAT,
    reward_rows.FORMAT,
    console.FORMAT,
)


def detect_format(head: bytes) -> Format | None:
    """Find the format whose content begins like this; None when nobody knows it."""
    return next((one for one in FORMATS if one.detects(head)), None)


def detect_table(columns: Collection[str]) -> Format | None:
    """Find the format of a Parquet table with these columns; None when nobody knows it."""
    return next((one for one in FORMATS if one.table and one.table.ids.issubset(columns)), None)


def format_named(name: str) -> Format:
    """Find a format by its name. Raises UsageError, which lists all names, when there is none."""
    formats = {one.name: one for one in FORMATS}
    if name not in formats:
        raise UsageError(f"no format {name!r}; there are {', '.join(formats)}")
    return formats[name]
