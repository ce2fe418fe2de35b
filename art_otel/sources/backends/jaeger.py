"""Jaeger's own JSON: what its UI downloads and its `/api/traces` answers, `{"data": [trace, …]}`, or a trace a line.

A trace is `{"traceID", "spans": […], "processes": {…}}`. Times are microseconds, lists are JSON text, and links to
other spans are references without attributes. Invariant: as `json_spans`; a trace that is no JSON gives those of its
spans that are.

Source of the format: https://www.jaegertracing.io/docs/latest/apis/, the types of `model/json` in Jaeger 1, and, for
what OTel puts into it, https://opentelemetry.io/docs/specs/otel/common/mapping-to-non-otlp/.
"""

import io
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from art_otel.sources.backends import jaeger_messages as jaeger
from art_otel.sources.backends.json_spans import (
    Found,
    Spelling,
    decode_object,
    decode_sound,
    read_broken,
    read_each,
    read_span,
)
from art_otel.sources.backends.otel_tags import read_tags
from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.backends.times import us_to_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.frame import Frame
from art_otel.sources.json_text.scan import object_end, object_keys
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch, scope_of
from art_otel.sources.refusals import Refused
from art_otel.spans import Quarantined, Resource

_PROCESSES: Final = re.compile(rb'"processes"\s*+:\s*+(?=\{)')
_OWN_TAGS: Final = frozenset({"internal.span.format", "w3c.tracestate"})
_EVENT: Final = "event"
_TRACES: Final = Frame(
    begins=re.compile(rb'\{\s*+"traceID"\s*+:\s*+"[^"\\]*+"\s*+,\s*+"spans"\s*+:'),
    names=frozenset({b"traceID", b"spans"}),
    around=re.compile(rb'\{\s*+"data"\s*+:\s*+\['),
)
_SPELLING: Final = Spelling(
    frame=Frame(
        begins=re.compile(
            rb'\{\s*+"traceID"\s*+:\s*+"[^"\\]*+"\s*+,\s*+"spanID"\s*+:\s*+"[^"\\]*+"\s*+,\s*+"(?!refType)'
        ),
        names=frozenset({b"traceID", b"spanID", b"startTime"}),
    ),
    decoder=msgspec.json.Decoder(jaeger.Span),
    trace_id=re.compile(rb'"traceID"\s*+:\s*+"([0-9a-fA-F]{1,32})"'),
    span_id=re.compile(rb'"spanID"\s*+:\s*+"([0-9a-fA-F]{1,16})"'),
    padded=True,
)
_TRACE: Final = msgspec.json.Decoder(jaeger.Trace)
_RESOURCES: Final = msgspec.json.Decoder(dict[str, jaeger.Process])


def _detects(head: bytes) -> bool:
    keys = _TRACES.first_keys(head)
    return b"spans" in keys and bool(keys & {b"traceID", b"processes"})


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = PlainRecords(reading)
    return read_each(stream, reading, _TRACES, lambda found: _trace(found, records))


FORMAT: Final = Format(
    name="jaeger-json",
    detects=_detects,
    reads=_reads,
    lacks=("types of lists", "nanoseconds", "attributes of links"),
)


def _trace(found: Found, records: PlainRecords) -> Iterator[Record]:
    try:
        trace = decode_sound(_TRACE, found.data)
    except Refused as problem:
        if _is_error(found.data):
            return
        resources, damages = _resources(_processes_in(found.data), found, records)
        yield from damages
        yield from read_broken(
            found, records, _SPELLING, partial(_build, resources=resources), None if damages else problem
        )
        return
    resources, damages = _resources(bytes(trace.processes), found, records)
    yield from damages
    for span in trace.spans:
        at = Found(data=bytes(span), place=found.place)
        yield from read_span(at, records, _SPELLING, partial(_build, resources=resources))


def _is_error(found: bytes) -> bool:
    """Whether it is one of the `errors` that an answer lists beside its traces, or an answer that has only those."""
    names = object_keys(found, 0, len(found))
    return b"spans" not in names and (names >= {b"code", b"msg"} or names >= {b"data", b"errors"})


def _processes_in(trace: bytes) -> bytes:
    """The processes of a trace that is no JSON; empty when they cannot be found."""
    match = _PROCESSES.search(trace)
    end = object_end(trace, match.end(), len(trace)) if match else None
    return trace[match.end() : end] if match and end else b""


def _resources(processes: bytes, found: Found, records: PlainRecords) -> tuple[dict[str, Resource], list[Quarantined]]:
    """The resources of a trace by process, with a partial Quarantined for what cannot be read of them."""
    if not processes:
        return {}, []
    try:
        decoded = decode_object(_RESOURCES, processes)
    except Refused as problem:
        return {}, [Refused(problem.reason, "processes", problem.detail).damage(found.place, partial=True)]
    resources: dict[str, Resource] = {}
    damages: list[Quarantined] = []
    for name, process in decoded.items():
        resources[name], partly = _resource(process, found.place, records)
        damages += partly
    return resources, damages


def _resource(process: jaeger.Process, place: str, records: PlainRecords) -> tuple[Resource, tuple[Quarantined, ...]]:
    service = {"service.name": process.service_name} if process.service_name else {}
    try:
        attributes = {**service, **jaeger.values_of(process.tags)}
    except Refused as problem:
        return Resource(attributes=dict(service)), (problem.damage(place, partial=True),)
    return records.resource(otlp.Resource(attributes=plain(attributes)), place)


def _build(found: jaeger.Span, place: str, *, resources: Mapping[str, Resource]) -> tuple[otlp.Span, Batch]:
    told = read_tags({name: value for name, value in jaeger.values_of(found.tags).items() if name not in _OWN_TAGS})
    parent, links = _relations(found)
    start, taken = us_to_ns(found.start_time, "startTime"), us_to_ns(found.duration, "duration")
    dropped_attributes, dropped_events, dropped_links = told.dropped
    span = otlp.Span(
        trace_id=_SPELLING.trace(found.trace_id),
        span_id=_SPELLING.span(found.span_id),
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
    own, parent = _SPELLING.trace(found.trace_id), None
    links: list[otlp.Link] = []
    for reference in found.references or ():
        trace, span = _SPELLING.trace(reference.trace_id), _SPELLING.span(reference.span_id)
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
