"""Runs of LangSmith as JSON: a list, an answer `{"runs": […]}`, or a run a line, as its clients give them.

A run becomes the span that LangSmith's own OpenTelemetry export would make, with what that leaves out: the parameters
of the request and the call that a tool answers. Ids are UUIDs; a span's is made of it. Feedback is a reward, the mean
where several gave some. Invariant: as `store_spans`.

Source of the format: `langsmith.schemas.Run` (https://docs.langchain.com/langsmith/run-data-format).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import Final

import msgspec

from art_otel.sources.backends.store_spans import TranslatedSpan, Translator, plain, read_spans
from art_otel.sources.backends.values import as_ns
from art_otel.sources.format import SourceFormat
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


class _Run(msgspec.Struct, frozen=True, kw_only=True):
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


def _runs(value: dict[str, Value]) -> Iterator[dict[str, Value]]:
    runs = value.get("runs")
    yield from filter(is_object, runs) if is_list(runs) else (value,)


def _detects(value: dict[str, Value]) -> bool:
    return any("run_type" in run and "inputs" in run for run in _runs(value))


def _to_otlp(run: _Run) -> TranslatedSpan:
    start_ns = as_ns(run.start_time, "start_time")
    end_ns = as_ns(run.end_time, "end_time")
    span = otlp.OtlpSpan(
        trace_id=(run.trace_id or run.id).replace("-", ""),
        span_id=_span_id(run.id),
        parent_span_id=_span_id(run.parent_run_id) if run.parent_run_id else None,
        name=run.name,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
        attributes=plain({name: value for name, value in _attributes(run).items() if value is not None}),
        events=[_reward(name, stats, end_ns or start_ns) for name, stats in _feedback(run)],
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


def _feedback(run: _Run) -> Iterator[tuple[str, Value]]:
    for name, stats in (run.feedback_stats or {}).items():
        mean = object_or_empty(stats).get("avg")
        if isinstance(mean, int | float):
            yield name, mean


def _reward(name: str, value: Value, time_ns: int | None) -> otlp.OtlpEvent:
    fields: Mapping[str, Value] = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value}
    return otlp.OtlpEvent(name="gen_ai.evaluation.result", time_unix_nano=time_ns, attributes=plain(fields))


def _span_id(run_id: str) -> str:
    return blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


FORMAT: Final = SourceFormat(
    name="langsmith",
    detects=head_detector(_detects),
    reads=partial(
        read_spans,
        translator=Translator(
            message=_Run, to_otlp=_to_otlp, spans_of=_runs, holders=frozenset({"runs"}), strict=False, span_id="id"
        ),
    ),
    lacks=("instrumentation scope", "span kind", "links", "text of tool call arguments", "each feedback of several"),
)
