"""The OTLP messages as msgspec decodes them from JSON: every field that we read, unknown ones skipped; and the enums.

Invariant: the field names are those of the protobuf messages, so that one reader serves both encodings. Absent and
null are None. Decode them with `strict=False`: OTLP JSON writes 64-bit integers and odd doubles as strings. Enums are
numbers, as protobuf has them, or names, as JSON may.

Source of the format: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and opentelemetry-proto,
`trace.proto`, version 1.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from art_otel.spans import SpanKind, StatusCode

_KIND_NAMES: Final[tuple[SpanKind, ...]] = ("unspecified", "internal", "server", "client", "producer", "consumer")
SPAN_KINDS: Final[dict[int | str | None, SpanKind]] = {
    None: "unspecified",
    **dict(enumerate(_KIND_NAMES)),
    **{f"SPAN_KIND_{name.upper()}": name for name in _KIND_NAMES},
}
_STATUS_NAMES: Final[tuple[StatusCode, ...]] = ("unset", "ok", "error")
STATUS_CODES: Final[dict[int | str | None, StatusCode]] = {
    None: "unset",
    **dict(enumerate(_STATUS_NAMES)),
    **{f"STATUS_CODE_{name.upper()}": name for name in _STATUS_NAMES},
}


Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class Message(msgspec.Struct, rename="camel", gc=False):
    """The base of all: without cycles, so the garbage collector need not look at them."""


class AnyValue(Message):
    """One value: at most one field is not None, and none for a null value."""

    string_value: str | None = None
    int_value: Int64 | None = None
    double_value: float | None = None
    bool_value: bool | None = None
    array_value: "ArrayValue | None" = None
    kvlist_value: "KeyValueList | None" = None
    bytes_value: str | None = None


class KeyValue(Message):
    """A named value."""

    key: str = ""
    value: AnyValue | None = None


class ArrayValue(Message):
    """A list of values."""

    values: list[AnyValue] | None = None


class KeyValueList(Message):
    """A dict of values."""

    values: list[KeyValue] | None = None


class Resource(Message):
    """What produced the telemetry."""

    attributes: list[KeyValue] | None = None


class Scope(Message):
    """The instrumentation scope."""

    name: str | None = None
    version: str | None = None


class Status(Message):
    """How a span ended."""

    message: str | None = None
    code: int | str | None = None


class Event(Message):
    """A moment in a span."""

    time_unix_nano: Time | None = None
    name: str | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Count | None = None


class Link(Message):
    """A pointer to another span."""

    trace_id: str | None = None
    span_id: str | None = None
    attributes: list[KeyValue] | None = None


class Span(Message):
    """An operation."""

    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    kind: int | str | None = None
    start_time_unix_nano: Time | None = None
    end_time_unix_nano: Time | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Count | None = None
    events: list[Event] | None = None
    dropped_events_count: Count | None = None
    links: list[Link] | None = None
    dropped_links_count: Count | None = None
    status: Status | None = None


class LogRecord(Message):
    """A log record or event."""

    time_unix_nano: Time | None = None
    observed_time_unix_nano: Time | None = None
    body: AnyValue | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Count | None = None
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None


class ScopeSpans(Message):
    """The spans of one scope. `instrumentation_library` is what scopes were called before OTLP 0.15; so below."""

    scope: Scope | None = None
    spans: list[Span] | None = None
    instrumentation_library: Scope | None = None

    def __post_init__(self) -> None:
        self.scope = self.scope or self.instrumentation_library


class ResourceSpans(Message):
    """The spans of one resource."""

    resource: Resource | None = None
    scope_spans: list[ScopeSpans] | None = None
    instrumentation_library_spans: list[ScopeSpans] | None = None

    def __post_init__(self) -> None:
        self.scope_spans = self.scope_spans or self.instrumentation_library_spans


class ScopeLogs(Message):
    """The log records of one scope."""

    log_records: list[LogRecord] | None = None


class ResourceLogs(Message):
    """The log records of one resource."""

    scope_logs: list[ScopeLogs] | None = None
    instrumentation_library_logs: list[ScopeLogs] | None = None

    def __post_init__(self) -> None:
        self.scope_logs = self.scope_logs or self.instrumentation_library_logs


class OtherSignal(Message):
    """Metrics or profiles, of which nothing is decoded."""


class Request(Message):
    """An ExportTraceServiceRequest or ExportLogsServiceRequest; the other signals are only noticed.

    `batches`, `trace` and `result` are the envelopes that Tempo's and Jaeger's query APIs put around one.
    """

    resource_spans: list[ResourceSpans] | UnsetType | None = UNSET
    batches: list[ResourceSpans] | UnsetType | None = UNSET
    resource_logs: list[ResourceLogs] | UnsetType | None = UNSET
    resource_metrics: list[OtherSignal] | UnsetType | None = UNSET
    resource_profiles: list[OtherSignal] | UnsetType | None = UNSET
    trace: "Request | None" = None
    result: "Request | None" = None

    @property
    def parts(self) -> tuple["Request", ...]:
        """The request, and the one that it is an envelope of."""
        inner = [part for part in (self.trace, self.result) if part is not None]
        return (self, *(part for request in inner for part in request.parts))

    @property
    def is_otlp(self) -> bool:
        """Whether it, or what it is an envelope of, holds any signal, even an empty one."""
        return any(
            signal is not UNSET
            for part in self.parts
            for signal in (part.resource_spans, part.batches, part.resource_logs)
        ) or any(part.has_other_signal for part in self.parts)

    @property
    def has_other_signal(self) -> bool:
        """Whether it holds metrics or profiles."""
        return self.resource_metrics is not UNSET or self.resource_profiles is not UNSET
