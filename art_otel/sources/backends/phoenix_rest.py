"""Spans from Phoenix's REST API, as its client gives them: a list, an answer `{"data": […]}`, or a span a line.

Phoenix moves the attribute `openinference.span.kind` into `span_kind`; here it is an attribute again. Annotations that
stand with their span (`annotations`, as its command line and `include_annotations` give them) are rewards of the span.
So are annotations in rows of their own (`get_span_annotations`), which name a span, or a trace. Invariant: as
`store_spans`.

Source of the format: `GET /v1/projects/{project}/spans` (https://arize.com/docs/phoenix/sdk-api-reference/rest-api).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from art_otel.sources.backends.judgements import JudgedScore, no_score, reward_span, score_events, score_of
from art_otel.sources.backends.store_spans import SpanContext, TranslatedSpan, Translator, plain, read_spans
from art_otel.sources.backends.values import as_ns, flatten
from art_otel.sources.format import SourceFormat
from art_otel.sources.json_documents import head_detector, is_list, is_object, text_or_none
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value

_SPAN_KIND: Final = "openinference.span.kind"
_UNKNOWN: Final = "UNKNOWN"


class PhoenixEvent(msgspec.Struct):
    """A moment in a span."""

    name: str | None = None
    timestamp: int | str | None = None
    attributes: dict[str, Value] | None = None


class _Annotation(msgspec.Struct, tag_field="record", tag="annotation"):
    """An annotation in a row of its own."""

    fields: dict[str, Value]


class PhoenixSpan(msgspec.Struct, tag_field="record", tag="span"):
    """An operation. A dataframe may have times as numbers."""

    context: SpanContext
    name: str | None = None
    span_kind: str | None = None
    parent_id: str | None = None
    start_time: int | str | None = None
    end_time: int | str | None = None
    status_code: str | None = None
    status_message: str | None = None
    attributes: dict[str, Value] | None = None
    events: list[PhoenixEvent] | None = None
    annotations: Value = None
    span_annotations: Value = None


def to_otlp(row: PhoenixSpan | _Annotation) -> TranslatedSpan:
    """Translate a span, or an annotation. Raises Refused."""
    if isinstance(row, _Annotation):
        score = next(annotation_scores([row.fields]), None)
        if score is None:
            raise no_score("result")
        trace_id, span_id = (text_or_none(row.fields.get(name)) for name in ("trace_id", "span_id"))
        return reward_span(score, trace_id=trace_id, span_id=span_id)
    attributes = flatten(row.attributes or {})
    if row.span_kind and row.span_kind != _UNKNOWN:
        attributes.setdefault(_SPAN_KIND, row.span_kind)
    start_ns, end_ns = as_ns(row.start_time, "start_time"), as_ns(row.end_time, "end_time")
    judged = [*annotation_scores(row.annotations), *annotation_scores(row.span_annotations)]
    span = otlp.OtlpSpan(
        trace_id=row.context.trace_id,
        span_id=row.context.span_id,
        parent_span_id=row.parent_id,
        name=row.name,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
        attributes=plain(attributes),
        events=[*(_event(event) for event in row.events or ()), *score_events(judged, end_ns or start_ns)],
        status=otlp.OtlpStatus(code=f"STATUS_CODE_{row.status_code or 'UNSET'}", message=row.status_message),
    )
    return TranslatedSpan(span)


def annotation_scores(annotations: Value) -> Iterator[JudgedScore]:
    """The scores of annotations: a list of them, or an object with one, or several, for each name."""
    listed: Iterable[Value] = annotations if is_list(annotations) else ()
    if is_object(annotations):
        named = ((name, one if is_list(one) else [one]) for name, one in annotations.items())
        listed = [{"name": name, **one} for name, several in named for one in several if is_object(one)]
    for one in listed:
        if not is_object(one):
            continue
        result = one.get("result")
        said = result if is_object(result) else one
        score = score_of(
            one.get("name", one.get("annotation_name")),
            said.get("score"),
            label=said.get("label"),
            explanation=said.get("explanation"),
            time=one.get("updated_at") or one.get("created_at"),
        )
        if score is not None:
            yield score


def _event(event: PhoenixEvent) -> otlp.OtlpEvent:
    time = as_ns(event.timestamp, "events.timestamp")
    return otlp.OtlpEvent(name=event.name, time_unix_nano=time, attributes=plain(flatten(event.attributes or {})))


def _is_annotation(row: Mapping[str, Value]) -> bool:
    return {"name", "annotator_kind", "result"} <= row.keys() and not row.keys().isdisjoint(("span_id", "trace_id"))


def _rows(row: dict[str, Value]) -> Iterator[dict[str, Value]]:
    yield {"record": "annotation", "fields": row} if _is_annotation(row) else {**row, "record": "span"}


_ROW: Final[Any] = PhoenixSpan | _Annotation

FORMAT: Final = SourceFormat(
    name="phoenix-json",
    detects=head_detector(lambda row: row.keys() >= {"context", "span_kind"} or _is_annotation(row)),
    reads=partial(read_spans, translator=Translator(message=_ROW, to_otlp=to_otlp, spans_of=_rows)),
    not_in_format=(
        "resource attributes",
        "instrumentation scope",
        "span kind",
        "links",
        "nanoseconds",
        "dropped counts",
    ),
)
