"""Jaeger's own JSON: what its UI downloads and its `/api/traces` answers, `{"data": [trace, …]}`, or a trace a line.

A trace is `{"traceID", "spans": […], "processes": {…}}`. Times are microseconds, lists are JSON text, and links to
other spans are references without attributes. Invariant: as `json_spans`.

Source of the format: https://www.jaegertracing.io/docs/latest/apis/, the types of `model/json` in Jaeger 1, and, for
what OTel puts into it, https://opentelemetry.io/docs/specs/otel/common/mapping-to-non-otlp/.
"""

import io
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from art_otel.sources.backends import jaeger_messages as jaeger
from art_otel.sources.backends.json_spans import Found, Translator, read_objects, read_span
from art_otel.sources.backends.otel_tags import read_tags
from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.backends.times import decode_exactly, us_to_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.heads import objects_in_head
from art_otel.sources.json_text.lenient import RecordLists
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch, scope_of
from art_otel.sources.refusals import Refused, converted
from art_otel.spans import Quarantined, Resource

_OWN_TAGS: Final = frozenset({"internal.span.format", "w3c.tracestate"})
_EVENT: Final = "event"
_SPANS: Final = RecordLists(names=frozenset({"data", "spans"}), lists=frozenset({"spans"}))
_TRANSLATOR: Final = Translator(message=jaeger.Span, trace_id="traceID", span_id="spanID", padded=True)


def _detects(head: bytes) -> bool:
    return any("spans" in trace and trace.keys() & {"traceID", "processes"} for trace in objects_in_head(head))


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = PlainRecords(reading)
    for found in read_objects(stream, records, _TRANSLATOR, _SPANS, decode=decode_exactly):
        yield from (found,) if isinstance(found, Quarantined) else _trace(found, records)


FORMAT: Final = Format(
    name="jaeger-json",
    detects=_detects,
    reads=_reads,
    lacks=("types of lists", "nanoseconds", "attributes of links"),
)


def _trace(found: Found, records: PlainRecords) -> Iterator[Record]:
    if "spans" not in found.value and "errors" in found.value:
        return  # an answer without traces
    try:
        trace = converted(found.value, jaeger.Trace)
    except Refused as problem:
        yield problem.damage(found.place)
        return
    resources, damages = _resources(trace.processes, found.place, records)
    yield from damages
    for span in trace.spans:
        yield from read_span(Found(span, found.place), records, _TRANSLATOR, partial(_to_otlp, resources=resources))


def _resources(processes: object, place: str, records: PlainRecords) -> tuple[dict[str, Resource], list[Quarantined]]:
    """The resources of a trace by process, with a partial Quarantined for what cannot be read of them."""
    try:
        decoded = converted(processes or {}, dict[str, jaeger.Process], strict=True)
    except Refused as problem:
        return {}, [Refused(problem.reason, "processes", problem.detail).damage(place, partial=True)]
    resources: dict[str, Resource] = {}
    damages: list[Quarantined] = []
    for name, process in decoded.items():
        resources[name], partly = _resource(process, place, records)
        damages += partly
    return resources, damages


def _resource(process: jaeger.Process, place: str, records: PlainRecords) -> tuple[Resource, tuple[Quarantined, ...]]:
    service = {"service.name": process.service_name} if process.service_name else {}
    try:
        attributes = {**service, **jaeger.values_of(process.tags)}
    except Refused as problem:
        return Resource(attributes=dict(service)), (problem.damage(place, partial=True),)
    return records.resource(otlp.Resource(attributes=plain(attributes)), place)


def _to_otlp(found: jaeger.Span, place: str, *, resources: Mapping[str, Resource]) -> tuple[otlp.Span, Batch]:
    told = read_tags({name: value for name, value in jaeger.values_of(found.tags).items() if name not in _OWN_TAGS})
    parent, links = _relations(found)
    start, taken = us_to_ns(found.start_time, "startTime"), us_to_ns(found.duration, "duration")
    dropped_attributes, dropped_events, dropped_links = told.dropped
    span = otlp.Span(
        trace_id=_TRANSLATOR.trace(found.trace_id),
        span_id=_TRANSLATOR.span(found.span_id),
        parent_span_id=parent,
        name=found.name,
        kind=told.kind,
        start_time_unix_nano=start,
        end_time_unix_nano=None if start is None or taken is None else start + taken,
        attributes=plain(told.attributes),
        events=[_event(log) for log in found.logs or ()],
        links=links,
        status=told.status,
        dropped_attributes_count=dropped_attributes,
        dropped_events_count=dropped_events,
        dropped_links_count=dropped_links,
    )
    resource = resources.get(found.process_id or "", Resource())
    return span, Batch(place=place, resource=resource, scope=scope_of(told.scope))


def _relations(found: jaeger.Span) -> tuple[str | None, list[otlp.Link]]:
    """The first CHILD_OF of the same trace is the parent; all else that is referred to is linked."""
    own, parent = _TRANSLATOR.trace(found.trace_id), None
    links: list[otlp.Link] = []
    for reference in found.references or ():
        trace, span = _TRANSLATOR.trace(reference.trace_id), _TRANSLATOR.span(reference.span_id)
        if parent is None and reference.kind == "CHILD_OF" and trace == own:
            parent = span
        else:
            links.append(otlp.Link(trace_id=trace, span_id=span))
    return parent, links


def _event(log: jaeger.Log) -> otlp.Event:
    fields = jaeger.values_of(log.fields)
    name = fields.pop(_EVENT, None)
    return otlp.Event(
        time_unix_nano=us_to_ns(log.timestamp, "logs.timestamp"),
        name=None if name is None else str(name),
        attributes=plain(fields),
    )
