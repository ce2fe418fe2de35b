"""Observations of Langfuse as JSON: its blob export, its API's answers, its traces with them, or what the UI exports.

An observation becomes the span that Langfuse's SDK would have sent. The exports name fields `trace_id`, the API
`traceId`; values are JSON, or texts of it. Ids that are not OpenTelemetry's, as older SDKs made, become such.
Invariant: as `store_spans`.

Source of the format: https://langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from typing import Final

import msgspec

from art_otel.sources.backends.store_spans import TranslatedSpan, Translator, plain, read_spans
from art_otel.sources.backends.values import as_ns
from art_otel.sources.format import SourceFormat
from art_otel.sources.json_documents import head_detector, is_list, is_object
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value

_PREFIX: Final = "langfuse.observation."
_CAPITAL: Final = re.compile(r"(?<=[a-z])[A-Z]")


class _Observation(msgspec.Struct, frozen=True, kw_only=True):
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


def _observations(value: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """The observations in an object, with the names of the exports."""
    inner = value.get("observations")
    for one in filter(is_object, inner) if is_list(inner) else (value,):
        yield {_CAPITAL.sub(lambda match: f"_{match[0].lower()}", name): field for name, field in one.items()}


def _detects(value: dict[str, Value]) -> bool:
    return any({"type", "trace_id", "parent_observation_id"} <= one.keys() for one in _observations(value))


def _to_otlp(row: _Observation) -> TranslatedSpan:
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
    span = otlp.OtlpSpan(
        trace_id=_id(row.trace_id, 32),
        span_id=_id(row.id, 16),
        parent_span_id=_id(row.parent_observation_id, 16) if row.parent_observation_id else None,
        name=row.name or row.type.lower(),
        start_time_unix_nano=as_ns(row.start_time, "start_time"),
        end_time_unix_nano=as_ns(row.end_time, "end_time"),
        attributes=plain({f"{_PREFIX}{name}": value for name, value in attributes.items() if value is not None}),
        status=otlp.OtlpStatus(
            code="STATUS_CODE_ERROR" if is_error else "STATUS_CODE_UNSET", message=row.status_message
        ),
    )
    return TranslatedSpan(span)


def _text(value: Value) -> str | None:
    """A text as it is, any other value as JSON; the exports write nothing as an empty text.

    The JSON is as Python writes it, like the SDK's: by other spaces a text that an app gave is told apart from it.
    """
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value)


def _id(text: str, digits: int) -> str:
    is_ours = len(text) == digits and not text.strip("0123456789abcdef")
    return text if is_ours else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=digits // 2).hexdigest()


FORMAT: Final = SourceFormat(
    name="langfuse",
    detects=head_detector(_detects),
    reads=partial(
        read_spans,
        translator=Translator(
            message=_Observation,
            to_otlp=_to_otlp,
            spans_of=_observations,
            holders=frozenset({"data", "observations"}),
            strict=False,
            span_id="id",
        ),
    ),
    lacks=("resource attributes", "instrumentation scope", "span kind", "links", "events", "scores", "nanoseconds"),
)
