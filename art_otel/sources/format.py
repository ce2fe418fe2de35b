"""Format: one dump format, recognised by its content and read as a stream of records.

Invariant: a format never raises for what stands in a dump. Each piece becomes a Span, a LogRecord or a Quarantined.
"""

import io
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from art_otel.sources.account import FileAccount
from art_otel.sources.limits import Limits
from art_otel.spans import LogRecord, Quarantined, Span

Record: TypeAlias = Span | LogRecord | Quarantined


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One input being read: `path` names it in every Quarantined."""

    path: str
    limits: Limits
    account: FileAccount


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the registry.

    `lacks` says in a few words each what the format cannot carry (types, resource attributes …), for the report.
    `detects` sees the first bytes of the decompressed content (up to 1 MiB, fewer only when there are no more).
    `cuts` matches the end of any line behind which a dump can be cut into parts that are read apart; None: nowhere.
    `reads` gets the decompressed stream from its beginning; its first `peek` shows the bytes that `detects` saw.
    """

    name: str
    detects: Callable[[bytes], bool]
    reads: Callable[[io.BufferedReader, Reading], Iterator[Record]]
    lacks: tuple[str, ...] = ()
    cuts: re.Pattern[bytes] | None = None
