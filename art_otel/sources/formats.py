"""FORMATS: every dump format this version reads. A new one is a module and a line here.

Invariant: detection looks at content and takes the first format that knows it, so the narrower one stands first.
"""

from typing import Final

from art_otel.errors import UsageError
from art_otel.sources import (
    clickhouse,
    console,
    jaeger,
    mlflow,
    otlp_json,
    otlp_protobuf,
    phoenix_dataframe,
    phoenix_rest,
    zipkin,
)
from art_otel.sources.format import Format

FORMATS: Final[tuple[Format, ...]] = (
    otlp_json.FORMAT,
    otlp_protobuf.FORMAT,
    jaeger.FORMAT,
    zipkin.FORMAT,
    phoenix_rest.FORMAT,
    mlflow.FORMAT,
    clickhouse.FORMAT,
    phoenix_dataframe.FORMAT,
    console.FORMAT,
)


def detect_format(head: bytes) -> Format | None:
    """The format whose content begins like this; None when nobody knows it."""
    return next((known for known in FORMATS if known.detects(head)), None)


def format_named(name: str) -> Format:
    """The format of this name. Raises UsageError, which lists all names, when there is none."""
    found = next((known for known in FORMATS if known.name == name), None)
    if found is None:
        raise UsageError(f"no format {name!r}; there are {', '.join(known.name for known in FORMATS)}")
    return found
