"""Traces of MLflow 3 and 2 as JSON: `Trace.to_dict()` or `Trace.to_json()`, in a list or one a line.

A trace is `{"info": …, "data": {"spans": […]}}`. Attributes are JSON texts; ids are base64, in some versions and in
links hex, where a trace is `tr-…` or `trace:/LOCATION/…`. The resource's attributes are tags of the trace. Invariant:
as `json_spans`.

Source of the format: as for `mlflow_messages`.
"""

import io
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, cast

import msgspec

from art_otel.sources.backends import mlflow_messages as mlflow
from art_otel.sources.backends.json_spans import Found, Translator, read_objects, read_span
from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.heads import objects_in_head
from art_otel.sources.json_text.kinds import is_object
from art_otel.sources.json_text.lenient import RecordLists
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.sources.refusals import Refused, converted
from art_otel.spans import Quarantined, Resource, Scope, Value

_OWN_TAGS: Final = "mlflow."
_OWN_ID: Final = "mlflow.traceRequestId"
_TRACE_PREFIX: Final = re.compile(r"^(?:trace:/.*/)?(?:tr-)?")
"""Before a trace's id, which as base64 has none of its marks."""
_SPANS: Final = RecordLists(names=frozenset({"data", "spans"}), lists=frozenset({"spans"}))
_TRANSLATOR: Final = Translator(
    message=mlflow.Span, trace_id="trace_id", span_id="span_id", prefix=_TRACE_PREFIX, strict=False
)
_HEAD_BYTES: Final = 1 << 20
"""As many as detection sees of a longer dump."""
_VALUE: Final = msgspec.json.Decoder()


def _detects(head: bytes) -> bool:
    is_cut = len(head) >= _HEAD_BYTES
    return any(_is_trace(value, is_cut=is_cut) for value in objects_in_head(head))


def _is_trace(value: Mapping[str, Value], *, is_cut: bool) -> bool:
    """Whether it is a trace. Of its two parts the first may hide the second: agents write megabytes."""
    info, data = value.get("info"), value.get("data")
    if info is None or data is None:
        is_info = is_object(info) and not info.keys().isdisjoint(("trace_id", "request_id"))
        return is_cut and (is_info or (is_object(data) and not data.keys().isdisjoint(("spans", "request"))))
    return is_object(info) and is_object(data)


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = PlainRecords(reading)
    for found in read_objects(stream, records, _TRANSLATOR, _SPANS):
        yield from (found,) if isinstance(found, Quarantined) else _trace(found, records)


FORMAT: Final = Format(
    name="mlflow-json",
    detects=_detects,
    reads=_reads,
    lacks=(
        "instrumentation scope",
        "span kind",
        "texts that are JSON apart from its values",
        "links (some versions)",
        "assessments",
        "dropped counts",
    ),
)


def _trace(found: Found, records: PlainRecords) -> Iterator[Record]:
    try:
        trace = converted(found.value, mlflow.Trace)
    except Refused as problem:
        yield problem.damage(found.place)
        return
    resource = _resource(trace.info)
    for span in trace.data.spans:
        yield from read_span(Found(span, found.place), records, _TRANSLATOR, partial(_to_otlp, resource=resource))


def _resource(info: object) -> Resource:
    """The tags of a trace that are not MLflow's own: the resource's attributes, and what people tagged."""
    try:
        tags = converted(info, mlflow.Info).tags or {}
    except Refused:
        tags = {}
    return Resource(attributes={name: value for name, value in tags.items() if not name.startswith(_OWN_TAGS)})


def _to_otlp(found: mlflow.Span, place: str, *, resource: Resource) -> tuple[otlp.Span, Batch]:
    status = found.status or mlflow.Status()
    code = status.code if status.code is not None else "UNSET"
    span = otlp.Span(
        trace_id=_TRANSLATOR.trace(found.otel_trace_id or found.trace_id),
        span_id=_TRANSLATOR.span(found.span_id),
        parent_span_id=_TRANSLATOR.span(found.parent_span_id),
        name=found.name,
        start_time_unix_nano=found.start_time_unix_nano,
        end_time_unix_nano=found.end_time_unix_nano,
        attributes=plain(_values(found.attributes or {})),
        events=[_event(event) for event in found.events or ()],
        links=[_link(link) for link in found.links or ()],
        status=otlp.Status(
            code=f"STATUS_CODE_{code.removeprefix('STATUS_CODE_')}" if isinstance(code, str) else code,
            message=status.message,
        ),
    )
    return span, Batch(place=place, resource=resource, scope=Scope())


def _event(event: mlflow.Event) -> otlp.Event:
    return otlp.Event(
        name=event.name,
        time_unix_nano=event.time_unix_nano or event.timestamp,
        attributes=plain(event.attributes),
    )


def _link(link: mlflow.Link) -> otlp.Link:
    return otlp.Link(
        trace_id=_TRANSLATOR.trace(link.trace_id),
        span_id=_TRANSLATOR.span(link.span_id),
        attributes=plain(link.attributes),
    )


def _values(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {
        name: _value(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if name != _OWN_ID
    }


def _value(text: str) -> Value:
    """What a JSON text stands for. Objects and lists of them stay JSON, as instrumentors write them."""
    if text.startswith("{"):
        return text
    try:
        value: Value = _VALUE.decode(text)
    except (ValueError, RecursionError):
        return text
    is_list_of_structures = any(isinstance(item, (dict, list)) for item in _items(value))
    return text if is_list_of_structures else value


def _items(value: Value) -> list[Value]:
    return cast(list[Value], value) if isinstance(value, list) else []
