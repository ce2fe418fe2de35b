"""Formats: every dump format this version reads. A new one is a module and its line here.

Invariant: detection looks at content and takes the first format that knows it, so the narrower one stands first. A
module is loaded when its turn comes: most dumps are of the first, and loading all of them costs as much as they do.
"""

from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Final

from art_otel.errors import UsageError
from art_otel.sources.format import Format

_MODULES: Final = (
    "otlp.json_format",
    "otlp.protobuf_format",
    "backends.jaeger",
    "backends.zipkin",
    "backends.phoenix_rest",
    "backends.mlflow",
    "backends.langsmith",
    "backends.langfuse",
    "backends.clickhouse",
    "backends.phoenix_dataframe",
    "agents.claude_code",
    "agents.codex",
    "agents.inspect_eval",
    "agents.verifiers",
    "agents.atif",
    "agents.mini_swe_agent",
    "agents.opencode",
    "agents.swe_agent",
    "backends.reward_rows",
    "backends.console",
)
"""The modules in `art_otel.sources`, each with its `FORMAT`."""


def all_formats() -> Iterator[Format]:
    """Give every format in the order of detection, each loaded only when it is reached."""
    for module in _MODULES:
        yield import_module(f"art_otel.sources.{module}").FORMAT


def detect_format(head: bytes) -> Format | None:
    """Find the format whose content begins like this; None when nobody knows it."""
    return next((one for one in all_formats() if one.detects(head)), None)


def detect_table(columns: Collection[str]) -> Format | None:
    """Find the format of a Parquet table with these columns; None when nobody knows it."""
    return next((one for one in all_formats() if one.table and one.table.ids.issubset(columns)), None)


def format_named(name: str) -> Format:
    """Find a format by its name. Raises UsageError, which lists all names, when there is none."""
    chosen = next((one for one in all_formats() if one.name == name), None)
    if chosen is None:
        raise UsageError(f"no format {name!r}; there are {', '.join(one.name for one in all_formats())}")
    return chosen
