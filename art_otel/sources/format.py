"""Format: one dump format, recognized by its content and read as a stream of records.

Invariant: a format never raises for what stands in a dump. Each piece becomes a Span, a LogRecord or a Quarantined.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from art_otel.scrubbing import Scrubbing
from art_otel.sources.file_stats import FileStats
from art_otel.sources.limits import Limits
from art_otel.sources.refusals import Refused
from art_otel.spans import LogRecord, Quarantined, Span, Value

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
