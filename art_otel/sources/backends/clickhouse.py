"""ClickHouse: rows of `otel_traces`, the table of the collector's ClickHouse exporter, as Parquet or as JSONEachRow.

Attributes are a map of texts, so that numbers and booleans come as text. Lists come as their JSON (`[1,2]`), which is
left as it is, since an attribute may be such a text itself; or as OTLP's own JSON (`{"values":[{"intValue":"1"}]}`),
which nothing else is, so that it becomes the list again. The newer JSON columns (nested objects) are flattened.
Events and links are parallel lists, one a column; or lists of objects, in a table made with `flatten_nested = 0`.
Invariant: as `store_spans`.

Source of the format: `exporter/clickhouseexporter` of opentelemetry-collector-contrib.
"""

import base64
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, Final, TypeAlias, cast

import msgspec

from art_otel.sources.backends.store_spans import TranslatedSpan, Translator, plain, read_rows, read_spans
from art_otel.sources.backends.values import as_ns, flatten
from art_otel.sources.format import Refused, SourceFormat, Table
from art_otel.sources.json_documents import head_detector
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Scope, Value

_Time: TypeAlias = int | str
_NO_LIST: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_LIST_START: Final = '{"values":['
_PAIR: Final = {"key", "value"}
_READ: Final[dict[str, Callable[[Value], Value]]] = {
    "stringValue": str,
    "boolValue": bool,
    "intValue": int,
    "doubleValue": float,
    "bytesValue": base64.b64decode,
    "arrayValue": lambda value: _otlp_values(value["values"]) if value.get("values") else [],
    "kvlistValue": lambda value: _otlp_values(value["values"]) if value.get("values") else {},
}


class _Entry(msgspec.Struct, gc=False):
    key: str
    value: Value = None


_Map: TypeAlias = dict[str, Value] | list[tuple[str, Value] | _Entry]
"""Parquet's maps come as lists of pairs; what a tool without maps (polars) wrote, as lists of entries."""


class _Event(msgspec.Struct, rename="pascal"):
    timestamp: _Time | None = None
    name: str | None = None
    attributes: _Map = {}


class _Link(msgspec.Struct, rename="pascal"):
    trace_id: str | None = None
    span_id: str | None = None
    attributes: _Map = {}


class _Row(msgspec.Struct, rename="pascal", gc=False):
    timestamp: _Time | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    span_name: str | None = None
    span_kind: str | None = None
    resource_attributes: _Map = {}
    scope_name: str | None = None
    scope_version: str | None = None
    span_attributes: _Map = {}
    duration: int | None = None
    status_code: str | None = None
    status_message: str | None = None
    events: list[_Event] = []
    links: list[_Link] = []
    event_times: list[_Time] = msgspec.field(name="Events.Timestamp", default_factory=list[_Time])
    event_names: list[str] = msgspec.field(name="Events.Name", default_factory=list[str])
    event_attributes: list[_Map] = msgspec.field(name="Events.Attributes", default_factory=list[_Map])
    link_trace_ids: list[str] = msgspec.field(name="Links.TraceId", default_factory=list[str])
    link_span_ids: list[str] = msgspec.field(name="Links.SpanId", default_factory=list[str])
    link_attributes: list[_Map] = msgspec.field(name="Links.Attributes", default_factory=list[_Map])


def _to_otlp(row: _Row) -> TranslatedSpan:
    start = as_ns(row.timestamp, "Timestamp")
    flat_events = starmap(_Event, _aligned("Events", row.event_times, row.event_names, row.event_attributes))
    flat_links = starmap(_Link, _aligned("Links", row.link_trace_ids, row.link_span_ids, row.link_attributes))
    span = otlp.OtlpSpan(
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_span_id=row.parent_span_id,
        name=row.span_name,
        kind=_enum("SPAN_KIND_", row.span_kind),
        start_time_unix_nano=start,
        end_time_unix_nano=None if start is None or row.duration is None else start + row.duration,
        attributes=plain(_restored(row.span_attributes)),
        events=[_event(event) for event in row.events or flat_events],
        links=[_link(link) for link in row.links or flat_links],
        status=otlp.OtlpStatus(message=row.status_message, code=_enum("STATUS_CODE_", row.status_code)),
    )
    scope = Scope(name=row.scope_name or "", version=row.scope_version or "")
    return TranslatedSpan(span, _restored(row.resource_attributes), scope)


def _enum(prefix: str, name: str | None) -> str | None:
    """Give OTLP's name: newer exporters write `Client`, older ones `SPAN_KIND_CLIENT`."""
    return name and (name if name.startswith(prefix) else f"{prefix}{name.upper()}")


def _event(event: _Event) -> otlp.OtlpEvent:
    time = as_ns(event.timestamp, "Events.Timestamp")
    return otlp.OtlpEvent(name=event.name, time_unix_nano=time, attributes=plain(_restored(event.attributes)))


def _link(link: _Link) -> otlp.OtlpLink:
    return otlp.OtlpLink(trace_id=link.trace_id, span_id=link.span_id, attributes=plain(_restored(link.attributes)))


def _aligned(name: str, *columns: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    """Join the entries of the parallel lists in which ClickHouse keeps nested records. Raises Refused."""
    if len(set(map(len, columns))) > 1:
        raise Refused("bad field", name, f"its columns have {[len(column) for column in columns]} entries")
    return zip(*columns, strict=True)


def _restored(attributes: _Map) -> dict[str, Value]:
    """Restore each list or dict that stands among the attributes in OTLP's JSON."""
    flat = flatten(attributes if isinstance(attributes, dict) else dict(map(_pair, attributes)))
    for name, value in flat.items():
        if isinstance(value, str) and value.startswith(_LIST_START):
            with contextlib.suppress(*_NO_LIST):  # else it only looked like one, and is the text that it is
                flat[name] = _otlp_values(msgspec.json.decode(value)["values"])
    return flat


def _pair(entry: tuple[str, Value] | _Entry) -> tuple[str, Value]:
    return entry if isinstance(entry, tuple) else (entry.key, entry.value)


def _otlp_values(values: Value) -> Value:
    """Read the items of an ArrayValue or KeyValueList that is not empty. Raises one of _NO_LIST when it is neither."""
    items = cast(list[Mapping[str, Value]], values)
    if not items:
        raise ValueError(items)
    if all(set(item) == _PAIR for item in items):
        return {str(item["key"]): _otlp_value(item["value"]) for item in items}
    return [_otlp_value(item) for item in items]


def _otlp_value(value: Mapping[str, Value]) -> Value:
    ((kind, raw),) = value.items()
    return _READ[kind](raw)


_TRANSLATOR: Final = Translator(message=_Row, to_otlp=_to_otlp, trace_id="TraceId", span_id="SpanId", strict=False)
_IDS: Final = frozenset({"TraceId", "SpanId", "SpanName"})

FORMAT: Final = SourceFormat(
    name="clickhouse",
    detects=head_detector(lambda row: row.keys() >= _IDS),
    reads=partial(read_spans, translator=_TRANSLATOR),
    not_in_format=("types of attribute values", "dropped counts"),
    table=Table(
        ids=_IDS,
        others=frozenset(field.encode_name for field in msgspec.structs.fields(_Row)) - _IDS,
        reads=partial(read_rows, translator=_TRANSLATOR),
    ),
)
