"""Span: one ended (or only started) operation, as OTel's data model has it; and what could not be read of a source.

Invariant: ids are lower-case hex of the right length and not all zero, text is valid UTF-8, numbers are finite,
times are nanoseconds since the Unix epoch, and a span never ends before it starts. Whatever reads spans
(`art_otel.sources`, the live processor) holds this before it makes one, so no later package checks again.

Every piece that a source cannot turn into a Span or LogRecord becomes exactly one Quarantined, so that spans read =
used + ignored + duplicate + quarantined. Its `reason` comes from a short list and is what reports count by; `path` and
`detail` are for the person who looks into it.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

Value: TypeAlias = Any
"""An OTel attribute value: str, bool, int, float, bytes, None, or a list or str-keyed dict of them."""

JsonObject: TypeAlias = dict[str, Any]
Attributes: TypeAlias = Mapping[str, Value]
StatusCode: TypeAlias = Literal["unset", "ok", "error"]
SpanKind: TypeAlias = Literal["unspecified", "internal", "server", "client", "producer", "consumer"]

SpanKey: TypeAlias = tuple[str, str]
"""(trace_id, span_id): what a span is known by, also over repeated deliveries."""


_CHUNK: Final = 1 << 20


class Event(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Something that happened at one moment inside a span."""

    name: str
    time_ns: int
    attributes: dict[str, Value] = {}
    dropped_attributes_count: int = 0


class Link(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A pointer to another span, also one of another trace."""

    trace_id: str
    span_id: str
    attributes: dict[str, Value] = {}


class Scope(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The instrumentation scope: the library that made the span."""

    name: str = ""
    version: str = ""


class Resource(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What produced the telemetry, e.g. a service instance."""

    attributes: dict[str, Value] = {}


class Span(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One operation. `end_ns` is None while it has not ended as far as the source knows."""

    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    name: str
    kind: SpanKind = "unspecified"
    start_ns: int
    end_ns: int | None
    attributes: dict[str, Value] = {}
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    status: StatusCode = "unset"
    status_message: str = ""
    scope: Scope = Scope()
    resource: Resource = Resource()
    dropped_attributes_count: int = 0
    dropped_events_count: int = 0
    dropped_links_count: int = 0

    @property
    def key(self) -> SpanKey:
        """What identifies the span over repeated deliveries."""
        return (self.trace_id, self.span_id)

    def setting(self, name: str) -> Value:
        """The attribute of the span, else of its resource: an app may set a split once for the whole process."""
        value = self.attributes.get(name)
        return self.resource.attributes.get(name) if value is None else value


class LogRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A log record (OTel event), and the span that it belongs to: both ids are empty for an event that names none.

    `time_ns` is the event's time, else the time it was observed. `body` is its structured or text body.
    """

    trace_id: str
    span_id: str
    event_name: str
    time_ns: int
    body: Value = None
    attributes: dict[str, Value] = {}
    dropped_attributes_count: int = 0

    @property
    def key(self) -> SpanKey:
        """The key of the span that the record belongs to."""
        return (self.trace_id, self.span_id)


QuarantineReason: TypeAlias = Literal[
    "not JSON",
    "torn",
    "not OTLP",
    "invalid UTF-8",
    "not a finite number",
    "nested too deep",
    "bad id",
    "bad field",
    "ends before it starts",
    "cycle of parents",
    "over a limit",
    "bad reward",
    "too late",
]

Kind: TypeAlias = Literal["span", "log", "unknown"]

MAX_PATH: Final = 1000
MAX_DETAIL: Final = 300

MAX_LISTED: Final = 1000
"""How many entries of a conversion are listed; all are counted."""


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """One quarantined piece.

    `path` names it as far as it is known: `file:line / trace … / span … / attribute`. `trace_id`, `span_id` are
    those of the damaged record where they could be read, so that its trajectory can say that it misses something.
    `partial` means the record itself was kept without the damaged value, so it is counted here and not as used.
    """

    reason: QuarantineReason
    path: str
    detail: str = ""
    kind: Kind = "span"
    trace_id: str | None = None
    span_id: str | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        """Cut what is too long to be read: a name in it may be of any length, and many entries may have it."""
        if len(self.path) > MAX_PATH:
            msgspec.structs.force_setattr(self, "path", f"{self.path[:MAX_PATH]}…")
        if len(self.detail) > MAX_DETAIL:
            msgspec.structs.force_setattr(self, "detail", f"{self.detail[:MAX_DETAIL]}…")


def extend_sorted(entries: list[Quarantined], new_entries: Iterable[Quarantined]) -> None:
    """Add entries and keep at least the first MAX_LISTED in sorted order, in whichever order they are added."""
    entries.extend(new_entries)
    if len(entries) > 2 * MAX_LISTED:
        entries[:] = first_sorted(entries)


def first_sorted(entries: Iterable[Quarantined]) -> list[Quarantined]:
    """The first MAX_LISTED entries, sorted by path, detail and reason."""
    return sorted(entries, key=attrgetter("path", "detail", "reason"))[:MAX_LISTED]


def list_quarantined(entries: list[Quarantined], new_entries: Iterable[Quarantined]) -> None:
    """Add entries up to MAX_LISTED, in the order they come."""
    entries.extend(islice(new_entries, max(0, MAX_LISTED - len(entries))))


def size_of(value: Value) -> int:
    """The bytes of a value: of text in UTF-8; of a list or dict those of all in it, and one for each value in it.

    A value counts the same whatever encoding it came in, and never more than the bytes it stood in.
    """
    if isinstance(value, str):
        if value.isascii():
            return len(value)
        pieces = (value[start : start + _CHUNK] for start in range(0, len(value), _CHUNK))
        return sum(len(piece.encode(errors="surrogatepass")) for piece in pieces)  # a whole copy may be large
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        fields = cast(dict[str, Value], value)
        return sum(size_of(name) + size_of(item) for name, item in fields.items()) + len(fields)
    if isinstance(value, list):
        items = cast(list[Value], value)
        return sum(map(size_of, items)) + len(items)
    return 0
