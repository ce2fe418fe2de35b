"""Jaeger's own JSON: what its UI downloads and its `/api/traces` answers, `{"data": [trace, …]}`, or a trace a line.

A trace is `{"traceID", "spans": […], "processes": {…}}`. Times are microseconds, lists are JSON text, and links to
other spans are references without attributes. Invariant: as `store_spans`; a span is read with its resource beside it,
and a trace whose processes cannot be read is none.

Source of the format: https://www.jaegertracing.io/docs/latest/apis/, the types of `model/json` in Jaeger 1, and, for
what OTel puts into it, https://opentelemetry.io/docs/specs/otel/common/mapping-to-non-otlp/.
"""

import binascii
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from art_otel.sources.backends.otel_tags import read_tags
from art_otel.sources.backends.store_spans import TranslatedSpan, Translator, plain, read_spans
from art_otel.sources.backends.values import Number, decode_exactly, us_to_ns
from art_otel.sources.format import MAX_NAME, Refused, SourceFormat, converted
from art_otel.sources.json_documents import head_detector
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value

_READ: Final[dict[str, Callable[[Value], Value]]] = {
    "int64": int,
    "float64": float,
    "bool": {"true": True, "false": False}.__getitem__,
    "binary": partial(binascii.a2b_base64, strict_mode=True),
}


class _Tag(msgspec.Struct):
    """A named value."""

    key: str = ""
    type: str = ""
    value: Value = None


class _Reference(msgspec.Struct, rename={"trace_id": "traceID", "span_id": "spanID", "kind": "refType"}):
    """A pointer to another span; `kind` is CHILD_OF or FOLLOWS_FROM."""

    trace_id: str | None = None
    span_id: str | None = None
    kind: str = ""


class _Log(msgspec.Struct):
    """A moment in a span."""

    timestamp: Number | None = None
    fields: list[_Tag] | None = None


class _Process(msgspec.Struct, rename="camel"):
    """What produced spans: a service instance."""

    service_name: str | None = None
    tags: list[_Tag] | None = None


_SPAN_NAMES: Final = {
    "trace_id": "traceID",
    "span_id": "spanID",
    "name": "operationName",
    "start_time": "startTime",
}


class _Span(msgspec.Struct, rename=_SPAN_NAMES):
    """An operation. Times are microseconds. `resource` is made of its process."""

    trace_id: str | None = None
    span_id: str | None = None
    name: str | None = None
    start_time: Number | None = None
    duration: Number | None = None
    references: list[_Reference] | None = None
    tags: list[_Tag] | None = None
    logs: list[_Log] | None = None
    resource: dict[str, Value] | None = None


class _Trace(msgspec.Struct):
    """The spans of a trace, not decoded, and what produced them."""

    spans: list[dict[str, Value]]
    processes: dict[str, _Process] | None = None


def _values_of(tags: list[_Tag] | None) -> dict[str, Value]:
    """Give the values of tags by name. Raises Refused."""
    return {tag.key: _value(tag) for tag in tags or ()}


def _value(tag: _Tag) -> Value:
    """Read a value. Whole numbers over 53 bits are texts, bytes base64, and a float64 may look like a whole number."""
    read = _READ.get(tag.type) if isinstance(tag.value, str) or tag.type == "float64" else None
    try:
        return tag.value if read is None else read(tag.value)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise Refused("bad field", f"tags[{tag.key[:MAX_NAME]!r}]", f"no {tag.type}: {error}") from None


_OWN_TAGS: Final = frozenset({"internal.span.format", "w3c.tracestate"})
_EVENT: Final = "event"


def _spans_of(value: dict[str, Value]) -> list[dict[str, Value]]:
    """Give the spans of a trace, each with the resource of its process. Raises Refused."""
    if "spans" not in value and "errors" in value:
        return []  # an answer without traces
    trace = converted(value, _Trace)
    resources = {name: _resource(process) for name, process in (trace.processes or {}).items()}
    return [{**span, "resource": resources.get(str(span.get("processID")))} for span in trace.spans]


def _resource(process: _Process) -> dict[str, Value]:
    service: dict[str, Value] = {"service.name": process.service_name} if process.service_name else {}
    return {**service, **_values_of(process.tags)}


def _to_otlp(row: _Span) -> TranslatedSpan:
    tagged = read_tags({name: value for name, value in _values_of(row.tags).items() if name not in _OWN_TAGS})
    parent_id, links = _relations(row)
    start, duration = us_to_ns(row.start_time, "startTime"), us_to_ns(row.duration, "duration")
    span = msgspec.structs.replace(
        tagged.span,
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_span_id=parent_id,
        name=row.name,
        start_time_unix_nano=start,
        end_time_unix_nano=None if start is None or duration is None else start + duration,
        events=[_event(log) for log in row.logs or ()],
        links=links,
    )
    return TranslatedSpan(span, row.resource or {}, tagged.scope)


def _relations(row: _Span) -> tuple[str | None, list[otlp.OtlpLink]]:
    """Find the parent, the first CHILD_OF of the same trace, and the links, which are all other references."""
    parent_id = None
    links: list[otlp.OtlpLink] = []
    for reference in row.references or ():
        if parent_id is None and reference.kind == "CHILD_OF" and _is_same_id(reference.trace_id, row.trace_id):
            parent_id = reference.span_id
        else:
            links.append(otlp.OtlpLink(trace_id=reference.trace_id, span_id=reference.span_id))
    return parent_id, links


def _is_same_id(first: str | None, second: str | None) -> bool:
    return (first or "").lower().lstrip("0") == (second or "").lower().lstrip("0")


def _event(log: _Log) -> otlp.OtlpEvent:
    fields = _values_of(log.fields)
    name = fields.pop(_EVENT, None)
    return otlp.OtlpEvent(
        time_unix_nano=us_to_ns(log.timestamp, "logs.timestamp"),
        name=None if name is None else str(name),
        attributes=plain(fields),
    )


_TRANSLATOR: Final = Translator(
    message=_Span,
    to_otlp=_to_otlp,
    spans_of=_spans_of,
    holders=frozenset({"data", "spans"}),
    trace_id="traceID",
    span_id="spanID",
    padded=True,
    decode=decode_exactly,
)

FORMAT: Final = SourceFormat(
    name="jaeger-json",
    detects=head_detector(lambda trace: "spans" in trace and bool(trace.keys() & {"traceID", "processes"})),
    reads=partial(read_spans, translator=_TRANSLATOR),
    not_in_format=("types of lists", "nanoseconds", "attributes of links"),
)
