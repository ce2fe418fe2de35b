"""Observations of Langfuse as JSON: its blob export, its API's answers, its traces with them, or what the UI exports.

An observation becomes the span that Langfuse's SDK would have sent. The exports name fields `trace_id`, the API
`traceId`; values are JSON, or texts of it. Ids that are not OpenTelemetry's, as older SDKs made, become such.

Scores stand in their trace, or in rows of their own (`scores/`, the API's answers); what is known of a trace, in the
trace, in rows of its own (`traces/`), or on each of its observations (`observations_v2/`, `trace_name`). Invariant: as
`store_spans`.

Source of the format: https://langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import msgspec

from art_otel.sources.backends.judgements import (
    JudgedScore,
    metadata_of,
    no_score,
    reward_span,
    score_events,
    score_of,
    trace_facts,
)
from art_otel.sources.backends.store_spans import TranslatedSpan, Translator, plain, read_spans
from art_otel.sources.backends.values import as_ns
from art_otel.sources.format import Refused, SourceFormat
from art_otel.sources.json_documents import head_detector, is_list, is_object
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value

_PREFIX: Final = "langfuse.observation."
_CAPITAL: Final = re.compile(r"(?<=[a-z])[A-Z]")


_UUID_LENGTH: Final = 36
_KIND: Final = "record"
"""The field that says what a row is; no row of Langfuse has it."""

_OWN: Final = ("resourceAttributes", "scope", "attributes")
"""What Langfuse writes into the metadata of spans that came through OpenTelemetry."""

_OF_TRACE: Final = ("tags", "user_id", "session_id", "release", "version", "environment")
_SCORE: Final = frozenset({"name", "value", "data_type"})
_TRACE: Final = frozenset({"timestamp", "tags", "metadata", "user_id"})


class _Observation(msgspec.Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="observation"):
    """A step of a trace. `facts` and `scores` are those of its trace, on its root, and its own."""

    id: str
    trace_id: str
    type: str
    start_time: int | str
    end_time: int | str | None = None
    name: str | None = None
    parent_observation_id: str | None = None
    level: str | None = None
    status_message: str | None = None
    input: Value = None
    output: Value = None
    model: str | None = None
    provided_model_name: str | None = None
    model_parameters: Value = None
    usage_details: Value = None
    completion_start_time: int | str | None = None
    metadata: Value = None
    facts: dict[str, Value] = {}
    scores: list[dict[str, Value]] = []


class _Score(msgspec.Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="score"):
    """A score in a row of its own."""

    trace_id: str | None = None
    observation_id: str | None = None
    fields: dict[str, Value]


class _Trace(msgspec.Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="trace"):
    """What is known of a trace whose observations are elsewhere."""

    id: str
    facts: dict[str, Value]


def _snake(row: Mapping[str, Value]) -> dict[str, Value]:
    """The fields with the names of the exports."""
    return {_CAPITAL.sub(lambda match: f"_{match[0].lower()}", name): field for name, field in row.items()}


def _is_observation(row: Mapping[str, Value]) -> bool:
    return {"type", "trace_id", "parent_observation_id"} <= row.keys()


def _is_score(row: Mapping[str, Value]) -> bool:
    return row.keys() >= _SCORE and ("trace_id" in row or "observation_id" in row) and "type" not in row


def _rows(value: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """What stands in an object, each a row: observations, with what their trace says of them, scores, or a trace.

    trace         facts, scores           an observation without a parent   has them both
      observations  root ──────────────►  one that a score names            has this score
    """
    row = _snake(value)
    inner, given = row.get("observations"), row.get("scores")
    scores = [_snake(one) for one in given if is_object(one)] if is_list(given) else []
    if not is_list(inner):
        if _is_score(row):
            yield _score_row(row)
            return
        if row.keys() >= _TRACE and "parent_observation_id" not in row:
            yield {_KIND: "trace", "id": row.get("id"), "facts": _facts(row)}
            yield from (_score_row({"trace_id": row.get("id"), **score}) for score in scores)
            return
        facts = {} if row.get("parent_observation_id") else _facts({**row, "name": row.get("trace_name")})
        observations, trace_id, by_id = [row], row.get("trace_id"), {row.get("id"): facts}
    else:
        observations, trace_id, facts = [_snake(one) for one in inner if is_object(one)], row.get("id"), _facts(row)
        ids = {one.get("id") for one in observations}
        roots = [one.get("id") for one in observations if one.get("parent_observation_id") not in ids]
        by_id = dict.fromkeys(roots, facts)
        if facts and not roots:
            yield {_KIND: "trace", "id": trace_id, "facts": facts}
    on_spans: dict[Value, list[dict[str, Value]]] = {}
    for score in scores:
        judged = score.get("observation_id") or None
        targets = [judged] if judged else [*by_id]
        if _score(score) is None or not any(one.get("id") in targets for one in observations):
            yield _score_row({"trace_id": trace_id, **score})
            continue
        for target in targets:
            on_spans.setdefault(target, []).append(score)
    for one in observations:
        own = one.get("id")
        yield {**one, _KIND: "observation", "facts": by_id.get(own, {}), "scores": on_spans.get(own, [])}


def _score_row(row: dict[str, Value]) -> dict[str, Value]:
    return {_KIND: "score", "fields": row, **{name: row.get(name) or None for name in ("trace_id", "observation_id")}}


def _facts(row: Mapping[str, Value]) -> dict[str, Value]:
    """What a row says of its trace."""
    return trace_facts(
        name=row.get("name"),
        metadata=metadata_of(row.get("metadata"), *_OWN),
        others={
            name: row.get(name) for name in _OF_TRACE if not (name == "environment" and row.get(name) == "default")
        },
    )


def _detects(value: dict[str, Value]) -> bool:
    row = _snake(value)
    inner = row.get("observations")
    rows = [_snake(one) for one in inner if is_object(one)] if is_list(inner) else []
    return _is_score(row) or row.keys() >= _TRACE or any(map(_is_observation, [row, *rows]))


def _to_otlp(row: _Observation | _Score | _Trace) -> TranslatedSpan:
    if isinstance(row, _Trace):
        return reward_span(None, trace_id=_id(row.id, 32), facts=row.facts)
    if isinstance(row, _Score):
        score = _score(row.fields)
        if score is None:
            raise no_score("value")
        if not row.trace_id:
            raise Refused("bad reward", "trace_id", f"score {score.name!r} judges no trace, but a session or a run")
        span_id = _id(row.observation_id, 16) if row.observation_id else None
        return reward_span(score, trace_id=_id(row.trace_id, 32), span_id=span_id)
    attributes: dict[str, Value] = {
        "type": row.type.lower(),
        "input": _text(row.input),
        "output": _text(row.output),
        "model.name": row.model or row.provided_model_name or None,
        "model.parameters": _text(row.model_parameters),
        "usage_details": _text(row.usage_details),
        "completion_start_time": _text(row.completion_start_time),
    }
    if is_object(row.metadata):
        attributes |= {f"metadata.{name}": _text(value) for name, value in row.metadata.items()}
    is_error = row.level == "ERROR"
    start_ns, end_ns = as_ns(row.start_time, "start_time"), as_ns(row.end_time, "end_time")
    scores = [score for one in row.scores if (score := _score(one)) is not None]
    span = otlp.OtlpSpan(
        trace_id=_id(row.trace_id, 32),
        span_id=_id(row.id, 16),
        parent_span_id=_id(row.parent_observation_id, 16) if row.parent_observation_id else None,
        name=row.name or row.type.lower(),
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
        attributes=plain(
            {f"{_PREFIX}{name}": value for name, value in attributes.items() if value is not None} | row.facts
        ),
        events=score_events(scores, end_ns or start_ns),
        status=otlp.OtlpStatus(
            code="STATUS_CODE_ERROR" if is_error else "STATUS_CODE_UNSET", message=row.status_message
        ),
    )
    return TranslatedSpan(span)


def _score(row: Mapping[str, Value]) -> JudgedScore | None:
    """A score: a number, a boolean as 1 or 0 with its text, or a category, whose number is its place among others."""
    kind, value, text = row.get("data_type"), row.get("value"), row.get("string_value")
    if kind in ("CATEGORICAL", "TEXT", "CORRECTION") and not isinstance(value, str):
        value = None if text else value
    time = row.get("timestamp") or row.get("updated_at") or row.get("created_at")
    return score_of(row.get("name"), value, label=text, explanation=row.get("comment"), time=time)


def _text(value: Value) -> str | None:
    """A text as it is, any other value as JSON; the exports write nothing as an empty text.

    The JSON is as Python writes it, like the SDK's: by other spaces a text that an app gave is told apart from it.
    """
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value)


def _id(text: str, digits: int) -> str:
    """The id of a trace or span: its own, a UUID without its dashes, or else one that is made of it."""
    plain_text = text.replace("-", "").lower() if len(text) == _UUID_LENGTH else text
    is_ours = len(plain_text) == digits and not plain_text.strip("0123456789abcdef")
    return (
        plain_text if is_ours else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=digits // 2).hexdigest()
    )


_ROW: Final[Any] = _Observation | _Score | _Trace

FORMAT: Final = SourceFormat(
    name="langfuse",
    detects=head_detector(_detects),
    reads=partial(
        read_spans,
        translator=Translator(
            message=_ROW,
            to_otlp=_to_otlp,
            spans_of=_rows,
            holders=frozenset({"data", "observations", "scores"}),
            strict=False,
            span_id="id",
        ),
    ),
    not_in_format=(
        "resource attributes",
        "instrumentation scope",
        "span kind",
        "links",
        "events",
        "nanoseconds",
        "scores of sessions",
    ),
)
