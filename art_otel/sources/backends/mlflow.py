"""Traces of MLflow 3 and 2 as JSON: `Trace.to_dict()` or `Trace.to_json()`, in a list or one a line.

A trace is `{"info": …, "data": {"spans": […]}}`. Attributes are JSON texts; ids are base64, in some versions and in
links hex, where a trace is `tr-…` or `trace:/LOCATION/…`. The resource's attributes are tags of the trace. Invariant:
as `json_spans`; a trace that is no JSON gives those of its spans that are.

Source of the format: as for `mlflow_messages`.
"""

import io
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, cast

import msgspec

from art_otel.sources.backends import mlflow_messages as mlflow
from art_otel.sources.backends.json_spans import Found, Spelling, decode_sound, read_broken, read_each, read_span
from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.frame import Frame
from art_otel.sources.json_text.scan import object_end, object_keys
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.sources.refusals import Refused
from art_otel.spans import Resource, Scope, Value

_OWN_TAGS: Final = "mlflow."
_OWN_ID: Final = "mlflow.traceRequestId"
_TRACE_PREFIX: Final = re.compile(r"(?:trace:/.*/)?(?:tr-)?")
_TRACES: Final = Frame(
    begins=re.compile(rb'\{\s*+"info"\s*+:\s*+\{\s*+"(?:trace_id|request_id)"\s*+:'),
    names=frozenset({b"info", b"data"}),
)
_TEXT_NAMES: Final = rb'"(?:request|response)"\s*+:\s*+'
_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+'
_LONG: Final = re.compile(
    _TRACES.begins.pattern
    + rb'|\{\s*+"data"\s*+:\s*+\{\s*+(?:%b(?:%b"|null)\s*+,\s*+)*+' % (_TEXT_NAMES, _TEXT)
    + rb'(?:"spans"\s*+:|%b%b\\?\Z)' % (_TEXT_NAMES, _TEXT),
    re.DOTALL,
)
_SPELLING: Final = Spelling(
    frame=Frame(
        begins=re.compile(
            rb'\{\s*+"trace_id"\s*+:\s*+"[^"\\]*+"\s*+,\s*+"span_id"\s*+:\s*+"[^"\\]*+"\s*+,\s*+"parent|'
            rb'\{\s*+"name"\s*+:\s*+"(?:[^"\\]++|\\.)*+"\s*+,\s*+"context"\s*+:\s*+\{\s*+"(?:span|trace)_id"\s*+:'
        ),
        names=frozenset({b"trace_id", b"span_id", b"start_time_unix_nano"}),
    ),
    decoder=msgspec.json.Decoder(mlflow.Span, strict=False),
    trace_id=re.compile(rb'"(?:otel_)?trace_id"\s*+:\s*+"(?:trace:/[^"\\]*/)?(?:tr-)?((?:0x)?[\w+/=-]{22,32})"'),
    span_id=re.compile(rb'"span_id"\s*+:\s*+"((?:0x)?[\w+/=-]{11,16})"'),
)
_TRACE: Final = msgspec.json.Decoder(mlflow.Trace)
_INFO: Final = msgspec.json.Decoder(mlflow.Info, strict=False)
_VALUE: Final = msgspec.json.Decoder()


def _detects(head: bytes) -> bool:
    return _TRACES.first_keys(head) >= _TRACES.names or _begins_long(head)


def _begins_long(head: bytes) -> bool:
    """Whether a trace begins the dump of whose two parts the first hides the second: agents write megabytes."""
    start = _TRACES.first(head)
    if not _LONG.match(head, start):
        return False
    end = object_end(head, start, len(head))
    return end is None or object_keys(head, start, end) >= _TRACES.names


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = PlainRecords(reading)
    return read_each(stream, reading, _TRACES, lambda found: _trace(found, records))


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
        trace = decode_sound(_TRACE, found.data)
    except Refused as problem:
        yield from read_broken(found, records, _SPELLING, partial(_build, resource=Resource()), problem)
        return
    resource = _resource(bytes(trace.info))
    for span in trace.data.spans:
        at = Found(data=bytes(span), place=found.place)
        yield from read_span(at, records, _SPELLING, partial(_build, resource=resource))


def _resource(info: bytes) -> Resource:
    """The tags of a trace that are not MLflow's own: the resource's attributes, and what people tagged."""
    try:
        tags = decode_sound(_INFO, info).tags or {}
    except Refused:
        tags = {}
    return Resource(attributes={name: value for name, value in tags.items() if not name.startswith(_OWN_TAGS)})


def _build(found: mlflow.Span, place: str, *, resource: Resource) -> tuple[otlp.Span, Batch]:
    status = found.status or mlflow.Status()
    code = status.code if status.code is not None else "UNSET"
    span = otlp.Span(
        trace_id=_trace_id(found.otel_trace_id or found.trace_id),
        span_id=_SPELLING.span(found.span_id),
        parent_span_id=_SPELLING.span(found.parent_span_id),
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


def _trace_id(text: str | None) -> str | None:
    """A trace id as OTLP has it; `tr-` and `trace:/` are in no base64."""
    return _SPELLING.trace(_TRACE_PREFIX.sub("", text, count=1) if text else None)


def _event(event: mlflow.Event) -> otlp.Event:
    return otlp.Event(
        name=event.name,
        time_unix_nano=event.time_unix_nano or event.timestamp,
        attributes=plain(event.attributes),
    )


def _link(link: mlflow.Link) -> otlp.Link:
    return otlp.Link(
        trace_id=_trace_id(link.trace_id),
        span_id=_SPELLING.span(link.span_id),
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
