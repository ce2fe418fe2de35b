"""OTLP records: the decoded messages of OTLP, and OtlpSpanBuilder, which makes records of `art_otel.spans` of them.

    OtlpSpan(trace_id="4BF9…", kind="SPAN_KIND_CLIENT", …)   ->   Span(trace_id="4bf9…", kind="client", …)
    OtlpSpan(trace_id="no hex", …)                           ->   Quarantined(reason="bad id", …)

The messages have the field names of protobuf, so that one builder serves all encodings. From JSON msgspec decodes them;
decode with `strict=False`, because OTLP JSON writes 64-bit integers and odd doubles as strings. Enums are numbers or
names. Absent and null are None; unknown fields are skipped.

Invariant: each message gives exactly one record or one whole Quarantined; each loss of a kept record gives a partial
Quarantined. Records keep what `art_otel.spans` promises: good ids, finite numbers, ordered times.

Source of the format: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and opentelemetry-proto,
`trace.proto`, `logs.proto`, `common.proto`, version 1.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, NoReturn, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from art_otel import spans
from art_otel.sources.format import MAX_NAME, DroppedFields, Ids, Reading, Record, Refused, Site, attribute_path
from art_otel.spans import Quarantined, Value

_KIND_NAMES: Final[tuple[spans.SpanKind, ...]] = ("unspecified", "internal", "server", "client", "producer", "consumer")
SPAN_KINDS: Final[dict[int | str | None, spans.SpanKind]] = {
    None: "unspecified",
    **dict(enumerate(_KIND_NAMES)),
    **{f"SPAN_KIND_{name.upper()}": name for name in _KIND_NAMES},
}
_STATUS_NAMES: Final[tuple[spans.StatusCode, ...]] = ("unset", "ok", "error")
STATUS_CODES: Final[dict[int | str | None, spans.StatusCode]] = {
    None: "unset",
    **dict(enumerate(_STATUS_NAMES)),
    **{f"STATUS_CODE_{name.upper()}": name for name in _STATUS_NAMES},
}

Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class OtlpMessage(msgspec.Struct, rename="camel", gc=False):
    """The base of all messages. They have no cycles, so the garbage collector does not track them."""


class AnyValue(OtlpMessage):
    """One value: at most one field is set, and no field for null."""

    string_value: str | None = None
    int_value: Int64 | None = None
    double_value: float | None = None
    bool_value: bool | None = None
    array_value: "ArrayValue | None" = None
    kvlist_value: "KeyValueList | None" = None
    bytes_value: str | None = None


class KeyValue(OtlpMessage):
    """A named value."""

    key: str = ""
    value: AnyValue | None = None


class ArrayValue(OtlpMessage):
    """A list of values."""

    values: list[AnyValue] | None = None


class KeyValueList(OtlpMessage):
    """A dict of values."""

    values: list[KeyValue] | None = None


class OtlpResource(OtlpMessage):
    """The process that produced the telemetry."""

    attributes: list[KeyValue] | None = None


class OtlpScope(OtlpMessage):
    """The instrumentation scope."""

    name: str | None = None
    version: str | None = None


class OtlpStatus(OtlpMessage):
    """How a span ended."""

    message: str | None = None
    code: int | str | None = None


class OtlpEvent(OtlpMessage):
    """A moment in a span."""

    time_unix_nano: Time | None = None
    name: str | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Count | None = None


class OtlpLink(OtlpMessage):
    """A pointer to another span."""

    trace_id: str | None = None
    span_id: str | None = None
    attributes: list[KeyValue] | None = None


class OtlpSpan(OtlpMessage):
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
    events: list[OtlpEvent] | None = None
    dropped_events_count: Count | None = None
    links: list[OtlpLink] | None = None
    dropped_links_count: Count | None = None
    status: OtlpStatus | None = None


class OtlpLogRecord(OtlpMessage):
    """A log record or event."""

    time_unix_nano: Time | None = None
    observed_time_unix_nano: Time | None = None
    body: AnyValue | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: Count | None = None
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None


class ScopeSpans(OtlpMessage):
    """The spans of one scope."""

    scope: OtlpScope | None = None
    spans: list[OtlpSpan] | None = None


class ResourceSpans(OtlpMessage):
    """The spans of one resource."""

    resource: OtlpResource | None = None
    scope_spans: list[ScopeSpans] | None = None


class ScopeLogs(OtlpMessage):
    """The log records of one scope."""

    log_records: list[OtlpLogRecord] | None = None


class ResourceLogs(OtlpMessage):
    """The log records of one resource."""

    scope_logs: list[ScopeLogs] | None = None


class OtherSignal(OtlpMessage):
    """Metrics or profiles; none of their fields are decoded."""


class ExportRequest(OtlpMessage):
    """An ExportTraceServiceRequest or ExportLogsServiceRequest; of other signals only the presence is known.

    `batches`, `trace` and `result` are the envelopes of Tempo's and Jaeger's query APIs around a request.
    """

    resource_spans: list[ResourceSpans] | UnsetType | None = UNSET
    batches: list[ResourceSpans] | UnsetType | None = UNSET
    resource_logs: list[ResourceLogs] | UnsetType | None = UNSET
    resource_metrics: list[OtherSignal] | UnsetType | None = UNSET
    resource_profiles: list[OtherSignal] | UnsetType | None = UNSET
    trace: "ExportRequest | None" = None
    result: "ExportRequest | None" = None

    @property
    def parts(self) -> tuple["ExportRequest", ...]:
        """The request itself, and the requests inside of it, if it is an envelope."""
        if self.trace is None and self.result is None:
            return (self,)
        inner = [part for part in (self.trace, self.result) if part is not None]
        return (self, *(part for request in inner for part in request.parts))

    @property
    def is_otlp(self) -> bool:
        """Whether the request, or a request inside of it, has any signal, even an empty one."""
        return (
            self.resource_spans is not UNSET
            or any(
                signal is not UNSET
                for part in self.parts
                for signal in (part.resource_spans, part.batches, part.resource_logs)
            )
            or any(part.has_other_signal for part in self.parts)
        )

    @property
    def has_other_signal(self) -> bool:
        """Whether the request has metrics or profiles."""
        return self.resource_metrics is not UNSET or self.resource_profiles is not UNSET


_TRACE_DIGITS: Final = 32
_SPAN_DIGITS: Final = 16
_HEX: Final = {digits: re.compile(f"[0-9a-f]{{{digits}}}").fullmatch for digits in (_TRACE_DIGITS, _SPAN_DIGITS)}
_ZEROS: Final = frozenset("0" * digits for digits in _HEX)
_MAX_TIME: Final = 2**63 - 1


class ScopeBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The values that all records of one ScopeSpans or ScopeLogs share. `location` is `file:line`."""

    location: str
    resource: spans.Resource
    scope: spans.Scope


class OtlpSpanBuilder(ABC):
    """Builds records of decoded messages. A subclass reads the ids and attribute values of its encoding.

    The messages of every encoding have the field names of the types above, so these types stand for all of them.
    """

    max_depth: Final = 32
    """The most nested lists and dicts in a value: as many as every protobuf reader accepts."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        # Neighboring records mostly share trace, parent, resource and scope: the last ones are not converted again.
        self._last_trace: tuple[object, str] = (object(), "")
        self._last_parent: tuple[object, str | None] = (None, None)
        self._last_resource: tuple[object, spans.Resource] = (None, spans.Resource())
        self._last_scope: tuple[object, spans.Scope] = (None, spans.Scope())

    def check_depth(self, depth: int, site: Site) -> None:
        """Raise Refused for a list or dict that is inside of too many others."""
        if depth > self.max_depth:
            raise Refused("nested too deep", attribute_path(site), f"more than {self.max_depth} lists and dicts deep")

    @abstractmethod
    def hex(self, raw: object, digits: int) -> str:
        """Write an id of so many digits in lower-case hex; "" if there is no id."""

    @abstractmethod
    def attributes(self, pairs: Iterable[KeyValue] | None, owner: str, dropped: DroppedFields) -> dict[str, Value]:
        """Read attributes by name. Numbers that are not finite become None, noted in `dropped`. Raises Refused."""

    @abstractmethod
    def value(self, value: AnyValue | None, site: Site, dropped: DroppedFields) -> Value:
        """Read one value, with the rules of `attributes`. Raises Refused."""

    def traces(self, batches: Iterable[ResourceSpans] | None, location: str) -> Iterator[Record]:
        """Read every span of one request."""
        for shared in batches or ():
            resource, quarantined = self.resource(shared.resource, location)
            yield from quarantined
            for scoped in shared.scope_spans or ():
                if scoped.scope != self._last_scope[0]:
                    self._last_scope = scoped.scope, scope_of(scoped.scope)
                batch = ScopeBatch(location=location, resource=resource, scope=self._last_scope[1])
                for span in scoped.spans or ():
                    yield from self.span(span, batch)

    def logs(self, batches: Iterable[ResourceLogs] | None, location: str) -> Iterator[Record]:
        """Read every log record of one request. Resources are not read, because a LogRecord has none."""
        batch = ScopeBatch(location=location, resource=spans.Resource(), scope=spans.Scope())
        for logs in batches or ():
            for scoped in logs.scope_logs or ():
                for log_record in scoped.log_records or ():
                    yield from self.log_record(log_record, batch)

    def resource(self, message: OtlpResource | None, location: str) -> tuple[spans.Resource, tuple[Quarantined, ...]]:
        """Read the resource of a batch, with a partial Quarantined for each loss."""
        if message == self._last_resource[0]:  # most lines of a file are of one process, and share the object
            return self._last_resource[1], ()
        dropped = DroppedFields()
        try:
            attributes = self.attributes(message.attributes if message else None, "resource.", dropped)
        except Refused as problem:
            return spans.Resource(), (problem.quarantine(location, partial=True),)
        resource = spans.Resource(attributes=attributes)
        if not dropped:
            self._last_resource = message, resource
        return resource, tuple(dropped.quarantine(location))

    def span(self, message: OtlpSpan, batch: ScopeBatch) -> tuple[Record, ...]:
        """Read one span, with a partial Quarantined for each reason of a loss."""
        dropped = DroppedFields()
        try:
            span = self._span(message, batch, dropped)
        except Refused as problem:
            return (problem.quarantine(batch.location, "span", self.known_ids(message.trace_id, message.span_id)),)
        return (span, *dropped.quarantine(batch.location, "span", span.key)) if dropped else (span,)

    def log_record(self, message: OtlpLogRecord, batch: ScopeBatch) -> tuple[Record, ...]:
        """Read one log record. A record without a span is counted, and returned only if it may be an event."""
        dropped = DroppedFields()
        try:
            trace_id = self._id(message.trace_id, _TRACE_DIGITS, "traceId")
            span_id = self._id(message.span_id, _SPAN_DIGITS, "spanId")
            if trace_id is None or span_id is None:
                self.reading.stats.logs_without_span += 1
                return self._event_without_span(message)
            record = self._log_record(message, trace_id, span_id, dropped)
        except Refused as problem:
            return (problem.quarantine(batch.location, "log", self.known_ids(message.trace_id, message.span_id)),)
        return (record, *dropped.quarantine(batch.location, "log", record.key)) if dropped else (record,)

    def _event_without_span(self, message: OtlpLogRecord) -> tuple[spans.LogRecord, ...]:
        """Read a record without ids. It may name its subject in another way: evaluations name a response."""
        if not message.event_name and not message.attributes:
            return ()
        try:
            record = self._log_record(message, "", "", DroppedFields())
        except Refused:
            return ()
        return (record,) if record.event_name else ()

    def known_ids(self, trace_id: object, span_id: object) -> Ids:
        """Read the ids of a record; an absent or bad id is None."""
        ids: list[str | None] = []
        for raw, digits in ((trace_id, _TRACE_DIGITS), (span_id, _SPAN_DIGITS)):
            try:
                ids.append(self._id(raw, digits, ""))
            except Refused:
                ids.append(None)
        return ids[0], ids[1]

    def _span(self, message: OtlpSpan, batch: ScopeBatch, dropped: DroppedFields) -> spans.Span:
        raw, trace_id = self._last_trace
        if message.trace_id != raw:
            raw = message.trace_id
            trace_id = self._id(raw, _TRACE_DIGITS, "traceId") or _no_id("traceId")
            self._last_trace = raw, trace_id
        span_id = self._id(message.span_id, _SPAN_DIGITS, "spanId") or _no_id("spanId")
        start_ns, end_ns = message.start_time_unix_nano, message.end_time_unix_nano
        # The fast test passes nearly all spans; the others are checked one by one, for an exact reason.
        if not start_ns or not end_ns or not 0 < start_ns <= end_ns <= _MAX_TIME:
            start_ns, end_ns = _times(start_ns, end_ns)
        kind = SPAN_KINDS.get(message.kind) or _refused("kind", "SpanKind", message.kind)
        status = message.status
        code = status.code if status else None
        status_code = STATUS_CODES.get(code) or _refused("status.code", "StatusCode", code)
        raw, parent = self._last_parent
        if message.parent_span_id != raw:
            raw = message.parent_span_id
            parent = self._id(raw, _SPAN_DIGITS, "parentSpanId")
            self._last_parent = raw, parent
        span = spans.Span(
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=parent,
            name=message.name or "",
            kind=kind,
            start_ns=start_ns,
            end_ns=end_ns,
            attributes=self.attributes(message.attributes, "", dropped),
            events=self._events(message.events, dropped) if message.events else (),
            links=self._links(message.links, dropped) if message.links else (),
            status=status_code,
            status_message=(status.message or "") if status else "",
            scope=batch.scope,
            resource=batch.resource,
        )
        if message.dropped_attributes_count or message.dropped_events_count or message.dropped_links_count:
            return msgspec.structs.replace(  # rare, and making a Span with more than 15 fields takes four times as long
                span,
                dropped_attributes_count=message.dropped_attributes_count or 0,
                dropped_events_count=message.dropped_events_count or 0,
                dropped_links_count=message.dropped_links_count or 0,
            )
        return span

    def _events(self, messages: Iterable[OtlpEvent] | None, dropped: DroppedFields) -> tuple[spans.Event, ...]:
        events: list[spans.Event] = []
        for index, message in enumerate(messages or ()):
            field = f"events[{index}].timeUnixNano"
            time_ns = _time(message.time_unix_nano, field)
            if time_ns is None:
                dropped.note(field, "bad field")
                continue
            event = spans.Event(
                name=message.name or "",
                time_ns=time_ns,
                attributes=self.attributes(message.attributes, f"events[{index}].", dropped),
                dropped_attributes_count=message.dropped_attributes_count or 0,
            )
            events.append(event)
        return tuple(events)

    def _links(self, messages: Iterable[OtlpLink] | None, dropped: DroppedFields) -> tuple[spans.Link, ...]:
        links: list[spans.Link] = []
        for index, message in enumerate(messages or ()):
            trace_id, span_id = self.known_ids(message.trace_id, message.span_id)
            if trace_id is None or span_id is None:
                dropped.note(f"links[{index}]", "bad id")
                continue
            attributes = self.attributes(message.attributes, f"links[{index}].", dropped)
            links.append(spans.Link(trace_id=trace_id, span_id=span_id, attributes=attributes))
        return tuple(links)

    def _log_record(
        self, message: OtlpLogRecord, trace_id: str, span_id: str, dropped: DroppedFields
    ) -> spans.LogRecord:
        time_ns = _time(message.time_unix_nano, "timeUnixNano")
        time_ns = time_ns or _time(message.observed_time_unix_nano, "observedTimeUnixNano")
        if time_ns is None:
            raise Refused("bad field", "timeUnixNano", "a log record needs a time or an observed time")
        attributes = self.attributes(message.attributes, "", dropped)
        event_name = attributes.get("event.name")
        return spans.LogRecord(
            trace_id=trace_id,
            span_id=span_id,
            event_name=message.event_name or (event_name if isinstance(event_name, str) else ""),
            time_ns=time_ns,
            body=self.value(message.body, ("body", None), dropped),
            attributes=attributes,
            dropped_attributes_count=message.dropped_attributes_count or 0,
        )

    def _id(self, raw: object, digits: int, field: str) -> str | None:
        """Check an id; None if it is empty or all zeros, which means "no id" in OTLP. Raises Refused."""
        is_id = _HEX[digits]
        if isinstance(raw, str) and is_id(raw) and raw not in _ZEROS:
            return raw  # fast path: nearly all ids in JSON
        text = self.hex(raw, digits)
        if is_id(text):
            return text if text not in _ZEROS else None
        if not text:
            return None
        raise Refused("bad id", field, f"{text[:MAX_NAME]!r} is not {digits} hex digits")


def scope_of(message: OtlpScope | None) -> spans.Scope:
    """Make the scope of a batch."""
    return spans.Scope(name=message.name or "", version=message.version or "") if message else spans.Scope()


def finite(number: float, site: Site, dropped: DroppedFields) -> float | None:
    """The number; NaN and infinities become None and are noted in `dropped`, because JSON has no such numbers."""
    if math.isfinite(number):
        return number
    dropped.note(attribute_path(site), "not a finite number")
    return None


def _no_id(field: str) -> NoReturn:
    raise Refused("bad id", field, "it is absent or all zeros")


def _refused(field: str, enum: str, value: object) -> NoReturn:
    raise Refused("bad field", field, f"{value!r} is no {enum}")


def _times(start: int | None, end: int | None) -> tuple[int, int | None]:
    """Check the start and the end of a span (ns). Raises Refused."""
    start_ns = _time(start, "startTimeUnixNano")
    if start_ns is None:
        raise Refused("bad field", "startTimeUnixNano", "a span needs a start time")
    end_ns = _time(end, "endTimeUnixNano")
    if end_ns is not None and end_ns < start_ns:
        raise Refused("ends before it starts", "endTimeUnixNano", f"it starts at {start_ns} and ends at {end_ns}")
    return start_ns, end_ns


def _time(raw: int | None, field: str) -> int | None:
    """Check a time (ns); None for 0, which means "unknown" in OTLP. Raises Refused."""
    if raw and not 0 < raw <= _MAX_TIME:
        raise Refused("bad field", field, f"{raw} is before 1970 or does not fit 63 bits")
    return raw or None
