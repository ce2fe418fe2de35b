"""Traces of MLflow 3 and 2 as JSON: `Trace.to_dict()` or `Trace.to_json()`, in a list or one a line.

A trace is `{"info": …, "data": {"spans": […]}}`. Attributes are JSON texts; ids are base64, in some versions and in
links hex, where a trace is `tr-…` or `trace:/LOCATION/…`. The resource's attributes are tags of the trace; other tags,
and the metadata of the trace, are the rollout's metadata. Feedback is a reward of its span, or of the whole trace;
expectations are metadata. Of assessments that were corrected only the last counts. Invariant: as `store_spans`; a span
is read with what its trace says beside it.

Source of the format: `mlflow/entities/trace.py`, `span.py` and `assessment.py`, `to_dict` of each.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from art_otel.sources.backends.judgements import JudgedScore, metadata_of, score_events, score_of, trace_facts
from art_otel.sources.backends.store_spans import SpanContext, TranslatedSpan, Translator, plain, read_spans
from art_otel.sources.format import SourceFormat, converted
from art_otel.sources.json_documents import is_list, is_object, objects_in_head
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value


class _Event(msgspec.Struct):
    """A moment in a span. `timestamp` is its time in MLflow 2."""

    name: str | None = None
    time_unix_nano: int | None = None
    timestamp: int | None = None
    attributes: dict[str, Value] | None = None


class _Link(msgspec.Struct):
    """A pointer to a span of any trace."""

    trace_id: str | None = None
    span_id: str | None = None
    attributes: dict[str, Value] | None = None


class _Status(msgspec.Struct):
    """How an operation ended."""

    code: str | int | None = None
    message: str | None = None


class _Span(msgspec.Struct):
    """An operation, with the tags of its trace. Only MLflow 2 writes `context` and what follows it."""

    trace_id: str | None = None
    otel_trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    start_time_unix_nano: int | None = None
    end_time_unix_nano: int | None = None
    attributes: dict[str, Value] | None = None
    events: list[_Event] | None = None
    links: list[_Link] | None = None
    status: _Status | None = None
    tags: dict[str, Value] = {}
    facts: dict[str, Value] = {}
    scores: list[JudgedScore] = []
    context: SpanContext | None = None
    parent_id: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    status_code: str | int | None = None
    status_message: str | None = None

    def __post_init__(self) -> None:
        if self.context is None:
            return
        self.trace_id, self.span_id = self.context.trace_id, self.context.span_id
        self.parent_span_id = self.parent_id
        self.start_time_unix_nano, self.end_time_unix_nano = self.start_time, self.end_time
        self.status = _Status(code=self.status_code, message=self.status_message)


class _Data(msgspec.Struct):
    """The spans of a trace, not decoded."""

    spans: list[dict[str, Value]]


class _Trace(msgspec.Struct):
    """A trace without its info."""

    data: _Data


_OWN_TAGS: Final = "mlflow."
_OWN_ID: Final = "mlflow.traceRequestId"
_TRACE_NAME: Final = "mlflow.traceName"
_OF_RESOURCE: Final = re.compile(r"(art|service|telemetry|process|host|os|container|k8s|cloud|deployment|faas)\.")
"""Tags that are attributes of OpenTelemetry's resource."""

_TRACE_PREFIX: Final = re.compile(r"^(?:trace:/.*/)?(?:tr-)?")
"""Before a trace's id, which as base64 has none of its marks."""
_HEAD_BYTES: Final = 1 << 20
"""The bytes at the beginning of a dump that detection sees."""
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


def _spans_of(trace: dict[str, Value]) -> list[dict[str, Value]]:
    """Give the spans of a trace, each with the tags that are not MLflow's own, and what judges it. Raises Refused.

    What is known and judged of the whole trace is its root's.
    """
    info = trace.get("info")
    info = info if is_object(info) else {}
    tags = metadata_of(info.get("tags"))
    resource = {name: tag for name, tag in tags.items() if not name.startswith(_OWN_TAGS)}
    spans = converted(trace, _Trace).data.spans
    ids = {span.get("span_id") for span in spans} - {None}
    judged, expected = _assessments(info.get("assessments"), ids)
    metadata = metadata_of(info.get("trace_metadata") or info.get("request_metadata"))
    facts = trace_facts(
        name=tags.get(_TRACE_NAME),
        metadata={
            **{name: tag for name, tag in resource.items() if not _OF_RESOURCE.match(name)},
            **{name: value for name, value in metadata.items() if not name.startswith(_OWN_TAGS)},
            **expected,
        },
        others={"user_id": metadata.get("mlflow.trace.user"), "session_id": metadata.get("mlflow.trace.session")},
    )
    return [
        {
            **span,
            "tags": resource,
            "facts": facts if _is_root(span) else {},
            "scores": judged.get(span.get("span_id"), []) + (judged.get(None, []) if _is_root(span) else []),
        }
        for span in spans
    ]


def _is_root(span: Mapping[str, Value]) -> bool:
    return not span.get("parent_span_id") and not span.get("parent_id")


def _assessments(listed: Value, ids: set[Value]) -> tuple[dict[Value, list[JudgedScore]], dict[str, Value]]:
    """The feedback by the id of the span that it judges, None for the trace; and the expectations by their names."""
    judged: dict[Value, list[JudgedScore]] = {}
    expected: dict[str, Value] = {}
    for one in listed if is_list(listed) else ():
        if not is_object(one) or one.get("valid") is False:
            continue
        name, span_id = one.get("assessment_name", one.get("name")), one.get("span_id")
        feedback, expectation = one.get("feedback"), one.get("expectation")
        if is_object(feedback):
            for score in _scores(name, feedback.get("value"), one):
                judged.setdefault(span_id if span_id in ids else None, []).append(score)
        elif is_object(expectation) and isinstance(name, str):
            held = expectation.get("serialized_value")
            held = held.get("value") if is_object(held) else held
            expected[f"expectations.{name}"] = expectation.get("value", held)
    return judged, expected


def _scores(name: Value, value: Value, assessment: Mapping[str, Value]) -> Iterator[JudgedScore]:
    """The score of a feedback, or one for each field of an object."""
    time = assessment.get("last_update_time") or assessment.get("create_time") or assessment.get("create_time_ms")
    fields = {f"{name}.{key}": item for key, item in value.items()} if is_object(value) else {name: value}
    for field, item in fields.items():
        score = score_of(field, item, explanation=assessment.get("rationale"), time=time)
        if score is not None:
            yield score


def _to_otlp(row: _Span) -> TranslatedSpan:
    status = row.status or _Status()
    code = status.code if status.code is not None else "UNSET"
    span = otlp.OtlpSpan(
        trace_id=row.otel_trace_id or row.trace_id,
        span_id=row.span_id,
        parent_span_id=row.parent_span_id,
        name=row.name,
        start_time_unix_nano=row.start_time_unix_nano,
        end_time_unix_nano=row.end_time_unix_nano,
        attributes=plain(row.facts | _values(row.attributes or {})),
        events=[
            *(_event(event) for event in row.events or ()),
            *score_events(row.scores, row.end_time_unix_nano or row.start_time_unix_nano),
        ],
        links=[_link(link) for link in row.links or ()],
        status=otlp.OtlpStatus(
            code=f"STATUS_CODE_{code.removeprefix('STATUS_CODE_')}" if isinstance(code, str) else code,
            message=status.message,
        ),
    )
    return TranslatedSpan(span, row.tags)


def _event(event: _Event) -> otlp.OtlpEvent:
    time = event.time_unix_nano or event.timestamp
    return otlp.OtlpEvent(name=event.name, time_unix_nano=time, attributes=plain(event.attributes))


def _link(link: _Link) -> otlp.OtlpLink:
    return otlp.OtlpLink(trace_id=link.trace_id, span_id=link.span_id, attributes=plain(link.attributes))


def _values(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {
        name: _value(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if name != _OWN_ID
    }


def _value(text: str) -> Value:
    """Decode a JSON text. Objects and lists of them stay JSON, as instrumentors write them."""
    if text.startswith("{"):
        return text
    try:
        value: Value = _VALUE.decode(text)
    except (ValueError, RecursionError):
        return text
    items = value if is_list(value) else []
    return text if any(isinstance(item, (dict, list)) for item in items) else value


_TRANSLATOR: Final = Translator(
    message=_Span,
    to_otlp=_to_otlp,
    spans_of=_spans_of,
    holders=frozenset({"data", "spans"}),
    prefix=_TRACE_PREFIX,
    strict=False,
)

FORMAT: Final = SourceFormat(
    name="mlflow-json",
    detects=_detects,
    reads=partial(read_spans, translator=_TRANSLATOR),
    not_in_format=(
        "instrumentation scope",
        "span kind",
        "whether a value was JSON text",
        "links (some versions)",
        "dropped counts",
    ),
)
