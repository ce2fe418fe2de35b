"""Format: what a dump format is (recognized by content, read as a stream of records), and the registry of all formats.

Invariant: a format raises for no content of a dump. Each piece becomes a Span, a LogRecord or a Quarantined, and is
counted in `FileStats`, so that nothing is lost silently. The path of a Quarantined has the file, the line or message
and, if known, the trace, the span and the field; a limit's detail names the option that raises the limit:

    traces.jsonl:17 / trace 4bf9… / span 00f0… / attributes["art.reward"]

The first format that recognizes the content is used, so a narrow format must come before a wide one. How to add a
format: a module with a `FORMAT`, and its line in `_MODULES`. Modules are loaded one by one during detection, because
loading takes time and most dumps have the first format.
"""

import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib import import_module
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from art_otel.errors import UsageError
from art_otel.scrubbing import SecretRules
from art_otel.spans import LogRecord, Quarantined, QuarantineReason, Span, Value
from art_otel.spans.span import MAX_DETAIL, Kind

LimitName: TypeAlias = Literal[
    "max_message_bytes",
    "max_decompressed_bytes",
    "max_rollout_spans",
    "max_rollout_bytes",
]

MAX_LIMIT: Final = 1 << 60
"""The largest limit: larger numbers overflow counters of bytes in C."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of reading. Sizes are in bytes after decompression. Raises UsageError for a limit out of range."""

    max_message_bytes: Annotated[int, Meta(description="one line, JSON document or protobuf message")] = 256 << 20
    max_decompressed_bytes: Annotated[int, Meta(description="what one file decompresses to")] = 1 << 40
    max_rollout_spans: Annotated[int, Meta(description="spans of one rollout or trace")] = 250_000
    max_rollout_bytes: Annotated[int, Meta(description="all spans of one rollout or trace")] = 512 << 20

    def __post_init__(self) -> None:
        """Check every limit."""
        for name in self.__struct_fields__:
            limit: int = getattr(self, name)
            if not 1 <= limit <= MAX_LIMIT:
                raise UsageError(f"{option_of(name)} {limit}: must be from 1 to {MAX_LIMIT:,}")


def option_of(name: str) -> str:
    """The command line's option that sets a limit: `--max-message-bytes`."""
    return f"--{name.replace('_', '-')}"


def advice(name: LimitName) -> str:
    """Advice on how to read content that is over a limit."""
    return f"raise {option_of(name)} (Limits.{name}) to read this"


MessageT = TypeVar("MessageT")

MAX_NAME: Final = 200

_FAULT: Final = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
"""The path of the bad field at the end of msgspec's error message."""

Ids: TypeAlias = tuple[str | None, str | None]
"""(trace_id, span_id); None for an unknown one."""

NO_IDS: Final[Ids] = (None, None)

Site: TypeAlias = tuple[str, str | None]
"""The place of a value: its owner's path (empty, or `events[0].`) and its name; `("body", None)` for a log's body."""


class Refused(Exception):  # noqa: N818 # it becomes a Quarantined and is no error of the program
    """A message cannot become a record. `where` is the path of the problem inside of the message."""

    def __init__(self, reason: QuarantineReason, where: str = "", detail: str = "") -> None:
        super().__init__(reason, where, detail)
        self.reason: QuarantineReason = reason
        self.where = where
        self.detail = detail

    def quarantine(
        self, location: str, kind: Kind = "unknown", ids: Ids = NO_IDS, *, partial: bool = False
    ) -> Quarantined:
        """Make the Quarantined of the record, or of a part of it (`partial`), at `location` (`file:line`)."""
        trace_id, span_id = ids
        steps = (location, trace_id and f"trace {trace_id}", span_id and f"span {span_id}", self.where)
        return Quarantined(
            reason=self.reason,
            path=" / ".join(step for step in steps if step),
            detail=self.detail,
            kind=kind,
            trace_id=trace_id,
            span_id=span_id,
            partial=partial,
        )


class DroppedFields(dict[QuarantineReason, dict[str, None]]):
    """The fields that a kept record loses: by reason, the paths of as many fields as one detail can name."""

    def note(self, where: str, reason: QuarantineReason) -> None:
        """Note that the field at `where` is lost."""
        places = self.setdefault(reason, {})
        if len(places) < MAX_DETAIL:  # a record may lose millions of fields
            places[where] = None

    def quarantine(self, location: str, kind: Kind = "unknown", ids: Ids = NO_IDS) -> Iterator[Quarantined]:
        """Make a partial Quarantined for each reason: its path has the first field, its detail the others."""
        for reason, (first, *others) in self.items():
            detail = f"also: {', '.join(others)}" if others else ""
            yield Refused(reason, first, detail).quarantine(location, kind, ids, partial=True)


def attribute_path(site: Site) -> str:
    """The path of an attribute, with its owner: `events[0].attributes["art.reward"]`."""
    owner, name = site
    return owner if name is None else f"{owner}attributes[{json.dumps(name[:MAX_NAME])}]"


def converted(value: object, message: type[MessageT], *, strict: bool = False) -> MessageT:
    """Convert a decoded JSON value into a message. Raises Refused."""
    try:
        return msgspec.convert(value, message, strict=strict)
    except msgspec.ValidationError as error:
        path = _FAULT.search(str(error))
        fields = ", ".join(getattr(message, "__struct_fields__", ()))
        there = f"; the fields are {fields}" if "unknown field" in str(error) else ""
        raise Refused("bad field", path[1] if path else "", f"{error}{there}") from None
    except RecursionError:
        raise Refused("nested too deep", detail="nested deeper than any reader supports") from None


def too_long(location: str) -> Quarantined:
    """Make the Quarantined of a message over the limit."""
    detail = f"the message is longer than the limit; {advice('max_message_bytes')}"
    return Refused("over a limit", detail=detail).quarantine(location)


UNKNOWN_FORMAT: Final = "no known format"


class FileStats(msgspec.Struct, kw_only=True):
    """Counts of one file. They grow while the file is read, and are final when the iterator of `read_file` ends.

    - `bytes`: compressed bytes that were read from the file.
    - `quarantined`: records and rubbish that were lost whole; `partly_quarantined`: losses of kept records.
    - `logs_without_span`: log records without a span; `other_signals`: requests with metrics or profiles. Neither is
      quarantined.
    - `replaced`: characters U+FFFD in place of halves of emoji (surrogates) and of bytes that are no UTF-8.
    - `unread_content`: references to content that was not read; `unread_example` has one of them with the reason.
    - `without_time`: rewards without a time. `not_in_format`: what the format cannot contain.
    - `note`: why a file gave nothing; `error`: why it could not be read.
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
    replaced: int = 0
    without_time: int = 0
    unread_content: int = 0
    unread_example: str | None = None
    not_in_format: tuple[str, ...] = ()
    note: str | None = None
    error: str | None = None

    def add(self, other: "FileStats") -> None:
        """Add the counts of another process for another part of the same file."""
        for name in self.__struct_fields__:
            count = getattr(other, name)
            if isinstance(count, int):
                setattr(self, name, getattr(self, name) + count)
        self.error = self.error or other.error
        self.unread_example = self.unread_example or other.unread_example


Record: TypeAlias = Span | LogRecord | Quarantined


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One input while it is read. `path` is its name in every Quarantined; `secrets` are rules for agents' logs."""

    path: str
    limits: Limits
    stats: FileStats
    secrets: SecretRules = SecretRules()


class TableRow(NamedTuple):
    """A row of a table: its number (from 1), its values by column, and why other values of it cannot be read."""

    number: int
    values: dict[str, Value]
    problem: Refused | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """How a format is read from Parquet.

    A table with the columns `ids` has this format. Only these columns, `others` and those that begin with `prefix` are
    read, so that unknown columns cannot make rows unreadable.
    """

    ids: frozenset[str]
    others: frozenset[str]
    prefix: str | None = None
    reads: Callable[[Iterable[TableRow], Reading], Iterator[Record]]

    def columns(self, names: Iterable[str]) -> list[str]:
        """Return the names of the columns that are read."""
        read_names = self.ids | self.others
        return [
            name for name in names if name in read_names or (self.prefix is not None and name.startswith(self.prefix))
        ]


class SourceFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the registry.

    - `detects` gets the first bytes of the decompressed content (1 MiB, or all of a smaller file).
    - `reads` gets the decompressed stream from its beginning; its first `peek` has the bytes that `detects` got.
    - `cuts` matches, from a line feed on, at a line after which a dump can be cut into parts that are read in parallel;
      None: nowhere.
    - `table` reads the rows of a Parquet file; None: the format is never Parquet.
    - `not_in_format` names for the report what the format cannot contain (types, resource attributes …).
    """

    name: str
    detects: Callable[[bytes], bool]
    reads: Callable[[io.BufferedReader, Reading], Iterator[Record]]
    not_in_format: tuple[str, ...] = ()
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
    "agents.agent_lightning",
    "agents.atif",
    "agents.mini_swe_agent",
    "agents.opencode",
    "agents.swe_agent",
    "backends.reward_rows",
    "backends.console",
    "backends.uploaded_content",
)
"""The modules in `art_otel.sources`, each with its `FORMAT`."""


def all_formats() -> Iterator[SourceFormat]:
    """Give every format in the order of detection, each loaded only when it is reached."""
    for module in _MODULES:
        yield import_module(f"art_otel.sources.{module}").FORMAT


def detect_format(head: bytes) -> SourceFormat | None:
    """Find the format whose content begins with these bytes; None if there is none."""
    return next((one for one in all_formats() if one.detects(head)), None)


def detect_table(columns: Collection[str]) -> SourceFormat | None:
    """Find the format of a Parquet table with these columns; None if there is none."""
    return next((one for one in all_formats() if one.table and one.table.ids.issubset(columns)), None)


def format_named(name: str) -> SourceFormat:
    """Find a format by its name. Raises UsageError with all names if there is no such format."""
    chosen = next((one for one in all_formats() if one.name == name), None)
    if chosen is None:
        raise UsageError(f"no format {name!r}; there are {', '.join(one.name for one in all_formats())}")
    return chosen
