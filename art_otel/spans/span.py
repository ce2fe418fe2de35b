"""Span: one ended (or only started) operation, as OTel's data model has it.

Invariant: ids are lower-case hex of the right length and not all zero, text is valid UTF-8, numbers are finite,
times are nanoseconds since the Unix epoch, and a span never ends before it starts. Whatever reads spans
(`art_otel.sources`, the live processor) holds this before it makes one, so no later package checks again.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

Value: TypeAlias = Any
"""An OTel attribute value: str, bool, int, float, bytes, None, or a list or str-keyed dict of them."""

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
        """The span it belongs to."""
        return (self.trace_id, self.span_id)


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
