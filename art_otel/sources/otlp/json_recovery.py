"""Recovers an OTLP JSON request that does not decode: its good records, and the Quarantined of each bad one.

Invariant: a bad record costs no other, and a bad resource or scope costs no record.
"""

from collections.abc import Iterator
from typing import Final

from art_otel.sources.json_text.values import is_list, is_object
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import SpanBuilder
from art_otel.sources.refusals import NO_IDS, Ids, Refused, converted
from art_otel.spans import Quarantined, Value
from art_otel.spans.quarantine import Kind

_RECORDS: Final[dict[str, tuple[Kind, type[otlp.Message]]]] = {
    "spans": ("span", otlp.Span),
    "logRecords": ("log", otlp.LogRecord),
}
_SHARED: Final = {"resource": otlp.Resource, "scope": otlp.Scope, "instrumentationLibrary": otlp.Scope}
HOLDERS: Final = frozenset(
    {"trace", "result", "resourceSpans", "batches", "resourceLogs", "scopeSpans", "scopeLogs", *_RECORDS}
    | {"instrumentationLibrarySpans", "instrumentationLibraryLogs"}
)
"""The fields that lead to records."""


def recover_request(value: Value, location: str, builder: SpanBuilder) -> tuple[otlp.Request, list[Quarantined]]:
    """Convert a JSON object without what is bad in it, which is taken out of it. Raises Refused."""
    try:
        return converted(value, otlp.Request), []
    except Refused:
        quarantined = list(_take_out_bad(value, location, builder))
    try:
        return converted(value, otlp.Request), quarantined
    except Refused as problem:
        raise Refused("not OTLP", problem.where, problem.detail) from None


def ids_of(value: Value, builder: SpanBuilder) -> Ids:
    """Read the ids of an object that is no record, as far as they are good."""
    return builder.known_ids(value.get("traceId"), value.get("spanId")) if is_object(value) else NO_IDS


def _take_out_bad(request: Value, location: str, builder: SpanBuilder) -> Iterator[Quarantined]:
    waiting = [request]
    while waiting:
        message = waiting.pop()
        for name, value in message.items() if is_object(message) else ():
            if name in _RECORDS and is_list(value):
                kind, record_type = _RECORDS[name]
                problems = [_problem_of(record, record_type) for record in value]
                for record, problem in zip(value, problems, strict=True):
                    if problem is not None:
                        yield problem.quarantine(location, kind, ids_of(record, builder))
                value[:] = [record for record, problem in zip(value, problems, strict=True) if problem is None]
            elif name in HOLDERS:
                waiting += reversed(value) if is_list(value) else [value]
            elif name in _SHARED and value is not None and (problem := _problem_of(value, _SHARED[name])) is not None:
                message[name] = None
                where = f"{name}.{problem.where}".rstrip(".")
                yield Refused(problem.reason, where, problem.detail).quarantine(location, partial=True)


def _problem_of(value: Value, message: type[otlp.Message]) -> Refused | None:
    try:
        converted(value, message)
    except Refused as problem:
        return problem
    return None
