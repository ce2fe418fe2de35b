"""Traces of verifiers and prime-rl: `traces.jsonl`, an episode a line, or a trace.

A trace is a rollout. Its messages are a tree, `nodes`, each with the tokens that it adds; a `sampled` one is the answer
of a call, the nodes above it are its prompt. `rewards` have a score and a weight; `reward` is their weighted sum.
Invariant: ids are given only where the sampled tokens are the last of their node, as they are to be.

Source of the format: `verifiers.v1.trace` and `.graph` (https://github.com/PrimeIntellect-ai/verifiers), 0.4.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.sources.agents.session import (
    Score,
    Session,
    SessionCall,
    body_text,
    choice_body,
    document_reader,
    token_attributes,
)
from art_otel.sources.backends.values import seconds_to_ns
from art_otel.sources.format import Refused, SourceFormat, converted
from art_otel.sources.json_documents import encode, head_detector, is_list, is_object, object_or_empty
from art_otel.spans import Span, Value

_NAME: Final = "verifiers"


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    message: dict[str, Value]
    timestamp: float
    parent: int | None = None
    tools: list[Value] = []
    sampled: bool = False
    token_ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []


class _TimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    start: float = 0.0
    end: float = 0.0


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    message: str = ""


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    node: int | None = None
    model: str | None = None
    sampling: dict[str, Value] = {}
    finish_reason: str | None = None
    usage: dict[str, Value] = {}
    time: _TimeSpan = _TimeSpan()
    error: _Error | None = None


class _Reward(msgspec.Struct, frozen=True, kw_only=True):
    score: float
    weight: float = 1.0


class _Agent(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "agent"


class _Trace(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    nodes: list[_Node]
    agent: _Agent = _Agent()
    task: dict[str, Value] = {}
    tools: list[Value] = []
    calls: list[_Call] = []
    rewards: dict[str, _Reward | None] = {}
    metrics: dict[str, float | None] = {}
    info: dict[str, Value] = {}
    errors: list[_Error] = []
    ok: bool = False
    timing: dict[str, Value] = {}


def _detects(line: dict[str, Value]) -> bool:
    traces = line.get("traces")
    first = traces[0] if is_list(traces) and traces else line
    return is_object(first) and first.keys() >= {"id", "nodes", "verifiers"}


def _spans(episode: dict[str, Value]) -> Iterator[Span]:
    traces = episode.get("traces")
    for trace in converted([episode] if traces is None else traces, list[_Trace], strict=True):
        yield from _TraceSpans(trace, episode).spans()


class _TraceSpans:
    """The spans of one trace. Raises Refused for nodes that lead nowhere."""

    def __init__(self, trace: _Trace, episode: dict[str, Value]) -> None:
        self._trace = trace
        self._episode = episode
        self._session = Session(_NAME, trace.id, agent=trace.agent.name)
        if any(node.parent is not None and not 0 <= node.parent < at for at, node in enumerate(trace.nodes)):
            raise Refused("bad field", "nodes", "a node whose parent does not come before it")
        self._texts = [encode(node.message) for node in trace.nodes]

    def spans(self) -> Iterator[Span]:
        call_of = {call.node: call for call in self._trace.calls if call.node is not None}
        for at, node in enumerate(self._trace.nodes):
            if node.sampled:
                yield self._session.call(self._answered(at, node, call_of.get(at, _Call())))
        for number, call in enumerate(self._trace.calls):
            if call.node is None:
                yield self._session.call(self._failed(number, call))
        yield self._rollout()

    def _answered(self, at: int, node: _Node, call: _Call) -> SessionCall:
        above = self._above(at)
        sampled = sum(node.mask)
        is_suffix = sampled > 0 and all(node.mask[-sampled:]) and len(node.mask) == len(node.token_ids)
        prompt = [token for other in above for token in self._trace.nodes[other].token_ids]
        tokens = token_attributes(
            prompt=[*prompt, *node.token_ids[:-sampled]] if is_suffix else None,
            completion=node.token_ids[-sampled:] if is_suffix else None,
            logprobs=node.logprobs,
        )
        end_ns = _ns(call.time.end or node.timestamp)
        tools = (self._trace.nodes[above[0]].tools if above else []) or self._trace.tools
        choice = choice_body(node.message, call.finish_reason)
        return SessionCall(
            key=f"node {at}",
            model=call.model,
            start_ns=min(_ns(call.time.start or node.timestamp), end_ns),
            end_ns=end_ns,
            request=body_text(
                {"model": call.model, "tools": tools, **call.sampling}, [self._texts[other] for other in above]
            ),
            response=encode({"model": call.model, "choices": [choice], "usage": _usage(call.usage)}),
            extra=tokens,
        )

    def _failed(self, number: int, call: _Call) -> SessionCall:
        error = call.error or _Error(type="no answer")
        start_ns = _ns(call.time.start)
        return SessionCall(
            key=f"call {number}",
            model=call.model,
            start_ns=start_ns,
            end_ns=max(_ns(call.time.end), start_ns),
            request=None,
            response=None,
            error=(error.type, error.message),
        )

    def _above(self, at: int) -> list[int]:
        path: list[int] = []
        parent = self._trace.nodes[at].parent
        while parent is not None:
            path.append(parent)
            parent = self._trace.nodes[parent].parent
        return path[::-1]

    def _rollout(self) -> Span:
        trace, episode = self._trace, self._episode
        seconds = [node.timestamp for node in trace.nodes]
        seconds += [time for call in trace.calls for time in (call.time.start, call.time.end) if time]
        started = trace.timing.get("start")
        start = started if isinstance(started, float) and started else min(seconds, default=0.0)
        run, group, env = (object_or_empty(episode.get(name)) for name in ("run", "group", "env"))
        work = object_or_empty(run.get("work"))
        policy = object_or_empty(work.get("policy"))
        rewards = {name: reward for name, reward in trace.rewards.items() if reward is not None}
        scores = [Score(name=name, value=reward.score) for name, reward in rewards.items() if name != "reward"]
        if rewards:
            scores.append(Score(name="reward", value=sum(one.score * one.weight for one in rewards.values())))
        attributes = {
            names.GROUP_ID: group.get("id") or _task_in_run(run.get("id"), trace.task.get("key")),
            names.TRAINING_STEP: work.get("step"),
            names.SPLIT: {"train": "train", "eval": "val"}.get(str(work.get("type") or run.get("type"))),
            names.POLICY_VERSION: str(policy["start"]) if "start" in policy else None,
            **{f"{names.METRIC_PREFIX}{name}": value for name, value in trace.metrics.items()},
        }
        metadata = {
            "env": env.get("id"),
            "episode": episode.get("id") if "traces" in episode else None,
            "task": trace.task.get("key") or trace.task.get("type"),
            "run": run.get("id"),
            **trace.info,
        }
        error = trace.errors[-1] if trace.errors and not trace.ok else None
        return self._session.rollout(
            _ns(start),
            _ns(max([start, *seconds])),
            attributes=attributes,
            metadata=metadata,
            scores=scores,
            error=None if error is None else (error.type, error.message),
        )


def _usage(usage: dict[str, Value]) -> dict[str, Value]:
    """Usage in OpenAI's words: its prompt tokens count those that were cached too."""
    cached, prompt = usage.get("cached_input_tokens"), usage.get("prompt_tokens")
    of_cache = cached if isinstance(cached, int) else 0
    return {
        "prompt_tokens": prompt + of_cache if isinstance(prompt, int) else None,
        "completion_tokens": usage.get("completion_tokens"),
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning_tokens")},
    }


def _task_in_run(run: Value, task: Value) -> str | None:
    """The group of an evaluation, which names none: its episodes of one task."""
    return f"{run}/{task}" if run and task else None


def _ns(seconds: float) -> int:
    return seconds_to_ns(seconds, "timestamp")


FORMAT: Final = SourceFormat(
    name=_NAME,
    detects=head_detector(_detects),
    reads=document_reader(_spans),
    not_in_format=("tool spans",),
)
