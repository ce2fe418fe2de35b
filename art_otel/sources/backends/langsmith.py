"""Runs of LangSmith as JSON: a list, an answer `{"runs": […]}`, or a run a line, as its clients give them.

A run becomes the span that LangSmith's own OpenTelemetry export would make, with what that leaves out: the parameters
of the request and the call that a tool answers. Ids are UUIDs; a span's is made of it. Feedback is a reward: each in
the run's `feedback`, or in rows of their own; else the mean that LangSmith keeps of several (`feedback_stats`). Tags
and metadata of a root run are the rollout's. Invariant: as `store_spans`.

Source of the format: `langsmith.schemas.Run` and `Feedback` (https://docs.langchain.com/langsmith/run-data-format).
"""

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
from art_otel.sources.json_documents import (
    encode,
    head_detector,
    is_list,
    is_object,
    object_or_empty,
    text_or_json,
    text_or_none,
)
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value

_OPERATIONS: Final = {"llm": "chat", "tool": "execute_tool"}
_PARAMETERS: Final = ("temperature", "top_p", "max_tokens", "frequency_penalty", "presence_penalty", "seed")


_KIND: Final = "record"
"""The field that says what a row is; no row of LangSmith has it."""

_OWN: Final = ("revision_id", "LANGSMITH_PROJECT", "LANGSMITH_TRACING", "runtime")


class _Run(msgspec.Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="run"):
    id: str
    name: str
    run_type: str
    start_time: int | str
    trace_id: str | None = None
    parent_run_id: str | None = None
    end_time: int | str | None = None
    inputs: dict[str, Value] | None = None
    outputs: dict[str, Value] | None = None
    extra: dict[str, Value] | None = None
    error: str | None = None
    feedback_stats: dict[str, Value] | None = None
    feedback: Value = None
    tags: Value = None
    reference_example_id: str | None = None


class _Feedback(msgspec.Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="feedback"):
    """A feedback in a row of its own."""

    run_id: str | None = None
    trace_id: str | None = None
    fields: dict[str, Value]


def _rows(value: dict[str, Value]) -> Iterator[dict[str, Value]]:
    runs, feedbacks = value.get("runs"), value.get("feedback")
    if is_list(runs):
        rows = [*filter(is_object, runs), *(filter(is_object, feedbacks) if is_list(feedbacks) else ())]
    else:
        rows = [value]
    for row in rows:
        if not _is_feedback(row):
            yield {**row, _KIND: "run"}
            # A feedback that says nothing is none of the run's, and set aside by itself.
            listed = row.get("feedback")
            empty = [one for one in listed if is_object(one) and _score(one) is None] if is_list(listed) else []
            yield from (_feedback_row({"run_id": row.get("id"), **one}) for one in empty)
        else:
            yield _feedback_row(row)


def _feedback_row(row: dict[str, Value]) -> dict[str, Value]:
    return {_KIND: "feedback", "run_id": row.get("run_id"), "trace_id": row.get("trace_id"), "fields": row}


def _is_feedback(row: Mapping[str, Value]) -> bool:
    return {"run_id", "key"} <= row.keys() and ("score" in row or "value" in row)


def _detects(value: dict[str, Value]) -> bool:
    runs = value.get("runs")
    rows = [*filter(is_object, runs)] if is_list(runs) else [value]
    return any(("run_type" in row and "inputs" in row) or _is_feedback(row) for row in rows)


def _to_otlp(run: _Run | _Feedback) -> TranslatedSpan:
    if isinstance(run, _Feedback):
        return _given_elsewhere(run)
    start_ns = as_ns(run.start_time, "start_time")
    end_ns = as_ns(run.end_time, "end_time")
    facts = {} if run.parent_run_id else _facts(run)
    span = otlp.OtlpSpan(
        trace_id=(run.trace_id or run.id).replace("-", ""),
        span_id=_span_id(run.id),
        parent_span_id=_span_id(run.parent_run_id) if run.parent_run_id else None,
        name=run.name,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
        attributes=plain({name: value for name, value in _attributes(run).items() if value is not None} | facts),
        events=score_events(_scores(run), end_ns or start_ns),
        status=otlp.OtlpStatus(code="STATUS_CODE_ERROR" if run.error else "STATUS_CODE_UNSET", message=run.error),
    )
    return TranslatedSpan(span)


def _attributes(run: _Run) -> dict[str, Value]:
    extra = run.extra or {}
    metadata, asked = object_or_empty(extra.get("metadata")), object_or_empty(extra.get("invocation_params"))
    common: dict[str, Value] = {
        "langsmith.span.kind": run.run_type,
        "gen_ai.operation.name": _OPERATIONS.get(run.run_type, run.run_type),
    }
    if run.run_type == "tool":
        output = (run.outputs or {}).get("output")
        message = object_or_empty(output)
        return common | {
            "gen_ai.tool.name": run.name,
            "gen_ai.tool.call.id": text_or_none(extra.get("tool_call_id")) or text_or_none(message.get("tool_call_id")),
            "gen_ai.tool.call.arguments": None if run.inputs is None else encode(run.inputs),
            "gen_ai.tool.call.result": text_or_json(message.get("content", output)),
        }
    tools = asked.get("tools")
    return (
        common
        | {f"gen_ai.request.{name}": asked.get(name) for name in _PARAMETERS}
        | {
            "gen_ai.request.model": text_or_none(metadata.get("ls_model_name")) or text_or_none(asked.get("model")),
            "gen_ai.provider.name": text_or_none(metadata.get("ls_provider")),
            "gen_ai.tool.definitions": encode(tools) if tools else None,
            "gen_ai.prompt": None if run.inputs is None else encode(run.inputs),
            "gen_ai.completion": None if run.outputs is None else encode(run.outputs),
        }
    )


def _facts(run: _Run) -> dict[str, Value]:
    """What a root run says of its trace; `ls_…` is what LangChain says of models."""
    metadata = metadata_of((run.extra or {}).get("metadata"), *_OWN)
    return trace_facts(
        metadata={name: value for name, value in metadata.items() if not name.startswith("ls_")},
        others={"tags": run.tags, "reference_example_id": run.reference_example_id},
    )


def _scores(run: _Run) -> list[JudgedScore]:
    """Each feedback of the run; of a key that has none here, the mean that LangSmith keeps."""
    listed = [one for one in run.feedback if is_object(one)] if is_list(run.feedback) else []
    scores = [score for one in listed if (score := _score(one)) is not None]
    known = {score.name for score in scores}
    means = (score_of(key, object_or_empty(stats).get("avg")) for key, stats in (run.feedback_stats or {}).items())
    return scores + [score for score in means if score is not None and score.name not in known]


def _score(row: Mapping[str, Value]) -> JudgedScore | None:
    score, value = row.get("score"), row.get("value")
    time = row.get("created_at") or row.get("modified_at")
    text = value if isinstance(value, str) else None
    return score_of(
        row.get("key"), text if score is None else score, label=text, explanation=row.get("comment"), time=time
    )


def _given_elsewhere(row: _Feedback) -> TranslatedSpan:
    score = _score(row.fields)
    if score is None:
        raise no_score("score")
    if not row.run_id:
        raise Refused("bad reward", "run_id", f"feedback {score.name!r} judges no run")
    trace_id = (row.trace_id or row.run_id).replace("-", "")
    is_of_root = row.run_id.replace("-", "") == trace_id
    return reward_span(score, trace_id=trace_id, span_id=None if is_of_root else _span_id(row.run_id))


def _span_id(run_id: str) -> str:
    return blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_ROW: Final[Any] = _Run | _Feedback

FORMAT: Final = SourceFormat(
    name="langsmith",
    detects=head_detector(_detects),
    reads=partial(
        read_spans,
        translator=Translator(
            message=_ROW, to_otlp=_to_otlp, spans_of=_rows, holders=frozenset({"runs"}), strict=False, span_id="id"
        ),
    ),
    not_in_format=("instrumentation scope", "span kind", "links", "text of tool call arguments"),
)
