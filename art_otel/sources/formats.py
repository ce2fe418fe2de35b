"""FORMATS: every dump format this version reads. A new one is a module and its name here.

Invariant: detection looks at content and takes the first format that knows it, so the narrower one stands first. A
format's module is loaded when it is its turn.
"""

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Final, overload

from art_otel.errors import UsageError
from art_otel.sources.format import Format

_MODULES: Final = (
    "otlp.json_format",
    "otlp.protobuf_format",
    "backends.jaeger",
    "backends.zipkin",
    "backends.phoenix_rest",
    "backends.mlflow",
    "backends.clickhouse",
    "backends.phoenix_dataframe",
    "backends.console",
)


class _Formats(Sequence[Format]):
    """The formats of modules that are loaded one after the other."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules

    def __len__(self) -> int:
        return len(self._modules)

    @overload
    def __getitem__(self, index: int) -> Format: ...
    @overload
    def __getitem__(self, index: slice) -> "_Formats": ...
    def __getitem__(self, index: int | slice) -> "Format | _Formats":
        if isinstance(index, slice):
            return _Formats(self._modules[index])
        return import_module(f"art_otel.sources.{self._modules[index]}").FORMAT


FORMATS: Final[Sequence[Format]] = _Formats(_MODULES)


def detect_format(head: bytes) -> Format | None:
    """The format whose content begins like this; None when nobody knows it."""
    return next((known for known in FORMATS if known.detects(head)), None)


def detect_table(columns: Collection[str]) -> Format | None:
    """The format of a Parquet table with these columns; None when nobody knows it."""
    return next((known for known in FORMATS if known.table and known.table.ids.issubset(columns)), None)


def format_named(name: str) -> Format:
    """The format of this name. Raises UsageError, which lists all names, when there is none."""
    found = next((known for known in FORMATS if known.name == name), None)
    if found is None:
        raise UsageError(f"no format {name!r}; there are {', '.join(known.name for known in FORMATS)}")
    return found
