"""Jaeger's own JSON: what its UI downloads and its `/api/traces` answers, `{"data": [trace, …]}`, or a trace a line.

A trace is `{"traceID", "spans": […], "processes": {…}}`. Times are microseconds, lists are JSON text, and links to
other spans are references without attributes. Invariant: as `store_spans`; a span is read with its resource beside it.

Source of the format: https://www.jaegertracing.io/docs/latest/apis/, the types of `model/json` in Jaeger 1, and, for
what OTel puts into it, https://opentelemetry.io/docs/specs/otel/common/mapping-to-non-otlp/.
"""

from functools import partial
from typing import Final

from art_otel.sources.backends import jaeger_messages as jaeger
from art_otel.sources.backends.otel_tags import read_tags
from art_otel.sources.backends.plain_spans import plain
from art_otel.sources.backends.store_spans import TranslatedSpan, Translator, read_spans
from art_otel.sources.backends.times import decode_exactly, us_to_ns
from art_otel.sources.format import Format
from art_otel.sources.json_text.values import head_detector, is_object
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.refusals import MAX_NAME, Refused, converted
from art_otel.spans import Value

_OWN_TAGS: Final = frozenset({"internal.span.format", "w3c.tracestate"})
_EVENT: Final = "event"


def _spans_of(trace: dict[str, Value]) -> list[dict[str, Value] | Refused]:
    """Give the spans of a trace, each with the resource of its process, and what is bad of those. Raises Refused."""
    if "spans" not in trace and "errors" in trace:
        return []  # an answer without traces
    spans = converted(trace, jaeger.Trace).spans
    processes = trace.get("processes")
    resources: dict[str, dict[str, Value]] = {}
    problems: list[dict[str, Value] | Refused] = []
    for name, process in processes.items() if is_object(processes) else ():
        resources[name], problem = _resource(process, f"processes.{name[:MAX_NAME]}")
        problems += [problem] if problem else []
    if processes is not None and not is_object(processes):
        problems.append(Refused("bad field", "processes", "no object"))
    return problems + [{**span, "resource": resources.get(str(span.get("processID")))} for span in spans]


def _resource(value: Value, where: str) -> tuple[dict[str, Value], Refused | None]:
    """Read what a process says of its spans, and what is bad of it. It stands at `where`."""
    service: dict[str, Value] = {}
    try:
        process = converted(value, jaeger.Process, strict=True)
        if process.service_name:
            service["service.name"] = process.service_name
        return {**service, **jaeger.values_of(process.tags)}, None
    except Refused as problem:
        return service, Refused(problem.reason, f"{where}.{problem.where}".rstrip("."), problem.detail)


def _to_otlp(row: jaeger.Span) -> TranslatedSpan:
    tagged = read_tags({name: value for name, value in jaeger.values_of(row.tags).items() if name not in _OWN_TAGS})
    parent_id, links = _relations(row)
    start, duration = us_to_ns(row.start_time, "startTime"), us_to_ns(row.duration, "duration")
    span = otlp.Span(
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_span_id=parent_id,
        name=row.name,
        kind=tagged.kind,
        start_time_unix_nano=start,
        end_time_unix_nano=None if start is None or duration is None else start + duration,
        attributes=plain(tagged.attributes),
        events=[_event(log) for log in row.logs or ()],
        links=links,
        status=tagged.status,
        dropped_attributes_count=tagged.dropped_attributes,
        dropped_events_count=tagged.dropped_events,
        dropped_links_count=tagged.dropped_links,
    )
    return TranslatedSpan(span, row.resource or {}, tagged.scope)


def _relations(row: jaeger.Span) -> tuple[str | None, list[otlp.Link]]:
    """Find the parent, the first CHILD_OF of the same trace, and the links, which are all other references."""
    parent_id = None
    links: list[otlp.Link] = []
    for reference in row.references or ():
        if parent_id is None and reference.kind == "CHILD_OF" and _is_same_id(reference.trace_id, row.trace_id):
            parent_id = reference.span_id
        else:
            links.append(otlp.Link(trace_id=reference.trace_id, span_id=reference.span_id))
    return parent_id, links


def _is_same_id(first: str | None, second: str | None) -> bool:
    return (first or "").lower().lstrip("0") == (second or "").lower().lstrip("0")


def _event(log: jaeger.Log) -> otlp.Event:
    fields = jaeger.values_of(log.fields)
    name = fields.pop(_EVENT, None)
    return otlp.Event(
        time_unix_nano=us_to_ns(log.timestamp, "logs.timestamp"),
        name=None if name is None else str(name),
        attributes=plain(fields),
    )


_TRANSLATOR: Final = Translator(
    message=jaeger.Span,
    to_otlp=_to_otlp,
    spans_of=_spans_of,
    holders=frozenset({"data", "spans"}),
    trace_id="traceID",
    span_id="spanID",
    padded=True,
    decode=decode_exactly,
)

FORMAT: Final = Format(
    name="jaeger-json",
    detects=head_detector(lambda trace: "spans" in trace and bool(trace.keys() & {"traceID", "processes"})),
    reads=partial(read_spans, translator=_TRANSLATOR),
    lacks=("types of lists", "nanoseconds", "attributes of links"),
)
