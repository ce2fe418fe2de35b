"""Evaluation logs of inspect_ai: `.eval`, a zip archive with a JSON file for each sample, or one `.json` with all.

A sample is a rollout: its `model` events are the calls, its scores the rewards; samples of one id (epochs) are a group.
What events share stands once: messages in pools, to which `input_refs` and `call_refs` lead as ranges, and long texts
in `attachments`. Invariant: a call has the bodies that the API had where the log keeps them (of the first five calls,
unless told otherwise), else the log's own messages, written as inspect_ai writes them for that API. A prompt that leads
out of its pool, or that cannot be written so, says that messages are missing.

Source of the format: `inspect_ai.log` (https://inspect.aisi.org.uk/eval-logs.html), recordings of 0.3.
"""

import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from art_otel import attributes as names
from art_otel.sources.agents.session import (
    ROOT,
    ZIP_MAGIC,
    Missing,
    Score,
    Session,
    SessionCall,
    SessionTool,
    body_text,
    choice_body,
    read_members,
    without_secrets,
)
from art_otel.sources.backends.values import text_to_ns
from art_otel.sources.format import Reading, Record, Refused, SourceFormat, converted
from art_otel.sources.json_documents import (
    encode,
    is_list,
    is_object,
    object_of,
    object_or_empty,
    objects_in_head,
    read_documents,
    text_or_none,
)
from art_otel.spans import Span, Value

_NAME: Final = "inspect-eval"
_START: Final = "_journal/start.json"
_FIRST: Final = re.compile(rb"PK\x03\x04.{26}(_journal/|samples/|header\.json)", re.DOTALL)
_ATTACHMENT: Final = "attachment://"
_GRADES: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""The grades of its scorers as the numbers that its metrics make of them."""

T = TypeVar("T")
_Api = Literal["chat", "responses", "anthropic"]
"""The API that a call was made to: OpenAI's two, or Anthropic's."""

_APIS: Final[dict[str, _Api]] = {
    **dict.fromkeys(("openai-api", "vllm", "sglang", "ollama", "together", "fireworks", "openrouter"), "chat"),
    **dict.fromkeys(("deepseek", "moonshot", "cloudflare", "perplexity", "litellm-proxy"), "chat"),
    "anthropic": "anthropic",
}
"""The APIs of providers, which stand before the slash in the names of models."""

_API_OF_FIELD: Final[dict[str, _Api]] = {"choices": "chat", "output": "responses", "role": "anthropic"}
"""The APIs by a field of their responses."""

_REASONING_FIELDS: Final = ("reasoning", "reasoning_content", "reasoning_details")
"""The fields of a message of the chat API that reasoning came in, and is sent in again."""


def _detects(head: bytes) -> bool:
    if head.startswith(ZIP_MAGIC):
        return _FIRST.match(head) is not None
    return any(map(_is_log, objects_in_head(head)))


def _is_log(value: dict[str, Value]) -> bool:
    return value.keys() >= {"version", "status", "eval"} and "eval_id" in object_or_empty(value["eval"])


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    return (_read_archive if stream.peek(len(ZIP_MAGIC)).startswith(ZIP_MAGIC) else _read_documents)(stream, reading)


def _read_documents(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    for document in read_documents(stream, reading.limits.max_message_bytes, msgspec.json.decode):
        location = f"{reading.path}:{document.line}"
        try:
            log = object_of(document)
        except Refused as problem:
            yield problem.quarantine(location)
            continue
        for number, sample in enumerate(_items(log.get("samples"))):
            try:
                yield from _Sample(object_or_empty(sample), object_or_empty(log.get("eval"))).spans()
            except Refused as problem:
                yield problem.quarantine(f"{location}:samples/{number}")


def _read_archive(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    eval_: dict[str, Value] = {}
    try:
        for name, data in read_members(stream, reading.limits.max_message_bytes, _is_wanted):
            try:
                value = _decoded(data)
                if name == _START:
                    eval_ = object_or_empty(value.get("eval"))
                else:
                    yield from _Sample(value, eval_).spans()
            except Refused as problem:
                yield problem.quarantine(f"{reading.path}:{name}")
    except Refused as problem:
        yield problem.quarantine(reading.path)


def _is_wanted(name: str) -> bool:
    return name == _START or (name.startswith("samples/") and name.endswith(".json"))


def _decoded(data: bytes | Refused) -> dict[str, Value]:
    if isinstance(data, Refused):
        raise data
    try:
        return object_or_empty(msgspec.json.decode(data))
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
    """A sample as the log has it. Before 0.3.200 it has the two pools itself."""

    id: Value = None
    epoch: int | None = None
    uuid: str | None = None
    attachments: dict[str, str] = {}
    events_data: dict[str, list[Value]] | None = None
    message_pool: list[Value] = []
    call_pool: list[Value] = []
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
        shared = record.events_data or {"messages": record.message_pool, "calls": record.call_pool}
        self._messages = _items(self._resolved(shared.get("messages")))
        self._bodies = [encode(body) for body in _items(self._resolved(shared.get("calls")))]
        rollout_id = record.uuid or f"{eval_.get('eval_id')}-{record.id}-{record.epoch}"
        self._session = Session(_NAME, rollout_id, agent=text_or_none(eval_.get("task")) or "inspect")
        kinds = ("model", "tool", "span_begin")
        events = [event for event in record.events if event.get("event") in kinds]
        self._events = [converted(self._resolved(event), _Event, strict=True) for event in events]
        self._agents = {event.id: event for event in self._events if event.event == "span_begin"}
        self._apis: dict[str | None, _Api] = {
            event.model: api for event in self._events if (api := _api_of(event.call or {}))
        }

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
        request, missing = self._logged_request(event.call or {}) or self._rebuilt_request(event)
        is_logged = _api_of(event.call or {}) is not None
        call = SessionCall(
            key=key,
            model=event.model,
            start_ns=event.start_ns,
            end_ns=None if event.pending else event.end_ns,
            request=request,
            response=encode((event.call or {}).get("response")) if is_logged else _rebuilt_response(event.output),
            missing=missing,
            error=None if event.error is None else ("model_error", str(event.error)),
            extra={"gen_ai.response.id": event.output.get("response_id")},
        )
        return self._session.call(call, self._agent_of(event.span_id))

    def _logged_request(self, call: dict[str, Value]) -> tuple[str, Sequence[Missing]] | None:
        """The body that the API was sent, and what is missing of it; None where the log has none that is read."""
        api, request = _api_of(call), call.get("request")
        if api is None or not is_object(request):
            return None
        key = "input" if api == "responses" else "messages"
        if key in request:
            return encode(request), ()
        if call.get("call_key") != key:
            return None
        messages = _pooled(self._bodies, call.get("call_refs"))
        return body_text(request, messages, key), ("messages",) if messages is None else ()

    def _rebuilt_request(self, event: _Event) -> tuple[str, Sequence[Missing]]:
        """A body of the log's own messages, and what is missing of it."""
        api = self._apis.get(event.model) or _APIS.get(str(event.model).partition("/")[0])
        messages = event.input or _pooled(self._messages, event.input_refs)
        sent = None if not messages else [encode(_sent(object_or_empty(message), api)) for message in messages]
        is_exact = bool(messages) and all(_is_known(object_or_empty(message), api) for message in messages)
        fields = {"model": event.model, "tools": event.tools, **event.config}
        return body_text(fields, sent), () if is_exact else ("messages",)

    def _tool(self, event: _Event, key: str) -> Span:
        tool = SessionTool(
            key=key,
            name=event.function or "unknown",
            call_id=event.id,
            start_ns=event.start_ns,
            end_ns=event.end_ns,
            arguments=event.arguments,
            result=event.result,
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

    def _resolved(self, value: Value) -> Value:
        """Put attachments in the place of the references to them in a value."""
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            return self._sample.attachments.get(value.removeprefix(_ATTACHMENT), value)
        if is_object(value):
            return {name: self._resolved(item) for name, item in value.items()}
        return [self._resolved(item) for item in value] if is_list(value) else value


def _items(value: Value) -> list[Value]:
    return value if is_list(value) else []


def _pooled(pool: list[T], ranges: Value) -> list[T] | None:
    """What ranges `[start, end]` lead to in a pool; None where they lead out of it, or nowhere."""
    pairs = converted(ranges or [], list[tuple[int, int]], strict=True)
    is_inside = all(0 <= start <= end <= len(pool) for start, end in pairs)
    return [entry for start, end in pairs for entry in pool[start:end]] if pairs and is_inside else None


def _api_of(call: dict[str, Value]) -> _Api | None:
    """The API whose bodies a call was logged with; None for one whose bodies are not read."""
    response = object_or_empty(call.get("response")) if is_object(call.get("request")) else {}
    return next((api for name, api in _API_OF_FIELD.items() if name in response), None)


def _sent(message: dict[str, Value], api: _Api | None) -> dict[str, Value]:
    """A message of the log in OpenAI's words, as it is sent to an API."""
    error = object_or_empty(message.get("error")).get("message")
    is_text = api in ("chat", "responses")  # else arguments are sent as the object that they are
    renamed = [
        {
            "id": call.get("id"),
            "function": {"name": call.get("function"), "arguments": json.dumps(arguments) if is_text else arguments},
        }
        for call in map(object_or_empty, _items(message.get("tool_calls")))
        for arguments in (call.get("arguments"),)
    ]
    kept = {name: message[name] for name in ("role", "content", "tool_call_id") if message.get(name) is not None}
    if error:
        kept["content"] = f"Error: {error}" if api == "chat" else error
    elif api == "chat" and kept.get("role") == "assistant" and is_list(kept.get("content")):
        kept |= _as_chat(kept["content"])
    return {**kept, "tool_calls": renamed} if renamed else kept


def _as_chat(parts: list[Value]) -> dict[str, Value]:
    """The parts of an answer as the chat API is sent them again: reasoning in its field or in tags, texts in lines."""
    texts: list[str] = []
    fields: dict[str, Value] = {}
    for part in map(object_or_empty, parts):
        if part.get("type") == "text":
            texts.append(f"\n{part.get('text')}")
        elif part.get("internal") in _REASONING_FIELDS:
            fields[str(part["internal"])] = part.get("reasoning")
        else:
            texts.append(f"\n<think>\n{part.get('reasoning')}\n</think>\n")
    return {"content": "".join(texts), **fields}


def _sampled(message: dict[str, Value]) -> dict[str, Value]:
    """An answer of the log in OpenAI's words, as the API gave it: its texts are one, as is its reasoning."""
    parts = [object_or_empty(part) for part in _items(message.get("content"))]
    if not parts or any(part.get("type") not in ("text", "reasoning") for part in parts):
        return _sent(message, None)
    texts = {kind: [str(part[kind]) for part in parts if part.get(kind)] for kind in ("text", "reasoning")}
    content, reasoning = ("".join(texts[kind]) or None for kind in ("text", "reasoning"))
    return {**_sent(message, None), "content": content, "reasoning_content": reasoning}


def _is_known(message: dict[str, Value], api: _Api | None) -> bool:
    """Whether a message can be written as it was sent."""
    if api is None:
        return message.get("error") is None
    parts = message.get("content")
    if api != "chat" or message.get("role") != "assistant" or not is_list(parts):
        return True
    return all(_is_known_part(object_or_empty(part)) for part in parts)


def _is_known_part(part: dict[str, Value]) -> bool:
    if part.get("type") == "text":
        return part.get("internal") is None
    is_field = part.get("internal") in _REASONING_FIELDS
    is_plain = not any(part.get(name) for name in ("internal", "signature", "summary", "redacted"))
    return part.get("type") == "reasoning" and (is_field or is_plain)


def _rebuilt_response(output: dict[str, Value]) -> str | None:
    choices = output.get("choices")
    if not is_list(choices) or not choices:
        return None
    usage = object_or_empty(output.get("usage"))
    fields = [
        choice_body(
            _sampled(object_or_empty(object_or_empty(choice).get("message"))),
            object_or_empty(choice).get("stop_reason"),
            index=index,
            logprobs=object_or_empty(choice).get("logprobs"),
        )
        for index, choice in enumerate(choices)
    ]
    counts = {**usage, "prompt_tokens_details": {"cached_tokens": usage.get("input_tokens_cache_read")}}
    return encode({"model": output.get("model"), "choices": fields, "usage": counts})


def _scores(scores: dict[str, Value]) -> Iterator[Score]:
    for name, score in scores.items():
        fields = object_or_empty(score)
        value, explanation = fields.get("value"), fields.get("explanation")
        named = {f"{name}.{key}": item for key, item in value.items()} if is_object(value) else {name: value}
        for key, item in named.items():
            label = item if isinstance(item, str) else None
            number = _GRADES.get(item) if isinstance(item, str) else item
            score_value = number if isinstance(number, (int, float)) else None
            if score_value is not None or label is not None:
                yield Score(name=key, value=score_value, label=label, explanation=explanation)


FORMAT: Final = SourceFormat(
    name=_NAME,
    detects=_detects,
    reads=without_secrets(_reads),
    not_in_format=("token ids", "bodies of APIs but OpenAI's and Anthropic's"),
)
