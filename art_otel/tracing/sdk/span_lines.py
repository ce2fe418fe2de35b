"""SpanLines: an SDK span as one line of OTLP JSON, which is how the spool and every dump hold it.

Invariant: a span that any attribute value can be on becomes a line that any OTLP reader takes; writing it never raises
for what stands in the span. So live and dump are the same bytes, read by the same reader. The line of a start, which a
crash leaves as the only trace of a span, says what `start_of` gives.

Source of the format: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/
"""

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status

from art_otel.spans import Attributes, JsonObject, Value

MAX_DEPTH: Final = 24
"""Receivers stop at 100 protobuf messages inside each other, which are 32 dicts; deeper values become their repr."""

_ENCODER: Final = msgspec.json.Encoder()


_IDS: Final = b'{"traceId":"%032x","spanId":"%016x",%b"startTimeUnixNano":"%d",'
_NO_IDS: Final = b'{"traceId":"","spanId":"",%b"startTimeUnixNano":"%d",'
_PARENT: Final = b'"parentSpanId":"%016x",'
_MAX_HEADS: Final = 256


class OtlpJsonEncoder:
    """Writes spans as lines. Resources and scopes are encoded once."""

    def __init__(self) -> None:
        self._heads: dict[tuple[int, int], tuple[object, bytes]] = {}

    def line(self, span: ReadableSpan) -> bytes:
        """The line of a span; one that has not ended has no end time."""
        context, parent = span.get_span_context(), span.parent
        rest = (b"" if parent is None else _PARENT % parent.span_id, span.start_time or 0)
        ids = _NO_IDS % rest if context is None else _IDS % (context.trace_id, context.span_id, *rest)
        head = self._head(span.resource, span.instrumentation_scope)
        return b"%b%b%b]}]}]}\n" % (head, ids, memoryview(_encode(_body(span)))[1:])

    def _head(self, resource: Resource, scope: InstrumentationScope | None) -> bytes:
        key = (id(resource), id(scope))
        shared, head = self._heads.get(key, (None, b""))
        if shared is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            encoded = (_encode({"attributes": _attributes(resource.attributes)}), _encode(_scope(scope)))
            head = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":%b,"spans":[' % encoded
            self._heads[key] = ((resource, scope), head)  # held, so that no other gets their ids
        return head


def _encode(value: JsonObject) -> bytes:
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


def _body(span: ReadableSpan) -> JsonObject:
    written: JsonObject = {
        "name": span.name,
        "kind": span.kind.value + 1,
        "attributes": _attributes(span.attributes),
        "status": _status(span.status),
    }
    if span.end_time is not None:
        written["endTimeUnixNano"] = str(int(span.end_time))
    if events := span.events:
        written["events"] = [_event(event) for event in events]
    if links := span.links:
        written["links"] = [_link(link) for link in links]
    if count := span.dropped_attributes:
        written["droppedAttributesCount"] = count
    if count := span.dropped_events:
        written["droppedEventsCount"] = count
    if count := span.dropped_links:
        written["droppedLinksCount"] = count
    return written


def _scope(scope: InstrumentationScope | None) -> JsonObject:
    if scope is None:
        return {}
    return {"name": scope.name, "version": scope.version or ""}


def _status(status: Status) -> JsonObject:
    written: JsonObject = {"code": status.status_code.value} if status.status_code.value else {}
    if status.description:
        written["message"] = status.description
    return written


def _event(event: Any) -> JsonObject:  # noqa: ANN401 # the SDK's Event is deprecated as a name, not as a thing
    if not event.attributes and not event.dropped_attributes:
        return {"timeUnixNano": str(event.timestamp), "name": event.name, "attributes": []}
    dropped = event.dropped_attributes
    return {
        "timeUnixNano": str(event.timestamp),
        "name": event.name,
        "attributes": _attributes(event.attributes),
        **({"droppedAttributesCount": dropped} if dropped else {}),
    }


def _link(link: Any) -> JsonObject:  # noqa: ANN401 # as _event
    return {
        "traceId": f"{link.context.trace_id:032x}",
        "spanId": f"{link.context.span_id:016x}",
        "attributes": _attributes(link.attributes),
    }


def _attributes(attributes: Mapping[str, Any] | None) -> list[JsonObject]:
    return [
        {"key": name, "value": {"stringValue": value} if type(value) is str else _value(value, MAX_DEPTH)}
        for name, value in as_dict(attributes).items()
    ]


def _value(value: Any, depth: int) -> JsonObject:  # noqa: ANN401 # whatever stands in a span
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


def _pairs(pairs: Iterable[tuple[Any, Any]], depth: int) -> list[JsonObject]:
    return [{"key": str(name), "value": _value(value, depth)} for name, value in pairs]


def _not_finite(value: float) -> str:
    """Spell a number that is not finite as protobuf's JSON mapping does."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_START_ATTRIBUTES: Final = (
    *("art.rollout.", "art.group.", "art.split", "art.training.", "art.policy.", "art.step.", "art.metadata."),
    "art.untrained",
    *("gen_ai.operation.name", "gen_ai.request.model", "openinference.span.kind", "llm.request.type"),
)


def start_of(span: Span) -> ReadableSpan:
    """Return what is recorded of a running span: its name, ids, time, and the attributes that say what it is.

    Instrumentors put content on a span when it starts; that is recorded once, when the span has ended.
    """
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes={
            name: value for name, value in as_dict(span.attributes).items() if name.startswith(_START_ATTRIBUTES)
        },
        kind=span.kind,
        start_time=span.start_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def as_dict(attributes: Attributes | None) -> dict[str, Value]:
    """A copy of attributes. The SDK's own `copy` is many times as fast as reading them one by one."""
    if not attributes:
        return {}
    copy = cast(Callable[[], Mapping[str, Value]] | None, getattr(attributes, "copy", None))
    copied = attributes if copy is None else copy()
    return cast(dict[str, Value], copied) if type(copied) is dict else dict(copied)
