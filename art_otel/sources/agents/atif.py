"""ATIF documents, as Harbor and `art-otel export --format atif-trajectories` write them: one trajectory a file.

A step of the agent that no earlier document copied is a call; the steps before it are its prompt. Sub-agents are
documents inside. Invariant: what a document does not tell (tools, system prompt) each call says is missing.

Source of the format: RFC 0001 of https://github.com/laude-institute/harbor, `harbor.models.trajectories`, v1.8.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from art_otel.sources.agents.session import (
    ROOT,
    Missing,
    Score,
    Session,
    SessionCall,
    body_text,
    choice_body,
    document_reader,
    token_attributes,
)
from art_otel.sources.backends.values import text_to_ns
from art_otel.sources.format import Refused, SourceFormat, converted
from art_otel.sources.json_documents import encode, head_detector
from art_otel.spans import Span, Value

_NAME: Final = "atif"


class _ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    function_name: str
    tool_call_id: str | None = None
    arguments: Value = None
    extra: dict[str, Value] | None = None


class _Metrics(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    source_call_id: str | None = None
    content: Value = None


class _Observation(msgspec.Struct, frozen=True, kw_only=True):
    results: list[_Result] = []


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    message: Value = None
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    llm_call_count: int | None = None
    is_copied_context: bool | None = None
    extra: dict[str, Value] | None = None


class _Agent(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str = ""
    model_name: str | None = None
    tool_definitions: list[Value] | None = None


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    agent: _Agent
    steps: list[_Step]
    session_id: str | None = None
    trajectory_id: str | None = None
    subagent_trajectories: list["_Document"] | None = None
    extra: dict[str, Value] | None = None


def _detects(value: dict[str, Value]) -> bool:
    return str(value.get("schema_version")).startswith("ATIF-v")


def _spans(value: dict[str, Value]) -> Iterator[Span]:
    document = converted(value, _Document)
    rollout_id = document.session_id or document.trajectory_id
    if rollout_id is None:
        raise Refused("bad field", "session_id", "has neither a session_id nor a trajectory_id")
    session = Session(_NAME, rollout_id, agent=document.agent.name, version=document.agent.version)
    extra = document.extra or {}
    reward = extra.get("reward")
    end_ns = 0
    for span in _steps(document, session, ROOT):
        end_ns = max(end_ns, span.end_ns or 0)
        yield span
    start_ns = min(_times(document), default=0)
    scores = [] if reward is None else [Score(name="reward", value=reward)]
    metadata = {name: value for name, value in extra.items() if name != "reward"}
    yield session.rollout(start_ns, max(start_ns, end_ns), metadata=metadata, scores=scores)


def _steps(document: _Document, session: Session, above: str) -> Iterator[Span]:
    """The calls of a document and of those inside it, below the span with the key `above`."""
    messages: list[str] = []
    has_system = any(step.source == "system" for step in document.steps)
    missing: list[Missing] = [] if has_system else ["system instructions"]
    if document.agent.tool_definitions is None:
        missing.append("tools")
    for number, (step, start_ns) in enumerate(zip(document.steps, _times(document), strict=True)):
        if step.source == "agent" and not step.is_copied_context:
            yield session.call(_call(document, step, number, start_ns, messages, tuple(missing)), above)
        messages += map(encode, _messages(step))
    for inner in document.subagent_trajectories or ():
        key = f"agent {inner.trajectory_id}"
        times = _times(inner)
        yield session.sub_agent(inner.agent.name, key, above, min(times, default=0), max(times, default=0))
        yield from _steps(inner, session, key)


def _call(
    document: _Document, step: _Step, number: int, start_ns: int, messages: list[str], missing: tuple[Missing, ...]
) -> SessionCall:
    metrics, model = step.metrics or _Metrics(), step.model_name or document.agent.model_name
    usage = {
        "prompt_tokens": metrics.prompt_tokens,
        "completion_tokens": metrics.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": metrics.cached_tokens},
    }
    if step.llm_call_count is not None and step.llm_call_count > 1:
        usage = None  # the counts are those of all of them together
    reason = (step.extra or {}).get("finish_reason")
    choice = choice_body(_messages(step)[0], reason)
    return SessionCall(
        key=f"step {document.trajectory_id} {number}",
        model=model,
        start_ns=start_ns,
        end_ns=start_ns,
        request=body_text({"model": model, "tools": document.agent.tool_definitions}, messages),
        response=encode({"model": model, "choices": [choice], "usage": usage}),
        missing=missing,
        extra=token_attributes(
            prompt=metrics.prompt_token_ids, completion=metrics.completion_token_ids, logprobs=metrics.logprobs
        ),
    )


def _messages(step: _Step) -> list[dict[str, Value]]:
    """The message of a step, and the results of tools that follow it, in OpenAI's words."""
    role = "assistant" if step.source == "agent" else step.source
    calls = [
        {"id": call.tool_call_id, "function": {"name": call.function_name, "arguments": _arguments(call)}}
        for call in step.tool_calls or ()
    ]
    message = {
        "role": role,
        "content": step.message or None if calls else step.message,
        "reasoning_content": step.reasoning_content,
        "tool_calls": calls or None,
    }
    results = step.observation.results if step.observation is not None else []
    answers = [
        {"role": "tool", "tool_call_id": one.source_call_id, "content": one.content}
        for one in results
        if one.content is not None
    ]
    return [{name: value for name, value in each.items() if value is not None} for each in (message, *answers)]


def _arguments(call: _ToolCall) -> Value:
    """The arguments, as the model wrote them where the document keeps that."""
    text = (call.extra or {}).get("arguments")
    return text if isinstance(text, str) else call.arguments


def _times(document: _Document) -> list[int]:
    """When each step was, each later than the one before; steps that do not say are right behind it."""
    times: list[int] = []
    for step in document.steps:
        time_ns = 0 if step.timestamp is None else text_to_ns(step.timestamp, "timestamp")
        times.append(max(time_ns, times[-1] + 1 if times else 0))
    return times


FORMAT: Final = SourceFormat(
    name=_NAME,
    detects=head_detector(_detects),
    reads=document_reader(_spans),
    not_in_format=("when calls ended", "tool spans", "failed calls"),
)
