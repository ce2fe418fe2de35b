"""Span, LogRecord and Quarantined: the records that every source gives, as in OTel's data model.

Invariant: ids are lower-case hex of the right length and not all zero, text is valid UTF-8, numbers are finite, times
are nanoseconds since the Unix epoch, and a span does not end before it starts. Every source checks this before it makes
a record, so that no later package checks it again.

Every piece that cannot become a Span or a LogRecord becomes exactly one Quarantined, so that spans read = used +
ignored + duplicate + quarantined. Reports count its `reason`, which is from a short list; `path` and `detail` are for a
person who looks for the cause.
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
"""(trace_id, span_id): identifies a span, also over repeated deliveries."""


_CHUNK: Final = 1 << 20


class Event(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Something that happened at one moment inside a span."""

    name: str
    time_ns: int
    attributes: dict[str, Value] = {}
    dropped_attributes_count: int = 0


class Link(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A reference to another span, perhaps of another trace."""

    trace_id: str
    span_id: str
    attributes: dict[str, Value] = {}


class Scope(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The instrumentation scope: the library that made the span."""

    name: str = ""
    version: str = ""


class Resource(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The producer of the telemetry, e.g. a service instance."""

    attributes: dict[str, Value] = {}


class Span(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One operation. `end_ns` is None if the source has only its start."""

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
        """The key that identifies the span over repeated deliveries."""
        return (self.trace_id, self.span_id)

    def setting(self, name: str) -> Value:
        """An attribute of the span, else of its resource: an app may set e.g. the split once for the whole process."""
        value = self.attributes.get(name)
        return self.resource.attributes.get(name) if value is None else value


class LogRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A log record (OTel event) with the ids of its span; both ids are empty if it names no span.

    `time_ns` is the time of the event, else the time when it was observed. `body` is structured or a text.
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
"""How many quarantined pieces of a conversion are listed at most. All are counted."""


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of a source that could not be read.

    `path` has as much of `file:line / trace … / span … / attribute` as is known. `trace_id` and `span_id` are those of
    the damaged record, if they could be read, so that its trajectory is marked incomplete. `partial`: the record itself
    was kept without the damaged value; it is counted as quarantined, and not as used.
    """

    reason: QuarantineReason
    path: str
    detail: str = ""
    kind: Kind = "span"
    trace_id: str | None = None
    span_id: str | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        """Cut long texts: a name from the dump may have any length, and many entries may have it."""
        if len(self.path) > MAX_PATH:
            msgspec.structs.force_setattr(self, "path", f"{self.path[:MAX_PATH]}…")
        if len(self.detail) > MAX_DETAIL:
            msgspec.structs.force_setattr(self, "detail", f"{self.detail[:MAX_DETAIL]}…")


def extend_sorted(entries: list[Quarantined], new_entries: Iterable[Quarantined]) -> None:
    """Add entries, and keep at least the first MAX_LISTED in sorted order, whatever the order of adding."""
    entries.extend(new_entries)
    if len(entries) > 2 * MAX_LISTED:
        entries[:] = first_sorted(entries)


def first_sorted(entries: Iterable[Quarantined]) -> list[Quarantined]:
    """The first MAX_LISTED entries, sorted by path, detail and reason."""
    return sorted(entries, key=attrgetter("path", "detail", "reason"))[:MAX_LISTED]


def list_quarantined(entries: list[Quarantined], new_entries: Iterable[Quarantined]) -> None:
    """Add entries up to MAX_LISTED, in the order in which they come."""
    entries.extend(islice(new_entries, max(0, MAX_LISTED - len(entries))))


def size_of(value: Value) -> int:
    """The bytes of a value: a text in UTF-8; a list or dict as the sum of its names and values, plus one per value.

    The size does not depend on the encoding of the source, and is never larger than the encoded bytes.
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
