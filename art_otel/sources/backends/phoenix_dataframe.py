"""Phoenix dataframe: what `get_spans_dataframe` returns, saved with `to_parquet`.

A column an attribute (`attributes.llm.model_name`), nested below what OpenInference names, so that they are flattened
back. pandas makes whole numbers of a column with gaps doubles (`11.0`), and null and NaN mean that there is no value.
Invariant: as `json_spans`.

Source of the format: `phoenix/session/client.py` and `phoenix/trace/attributes.py` of arize-phoenix.
"""

import io
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from art_otel.sources.backends.json_spans import Translator, read_spans
from art_otel.sources.backends.nested import flatten
from art_otel.sources.backends.plain_records import plain
from art_otel.sources.backends.table_rows import read_rows
from art_otel.sources.backends.times import as_ns
from art_otel.sources.format import Format, Reading, Record, Row, Table
from art_otel.sources.json_text.heads import objects_in_head
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.sources.refusals import Refused
from art_otel.spans import Resource, Scope, Value

_Time: TypeAlias = int | str
_TRACE_ID: Final = "context.trace_id"
_SPAN_ID: Final = "context.span_id"
_PREFIX: Final = "attributes."
_SPAN_KIND: Final = "openinference.span.kind"
_UNKNOWN: Final = "UNKNOWN"


class _Event(msgspec.Struct):
    name: str | None = None
    timestamp: _Time | None = None
    attributes: dict[str, Value] | None = None


class _Row(msgspec.Struct):
    """The columns that every dataframe has."""

    trace_id: str | None = msgspec.field(name=_TRACE_ID, default=None)
    span_id: str | None = msgspec.field(name=_SPAN_ID, default=None)
    parent_id: str | None = None
    name: str | None = None
    span_kind: str | None = None
    start_time: _Time | None = None
    end_time: _Time | None = None
    status_code: str | None = None
    status_message: str | None = None
    events: list[_Event] | None = None


_TRANSLATOR: Final = Translator(message=dict[str, Value], trace_id=_TRACE_ID, span_id=_SPAN_ID)


def _detects(head: bytes) -> bool:
    return any(row.keys() >= {_TRACE_ID, _SPAN_ID} for row in objects_in_head(head))


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    return read_spans(stream, reading, _TRANSLATOR, _to_otlp)


def _reads_rows(rows: Iterable[Row], reading: Reading) -> Iterator[Record]:
    return read_rows(rows, reading, (_TRACE_ID, _SPAN_ID), _to_otlp)


_IDS: Final = frozenset({_TRACE_ID, _SPAN_ID})

FORMAT: Final = Format(
    name="phoenix-dataframe",
    detects=_detects,
    reads=_reads,
    lacks=(
        "resource attributes",
        "instrumentation scope",
        "span kind",
        "links",
        "nanoseconds",
        "whole numbers apart from others",
        "digits of numbers in lists beyond ten",
        "dropped counts",
    ),
    table=Table(
        ids=_IDS,
        others=frozenset(field.encode_name for field in msgspec.structs.fields(_Row)) - _IDS,
        prefix=_PREFIX,
        reads=_reads_rows,
    ),
)


def _to_otlp(row: dict[str, Value], place: str) -> tuple[otlp.Span, Batch]:
    try:
        known = msgspec.convert(row, _Row)
    except msgspec.ValidationError as error:
        raise Refused("bad field", detail=str(error)) from error
    span = otlp.Span(
        trace_id=_TRANSLATOR.trace(known.trace_id),
        span_id=_TRANSLATOR.span(known.span_id),
        parent_span_id=_TRANSLATOR.span(known.parent_id),
        name=known.name,
        start_time_unix_nano=as_ns(known.start_time, "start_time"),
        end_time_unix_nano=as_ns(known.end_time, "end_time"),
        attributes=plain(_attributes(row, known.span_kind)),
        events=[_event(event) for event in known.events or ()],
        status=otlp.Status(message=known.status_message, code=f"STATUS_CODE_{known.status_code or 'UNSET'}"),
    )
    return span, Batch(place=place, resource=Resource(), scope=Scope())


def _attributes(row: dict[str, Value], span_kind: str | None) -> dict[str, Value]:
    nested = {name.removeprefix(_PREFIX): value for name, value in row.items() if name.startswith(_PREFIX)}
    attributes = flatten(nested)
    if span_kind and span_kind != _UNKNOWN:
        attributes.setdefault(_SPAN_KIND, span_kind)
    return attributes


def _event(event: _Event) -> otlp.Event:
    return otlp.Event(
        name=event.name,
        time_unix_nano=as_ns(event.timestamp, "events.timestamp"),
        attributes=plain(flatten(event.attributes or {})),
    )
