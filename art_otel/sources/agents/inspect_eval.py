"""Evaluation logs of inspect_ai: `.eval`, a zip archive with a JSON file for each sample.

A sample is a rollout: its `model` events are the calls, its scores the rewards; samples of one id (epochs) are a group.
What events share stands once: messages in `events_data`, to which `input_refs` and `call_refs` lead as ranges, and long
texts in `attachments`. Invariant: a call has the bodies that the API had where the log keeps them, else the log's own
messages.

Source of the format: `inspect_ai.log` (https://inspect.aisi.org.uk/eval-logs.html), recordings of 0.3.
"""

import io
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.sources.agents.secrets import scrubbed
from art_otel.sources.agents.session import ROOT, Call, Score, Session, Tool, body_text
from art_otel.sources.agents.zip_members import MAGIC, read_members
from art_otel.sources.backends.times import text_to_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.values import encode, is_list, is_object, text_or_none
from art_otel.sources.refusals import Refused, converted
from art_otel.spans import Span, Value

_NAME: Final = "inspect-eval"
_START: Final = "_journal/start.json"
_FIRST: Final = re.compile(rb"PK\x03\x04.{26}(_journal/|samples/|header\.json)", re.DOTALL)
_ATTACHMENT: Final = "attachment://"
_GRADES: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""The grades of its scorers as the numbers that its metrics make of them."""


def _detects(head: bytes) -> bool:
    return head.startswith(MAGIC) and _FIRST.match(head) is not None


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    eval_: dict[str, Value] = {}
    try:
        for name, data in read_members(stream, reading.limits.max_message_bytes, _is_wanted):
            if isinstance(data, Refused):
                yield data.quarantine(f"{reading.path}:{name}")
                continue
            try:
                value = _decoded(data)
                if name == _START:
                    eval_ = _object(value.get("eval"))
                else:
                    yield from _Sample(value, eval_).spans()
            except Refused as problem:
                yield problem.quarantine(f"{reading.path}:{name}")
    except Refused as problem:
        yield problem.quarantine(reading.path)


def _is_wanted(name: str) -> bool:
    return name == _START or (name.startswith("samples/") and name.endswith(".json"))


def _decoded(data: bytes) -> dict[str, Value]:
    try:
        return _object(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("not JSON", detail=str(error)) from None


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a sample: a model call, a tool call, or the beginning of a span."""

    event: str
    timestamp: str | None = None
    completed: str | None = None
    uuid: str | None = None
    id: str | None = None
    span_id: str | None = None
    parent_id: str | None = None
    type: str | None = None
    name: str | None = None
    model: str | None = None
    input: list[Value] | None = None
    input_refs: list[tuple[int, int]] | None = None
    tools: Value = None
    config: dict[str, Value] = {}
    output: dict[str, Value] = {}
    call: dict[str, Value] | None = None
    error: Value = None
    pending: bool | None = None
    function: str | None = None
    arguments: Value = None
    result: Value = None

    @property
    def start_ns(self) -> int:
        """When it began. Raises Refused."""
        return text_to_ns(str(self.timestamp), "timestamp")

    @property
    def end_ns(self) -> int:
        """When it ended, if it says so. Raises Refused."""
        return self.start_ns if self.completed is None else text_to_ns(self.completed, "completed")


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A sample as the log has it."""

    id: Value = None
    epoch: int | None = None
    uuid: str | None = None
    attachments: dict[str, str] = {}
    events_data: dict[str, list[Value]] | None = None
    events: list[dict[str, Value]] = []
    scores: dict[str, dict[str, Value]] | None = None
    metadata: dict[str, Value] | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error: dict[str, Value] | None = None


class _Sample:
    """One sample of an evaluation. Raises Refused where it cannot be read."""

    def __init__(self, sample: dict[str, Value], eval_: dict[str, Value]) -> None:
        self._sample = record = converted(sample, _Record, strict=True)
        self._eval = eval_
        shared = record.events_data or {}
        self._messages = _texts(self._resolved(shared.get("messages")))
        self._bodies = _texts(self._resolved(shared.get("calls")))
        rollout_id = record.uuid or f"{eval_.get('eval_id')}-{record.id}-{record.epoch}"
        self._session = Session(_NAME, rollout_id, agent=text_or_none(eval_.get("task")) or "inspect")
        kinds = ("model", "tool", "span_begin")
        events = [event for event in record.events if event.get("event") in kinds]
        self._events = [converted(self._resolved(event), _Event, strict=True) for event in events]
        self._agents = {event.id: event for event in self._events if event.event == "span_begin"}

    def spans(self) -> Iterator[Span]:
        times: list[int] = []
        for number, event in enumerate(self._events):
            if event.event != "span_begin":
                times += (event.start_ns, event.end_ns)
                make = self._call if event.event == "model" else self._tool
                yield make(event, f"{event.event} {event.uuid or number}")
        yield from self._agent_spans(times)
        yield self._rollout(times)

    def _rollout(self, times: list[int]) -> Span:
        sample, eval_ = self._sample, self._eval
        bounds = (sample.started_at, sample.completed_at)
        times = [*times, *(text_to_ns(time, "started_at") for time in bounds if time is not None)]
        if not times:
            raise Refused("bad field", "started_at", "a sample without a time")
        metadata = {name: eval_.get(name) for name in ("eval_id", "task", "model")}
        metadata |= {"sample_id": sample.id, "epoch": sample.epoch, **(sample.metadata or {})}
        error = (sample.error or {}).get("message")
        return self._session.rollout(
            min(times),
            max(times),
            attributes={names.GROUP_ID: f"{eval_['eval_id']}/{sample.id}" if "eval_id" in eval_ else None},
            metadata=metadata,
            scores=list(_scores(self._resolved(sample.scores or {}))),
            error=None if error is None else ("sample_error", str(error)),
        )

    def _call(self, event: _Event, key: str) -> Span:
        request, response = self._bodies_of(event.call or {})
        if request is None:
            messages = event.input or self._range(self._messages, event.input_refs)
            texts = [encode(_openai_message(_decoded(text.encode()))) for text in _texts(messages)]
            request = body_text({"model": event.model, "tools": event.tools, **event.config}, texts)
        call = Call(
            key=key,
            model=event.model,
            start_ns=event.start_ns,
            end_ns=None if event.pending else event.end_ns,
            request=request,
            response=response or _openai_response(event.output),
            error=None if event.error is None else ("model_error", str(event.error)),
            extra={"gen_ai.response.id": event.output.get("response_id")},
        )
        return self._session.call(call, self._agent_of(event.span_id))

    def _bodies_of(self, call: dict[str, Value]) -> tuple[str | None, str | None]:
        """The bodies of the API, where they are of one whose bodies are read."""
        request, response = call.get("request"), call.get("response")
        key = call.get("call_key") or "messages"
        if not is_object(request) or not is_object(response) or key not in ("messages", "input"):
            return None, None
        if not {"choices", "output", "role"} & response.keys():
            return None, None
        messages = request.get(key) or self._range(self._bodies, call.get("call_refs"))
        return body_text(request, _texts(messages), key), encode(response)

    def _tool(self, event: _Event, key: str) -> Span:
        tool = Tool(
            key=key,
            name=event.function or "unknown",
            call_id=event.id,
            start_ns=event.start_ns,
            end_ns=event.end_ns,
            arguments=encode(event.arguments),
            result=event.result if isinstance(event.result, str) else encode(event.result),
            failed=event.error is not None,
        )
        return self._session.tool(tool, self._agent_of(event.span_id))

    def _agent_spans(self, times: list[int]) -> Iterator[Span]:
        for begin in self._agents.values():
            if begin.type == "agent":
                parent, end_ns = self._agent_of(begin.parent_id), max([begin.start_ns, *times])
                yield self._session.sub_agent(str(begin.name), f"agent {begin.id}", parent, begin.start_ns, end_ns)

    def _agent_of(self, span_id: str | None) -> str:
        """The key of the agent that an event is of: the nearest span around it that is one."""
        at, seen = span_id, set[str | None]()
        while at in self._agents and at not in seen:
            if self._agents[at].type == "agent":
                return f"agent {at}"
            seen.add(at)
            at = self._agents[at].parent_id
        return ROOT

    def _range(self, shared: list[str], ranges: Value) -> list[str]:
        """The shared texts that ranges `[start, end]` lead to."""
        pairs = converted(ranges or [], list[tuple[int, int]], strict=True)
        return [text for start, end in pairs for text in shared[start:end]]

    def _resolved(self, value: Value) -> Value:
        """A value with its attachments."""
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            return self._sample.attachments.get(value.removeprefix(_ATTACHMENT), value)
        if is_object(value):
            return {name: self._resolved(item) for name, item in value.items()}
        return [self._resolved(item) for item in value] if is_list(value) else value


def _object(value: Value) -> dict[str, Value]:
    return value if is_object(value) else {}


def _texts(messages: Value) -> list[str]:
    """Messages as JSON texts; those that are texts already stay."""
    entries = messages if is_list(messages) else []
    return [entry if isinstance(entry, str) else encode(entry) for entry in entries]


def _openai_message(message: dict[str, Value]) -> dict[str, Value]:
    """A message of the log in OpenAI's words."""
    calls = message.get("tool_calls")
    renamed = [
        {"id": call.get("id"), "function": {"name": call.get("function"), "arguments": call.get("arguments")}}
        for call in (calls if is_list(calls) else [])
        if is_object(call)
    ]
    kept = {name: message[name] for name in ("role", "content", "tool_call_id") if message.get(name) is not None}
    return {**kept, "tool_calls": renamed} if renamed else kept


def _openai_response(output: dict[str, Value]) -> str | None:
    choices = output.get("choices")
    if not is_list(choices) or not choices:
        return None
    usage = _object(output.get("usage"))
    fields = [
        {
            "index": index,
            "finish_reason": _object(choice).get("stop_reason"),
            "message": _openai_message(_object(_object(choice).get("message"))),
            "logprobs": _object(choice).get("logprobs"),
        }
        for index, choice in enumerate(choices)
    ]
    counts = {**usage, "prompt_tokens_details": {"cached_tokens": usage.get("input_tokens_cache_read")}}
    return encode({"model": output.get("model"), "choices": fields, "usage": counts})


def _scores(scores: dict[str, Value]) -> Iterator[Score]:
    for name, score in scores.items():
        fields = _object(score)
        value, explanation = fields.get("value"), fields.get("explanation")
        named = {f"{name}.{key}": item for key, item in value.items()} if is_object(value) else {name: value}
        for key, item in named.items():
            label = item if isinstance(item, str) else None
            number = _GRADES.get(item) if isinstance(item, str) else item
            score_value = number if isinstance(number, (int, float)) else None
            if score_value is not None or label is not None:
                yield Score(name=key, value=score_value, label=label, explanation=explanation)


FORMAT: Final = Format(
    name=_NAME,
    detects=_detects,
    reads=partial(scrubbed, reads=_reads),
    lacks=("token ids", "bodies of APIs but OpenAI's and Anthropic's"),
)
