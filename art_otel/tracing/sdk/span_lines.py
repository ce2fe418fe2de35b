"""SpanLine: an SDK span as one line of OTLP JSON, which is how the spool and every dump hold it.

Invariant: a span that any attribute value can be on becomes a line that any OTLP reader takes; writing it never raises
for what stands in the span. So live and dump are the same bytes, read by the same reader.

Source of the format: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/
"""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from art_otel.sources.otlp.checksums import with_checksum
from art_otel.tracing.sdk.span_parts import as_dict

Json: TypeAlias = dict[str, Any]

MAX_DEPTH: Final = 24
"""Receivers stop at 100 protobuf messages inside each other, which are 32 dicts; deeper values become their repr."""

_TOLD_AT_START: Final = (
    *("art.rollout.", "art.group.", "art.split", "art.training.", "art.policy.", "art.step.", "art.metadata."),
    *("gen_ai.operation.name", "gen_ai.request.model", "openinference.span.kind", "llm.request.type"),
)
_ENCODER: Final = msgspec.json.Encoder()


class SpanLines:
    """Writes spans as lines. Resources and scopes are encoded once."""

    def __init__(self) -> None:
        self._resource: tuple[Resource | None, msgspec.Raw] = (None, msgspec.Raw(b"{}"))

    def line(self, span: ReadableSpan) -> bytes:
        """The line of a span; one that has not ended has no end time."""
        scoped = {"scope": _scope(span.instrumentation_scope), "spans": [_span(span)]}
        request = {"resourceSpans": [{"resource": self._encoded(span.resource), "scopeSpans": [scoped]}]}
        return with_checksum(_encode(request))

    def _encoded(self, resource: Resource) -> msgspec.Raw:
        known, encoded = self._resource
        if known is not resource:
            encoded = msgspec.Raw(_encode({"attributes": _attributes(resource.attributes)}))
            self._resource = (resource, encoded)
        return encoded


def start_of(span: Span) -> ReadableSpan:
    """A running span as far as its start is told: its name, ids, time, and the attributes that say what it is.

    Instrumentors put content on a span when it starts; that is told once, when it ended.
    """
    given = span.attributes or {}
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes={name: value for name, value in given.items() if name.startswith(_TOLD_AT_START)},
        kind=span.kind,
        start_time=span.start_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _encode(value: Json) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
        return _ENCODER.encode(_writable(value))


def _writable(value: Any) -> Any:  # noqa: ANN401 # whatever stands in a span
    """The value in text that UTF-8 can hold; lone surrogates become U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_writable(str(key)): _writable(inner) for key, inner in cast(dict[Any, Any], value).items()}
    if isinstance(value, list):
        return [_writable(inner) for inner in cast(list[Any], value)]
    return value


def _span(span: ReadableSpan) -> Json:
    context = span.get_span_context()
    written: Json = {
        "traceId": f"{context.trace_id:032x}" if context else "",
        "spanId": f"{context.span_id:016x}" if context else "",
        "parentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(int(span.start_time or 0)),
        "attributes": _attributes(span.attributes),
        "status": _status(span),
    }
    if span.end_time is not None:
        written["endTimeUnixNano"] = str(int(span.end_time))
    if span.events:
        written["events"] = [_event(event) for event in span.events]
    if span.links:
        written["links"] = [_link(link) for link in span.links]
    for name, count in (
        ("droppedAttributesCount", span.dropped_attributes),
        ("droppedEventsCount", span.dropped_events),
        ("droppedLinksCount", span.dropped_links),
    ):
        if count:
            written[name] = count
    return written


def _scope(scope: InstrumentationScope | None) -> Json:
    if scope is None:
        return {}
    return {"name": scope.name, "version": scope.version or ""}


def _status(span: ReadableSpan) -> Json:
    status: Json = {"code": span.status.status_code.value} if span.status.status_code.value else {}
    if span.status.description:
        status["message"] = span.status.description
    return status


def _event(event: Any) -> Json:  # noqa: ANN401 # the SDK's Event is deprecated as a name, not as a thing
    if not event.attributes and not event.dropped_attributes:
        return {"timeUnixNano": str(event.timestamp), "name": event.name, "attributes": []}
    dropped = event.dropped_attributes
    return {
        "timeUnixNano": str(event.timestamp),
        "name": event.name,
        "attributes": _attributes(event.attributes),
        **({"droppedAttributesCount": dropped} if dropped else {}),
    }


def _link(link: Any) -> Json:  # noqa: ANN401 # as _event
    return {
        "traceId": f"{link.context.trace_id:032x}",
        "spanId": f"{link.context.span_id:016x}",
        "attributes": _attributes(link.attributes),
    }


def _attributes(attributes: Mapping[str, Any] | None) -> list[Json]:
    return [
        {"key": name, "value": {"stringValue": value} if type(value) is str else _value(value, MAX_DEPTH)}
        for name, value in as_dict(attributes).items()
    ]


def _value(value: Any, depth: int) -> Json:  # noqa: ANN401 # whatever stands in a span
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _not_finite(value)}
    if isinstance(value, str):
        return {"stringValue": str(value)}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if depth == 0:
        return {"stringValue": repr(value)}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs(cast(Mapping[Any, Any], value).items(), depth - 1)}}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_value(inner, depth - 1) for inner in cast(Sequence[Any], value)]}}
    return {"stringValue": str(value)}


def _pairs(pairs: Iterable[tuple[Any, Any]], depth: int) -> list[Json]:
    return [{"key": str(name), "value": _value(value, depth)} for name, value in pairs]


def _not_finite(value: float) -> str:
    """As protobuf's JSON mapping spells it."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
