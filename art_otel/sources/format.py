"""Format: a dump format, recognized by its content and read as a stream of records, and the registry of all formats.

Invariant: a format never raises for what stands in a dump. Each piece becomes a Span, a LogRecord or a Quarantined, and
`FileStats` counts it, so that nothing is lost silently. Detection takes the first format that knows the content, so the
narrower one stands first. A new format is a module and its line in `_MODULES`; it is loaded when its turn comes, as
most dumps are of the first, and loading all of them costs as much as they do.
"""

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import import_module
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.errors import UsageError
from art_otel.scrubbing import Scrubbing
from art_otel.sources.refusals import Limits, Refused
from art_otel.spans import LogRecord, Quarantined, Span, Value

UNKNOWN_FORMAT: Final = "no known format"


class FileStats(msgspec.Struct, kw_only=True):
    """Filled while a file is read; final when the iterator of `read_file` ends.

    `bytes` counts what was read from the file (compressed). `quarantined` counts records and rubbish set aside whole,
    `partly_quarantined` the partial Quarantined of records that were kept. `logs_without_span` counts log records that
    belong to no span, `other_signals` requests with metrics or profiles; neither is quarantined.
    `altered` counts lines that were read although their checksum does not match, `replaced` the characters U+FFFD that
    stand for what no text can hold: halves of emoji (surrogate pairs), and bytes that are no UTF-8.
    `without_time` counts rewards that do not say when they were given. `lacks` says what the format cannot carry.
    `note` says why a file gave nothing, `error` why it could not be read.
    """

    path: str = ""
    format: str | None = None
    compression: str | None = None
    bytes: int = 0
    spans: int = 0
    log_records: int = 0
    quarantined: int = 0
    partly_quarantined: int = 0
    logs_without_span: int = 0
    other_signals: int = 0
    altered: int = 0
    replaced: int = 0
    without_time: int = 0
    lacks: tuple[str, ...] = ()
    note: str | None = None
    error: str | None = None

    def add(self, other: "FileStats") -> None:
        """Add what another process read of the same file."""
        for name in self.__struct_fields__:
            count = getattr(other, name)
            if isinstance(count, int):
                setattr(self, name, getattr(self, name) + count)
        self.error = self.error or other.error


Record: TypeAlias = Span | LogRecord | Quarantined


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One input being read: `path` names it in every Quarantined, `scrub` is for secrets in logs of agents."""

    path: str
    limits: Limits
    stats: FileStats
    scrub: Scrubbing = "on"


class Row(NamedTuple):
    """A row of a table: its number, from 1, its values by column, and why others of them cannot be read."""

    number: int
    values: dict[str, Value]
    problem: Refused | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """How a format is read from Parquet.

    A table that has the columns `ids` is one of the format. Of it only they, `others` and those that begin with
    `prefix` are read, so that no column that somebody added costs a row.
    """

    ids: frozenset[str]
    others: frozenset[str]
    prefix: str | None = None
    reads: Callable[[Iterable[Row], Reading], Iterator[Record]]

    def columns(self, names: Iterable[str]) -> list[str]:
        """Return the names of the columns that are read."""
        read_names = self.ids | self.others
        return [
            name for name in names if name in read_names or (self.prefix is not None and name.startswith(self.prefix))
        ]


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the registry.

    `lacks` says in a few words each what the format cannot carry (types, resource attributes …), for the report.
    `detects` sees the first bytes of the decompressed content (up to 1 MiB, fewer only when there are no more).
    `cuts` matches, from a line feed on, the end of any line behind which a dump can be cut into parts that are read
    apart; None: nowhere.
    `reads` gets the decompressed stream from its beginning; its first `peek` shows the bytes that `detects` saw.
    `table` reads the rows of a Parquet file; None: the format does not come as one.
    """

    name: str
    detects: Callable[[bytes], bool]
    reads: Callable[[io.BufferedReader, Reading], Iterator[Record]]
    lacks: tuple[str, ...] = ()
    cuts: re.Pattern[bytes] | None = None
    table: Table | None = None


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
    "agents.gemini_cli",
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
