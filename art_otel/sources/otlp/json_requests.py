"""Requests that do not decode at once: each record is converted by itself, so that a bad one costs no other.

Invariant: each record is in the request that is given or in exactly one Quarantined.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from art_otel.sources.json_text.kinds import is_object
from art_otel.sources.json_text.lenient import RecordLists
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.json_records import JsonRecords
from art_otel.sources.refusals import NO_IDS, Ids, Refused, converted
from art_otel.spans import Quarantined, Value
from art_otel.spans.quarantine import Kind

RECORDS: Final = RecordLists(
    names=frozenset({"trace", "result", "resourceSpans", "resourceLogs", "batches", "scopeSpans", "scopeLogs"})
    | {"spans", "logRecords"},
    lists=frozenset({"spans", "logRecords"}),
)
"""Where the records of a request stand."""

_Record = TypeVar("_Record", otlp.Span, otlp.LogRecord)
_Message = TypeVar("_Message", otlp.ResourceSpans, otlp.ResourceLogs)
_Shared = TypeVar("_Shared", otlp.Resource, otlp.Scope)


class _Scoped(otlp.Message):
    scope: Value = None
    spans: list[Value] | None = None
    log_records: list[Value] | None = None
    instrumentation_library: Value = None


class _Batch(otlp.Message):
    resource: Value = None
    scope_spans: list[_Scoped] | None = None
    scope_logs: list[_Scoped] | None = None
    instrumentation_library_spans: list[_Scoped] | None = None
    instrumentation_library_logs: list[_Scoped] | None = None


class _Request(otlp.Message):
    """As `otlp.Request`, with everything below a batch as it was decoded."""

    resource_spans: list[_Batch] | UnsetType | None = UNSET
    batches: list[_Batch] | UnsetType | None = UNSET
    resource_logs: list[_Batch] | UnsetType | None = UNSET
    resource_metrics: list[otlp.OtherSignal] | UnsetType | None = UNSET
    resource_profiles: list[otlp.OtherSignal] | UnsetType | None = UNSET
    trace: "_Request | None" = None
    result: "_Request | None" = None


class RequestConverter:
    """Makes requests of plain values; `quarantined` collects what is none."""

    def __init__(self, place: str, records: JsonRecords) -> None:
        self.quarantined: list[Quarantined] = []
        self._place = place
        self._records = records

    def convert(self, value: Value) -> otlp.Request:
        """The request that a JSON object is, without the records that are bad. Raises Refused."""
        try:
            return msgspec.convert(value, otlp.Request, strict=False)
        except (msgspec.ValidationError, RecursionError):
            pass
        try:
            return self._request(converted(value, _Request))
        except Refused as problem:
            raise Refused("not OTLP", problem.where, problem.detail) from None

    def _request(self, request: _Request) -> otlp.Request:
        return otlp.Request(
            resource_spans=_mapped(self._spans, request.resource_spans),
            batches=_mapped(self._spans, request.batches),
            resource_logs=_mapped(self._logs, request.resource_logs),
            resource_metrics=request.resource_metrics,
            resource_profiles=request.resource_profiles,
            trace=request.trace and self._request(request.trace),
            result=request.result and self._request(request.result),
        )

    def _spans(self, batch: _Batch) -> otlp.ResourceSpans:
        return otlp.ResourceSpans(
            resource=self._shared(batch.resource, otlp.Resource, "resource"),
            scope_spans=[
                otlp.ScopeSpans(
                    scope=self._shared(scoped.scope or scoped.instrumentation_library, otlp.Scope, "scope"),
                    spans=self._each(scoped.spans or (), otlp.Span, "span"),
                )
                for scoped in batch.scope_spans or batch.instrumentation_library_spans or ()
            ],
        )

    def _logs(self, batch: _Batch) -> otlp.ResourceLogs:
        return otlp.ResourceLogs(
            scope_logs=[
                otlp.ScopeLogs(log_records=self._each(scoped.log_records or (), otlp.LogRecord, "log"))
                for scoped in batch.scope_logs or batch.instrumentation_library_logs or ()
            ]
        )

    def _shared(self, value: Value, message: type[_Shared], name: str) -> _Shared | None:
        """A resource or scope; None, and a partial Quarantined, for a bad one."""
        try:
            return None if value is None else converted(value, message)
        except Refused as problem:
            inside = Refused(problem.reason, f"{name}.{problem.where}", problem.detail)
            self.quarantined.append(inside.damage(self._place, partial=True))
            return None

    def _each(self, values: Iterable[Value], message: type[_Record], kind: Kind) -> list[_Record]:
        records: list[_Record] = []
        for value in values:
            try:
                records.append(converted(value, message))
            except Refused as problem:
                self.quarantined.append(problem.damage(self._place, kind, ids_of(value, self._records)))
        return records


def ids_of(value: Value, records: JsonRecords) -> Ids:
    """The ids of an object that is no record, as far as they are good."""
    return records.known_ids(value.get("traceId"), value.get("spanId")) if is_object(value) else NO_IDS


def _mapped(
    convert: Callable[[_Batch], _Message], batches: list[_Batch] | UnsetType | None
) -> list[_Message] | UnsetType | None:
    return [convert(batch) for batch in batches] if isinstance(batches, list) else batches
