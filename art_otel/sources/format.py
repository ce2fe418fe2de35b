"""Format: a dump format, recognized by its content and read as a stream of records; the registry; what is set aside.

Invariant: a format never raises for what stands in a dump. Each piece becomes a Span, a LogRecord or a Quarantined, and
`FileStats` counts it, so that nothing is lost silently. Every Quarantined made here names the file, the line or message
and, as far as they are known, the trace, the span and the field, in that order:
`traces.jsonl:17 / trace 4bf9… / span 00f0… / attributes["art.reward"]`; what is beyond a limit says which option raises
it. Detection takes the first format that knows the content, so the narrower one stands first. A new format is a module
and its line in `_MODULES`; it is loaded when its turn comes: most dumps are of the first, and loading takes time.
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
"""Larger ones do not fit what counts bytes in C."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are bytes after decompression. Raises UsageError for a limit that cannot be one."""

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
    """Name the option of the command line that sets a limit."""
    return f"--{name.replace('_', '-')}"


def advice(name: LimitName) -> str:
    """Say what to do to read what is beyond a limit."""
    return f"raise {option_of(name)} (Limits.{name}) to read this"


MessageT = TypeVar("MessageT")

MAX_NAME: Final = 200

_FAULT: Final = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
"""The path to a field of the wrong type, with which msgspec's message ends."""

Ids: TypeAlias = tuple[str | None, str | None]
"""(trace_id, span_id), each None where it is not known."""

NO_IDS: Final[Ids] = (None, None)

Site: TypeAlias = tuple[str, str | None]
"""Where a value stands: the path of its owner (empty, or `events[0].`) and its name; `("body", None)` for a body."""


class Refused(Exception):  # noqa: N818 # it becomes a Quarantined and is no error of the program
    """A message that cannot be a record. `where` is the path inside it."""

    def __init__(self, reason: QuarantineReason, where: str = "", detail: str = "") -> None:
        super().__init__(reason, where, detail)
        self.reason: QuarantineReason = reason
        self.where = where
        self.detail = detail

    def quarantine(
        self, location: str, kind: Kind = "unknown", ids: Ids = NO_IDS, *, partial: bool = False
    ) -> Quarantined:
        """Make the Quarantined of the record, or of the piece of it, that stands at `location` (`file:line`)."""
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
    """The fields that a kept record loses: the reason, and the paths of as many as one detail can name."""

    def note(self, where: str, reason: QuarantineReason) -> None:
        """Note that the field at `where` is lost."""
        places = self.setdefault(reason, {})
        if len(places) < MAX_DETAIL:  # a record may lose millions
            places[where] = None

    def quarantine(self, location: str, kind: Kind = "unknown", ids: Ids = NO_IDS) -> Iterator[Quarantined]:
        """Make a partial Quarantined for each reason. The path leads to the first field, the detail names the rest."""
        for reason, (first, *others) in self.items():
            detail = f"also: {', '.join(others)}" if others else ""
            yield Refused(reason, first, detail).quarantine(location, kind, ids, partial=True)


def attribute_path(site: Site) -> str:
    """Name an attribute with its owner before it, as `events[0].attributes["art.reward"]`."""
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
    """Filled while a file is read; final when the iterator of `read_file` ends.

    `bytes` counts what was read from the file (compressed). `quarantined` counts records and rubbish set aside whole,
    `partly_quarantined` the partial Quarantined of records that were kept. `logs_without_span` counts log records that
    belong to no span, `other_signals` requests with metrics or profiles; neither is quarantined.
    `replaced` counts the characters U+FFFD that stand for what no text can hold: halves of emoji (surrogate pairs), and
    bytes that are no UTF-8.
    `unread_content` counts references to content that was not read, `unread_example` names one and says why.
    `without_time` counts rewards that do not say when they were given. `not_in_format` says what the format cannot
    carry.
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
    replaced: int = 0
    without_time: int = 0
    unread_content: int = 0
    unread_example: str | None = None
    not_in_format: tuple[str, ...] = ()
    note: str | None = None
    error: str | None = None

    def add(self, other: "FileStats") -> None:
        """Add what another process read of the same file."""
        for name in self.__struct_fields__:
            count = getattr(other, name)
            if isinstance(count, int):
                setattr(self, name, getattr(self, name) + count)
        self.error = self.error or other.error
        self.unread_example = self.unread_example or other.unread_example


Record: TypeAlias = Span | LogRecord | Quarantined


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One input being read: `path` names it in every Quarantined, `secrets` is for those in logs of agents."""

    path: str
    limits: Limits
    stats: FileStats
    secrets: SecretRules = SecretRules()


class TableRow(NamedTuple):
    """A row of a table: its number, from 1, its values by column, and why others of them cannot be read."""

    number: int
    values: dict[str, Value]
    problem: Refused | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """How a format is read from Parquet.

    A table that has the columns `ids` is one of the format. Of it only they, `others` and those that begin with
    `prefix` are read, so that no column that was added costs a row.
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

    `not_in_format` says for the report, in a few words each, what the format cannot carry (types, resource
    attributes …).
    `detects` sees the first bytes of the decompressed content (up to 1 MiB, fewer only when there are no more).
    `cuts` matches, from a line feed on, the end of any line behind which a dump can be cut into parts that are read
    apart; None: nowhere.
    `reads` gets the decompressed stream from its beginning; its first `peek` shows the bytes that `detects` saw.
    `table` reads the rows of a Parquet file; None: the format does not come as one.
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
    """Find the format whose content begins like this; None when no format does."""
    return next((one for one in all_formats() if one.detects(head)), None)


def detect_table(columns: Collection[str]) -> SourceFormat | None:
    """Find the format of a Parquet table with these columns; None when no format does."""
    return next((one for one in all_formats() if one.table and one.table.ids.issubset(columns)), None)


def format_named(name: str) -> SourceFormat:
    """Find a format by its name. Raises UsageError, which lists all names, when there is none."""
    chosen = next((one for one in all_formats() if one.name == name), None)
    if chosen is None:
        raise UsageError(f"no format {name!r}; there are {', '.join(one.name for one in all_formats())}")
    return chosen
