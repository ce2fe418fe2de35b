"""Session: the spans of one logged session: its rollout, its sub-agents, LLM calls and tools.

Invariant: ids are made of the log's own ids, so that reading a log twice gives the same spans; an LLM call carries the
bodies of its request and response, and the names of what of the request the log does not tell.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal

import msgspec

from art_otel import attributes as names
from art_otel.calls import Logprobs, Packed, TokenIds
from art_otel.sources.json_values import encode, is_list
from art_otel.sources.refusals import Refused
from art_otel.spans import Event, Scope, Span, Value

ROOT: Final = "rollout"
"""The key of the session's own span."""

_OPERATION: Final = "gen_ai.operation.name"
_EVALUATION: Final = "gen_ai.evaluation.result"
_ERROR_TYPE: Final = "error.type"

Missing = Literal["system instructions", "tools", "messages", "parameters", "answer"]
"""What of a call a log does not tell whole."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A reward by its name: a number, or a label alone."""

    name: str
    value: Value = None
    label: str | None = None
    explanation: str | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One LLM call. `request` and `response` are JSON texts of an API's bodies; None: the log has none.

    `key` is unique in the session. `end_ns` is None while there is no answer. `error` is the type of a failure and its
    message. `extra` holds further attributes.
    """

    key: str
    model: str | None
    start_ns: int
    end_ns: int | None
    request: str | None
    response: str | None
    missing: Sequence[Missing] = ()
    error: tuple[str, str] | None = None
    extra: Mapping[str, Value] = {}


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a tool. `arguments` is JSON text, `result` text or JSON text; None is unknown."""

    key: str
    name: str
    call_id: str | None
    start_ns: int
    end_ns: int
    arguments: str | None
    result: str | None
    failed: bool = False


class Session:
    """Makes the spans of a session. `format` and `id` name it; `id` is the rollout's id."""

    def __init__(self, format: str, id: str, *, agent: str, version: str = "") -> None:  # noqa: A002 # what they are
        self.id = id
        self.trace_id = _digest(16, format, id)
        self._agent = agent
        self._scope = Scope(name=agent, version=version)

    def span_id(self, key: str) -> str:
        """The id of the span with this key."""
        return _digest(8, self.trace_id, key)

    def rollout(
        self,
        start_ns: int,
        end_ns: int | None,
        *,
        attributes: Mapping[str, Value] = {},
        metadata: Mapping[str, Value] = {},
        scores: Iterable[Score] = (),
        error: tuple[str, str] | None = None,
    ) -> Span:
        """Build the session's root span. Metadata that is None is left out."""
        root_attributes = {**attributes, **_metadata(metadata), names.ROLLOUT_NAME: self._agent}
        events = tuple(_evaluation(score, end_ns or start_ns) for score in scores)
        span = self._span(
            f"{names.ROLLOUT_SPAN_PREFIX}{self._agent}", ROOT, None, start_ns, end_ns, root_attributes, error
        )
        return msgspec.structs.replace(span, events=events)

    def sub_agent(self, name: str, key: str, parent: str, start_ns: int, end_ns: int) -> Span:
        """The span of an agent that another one ran; `parent` is the key of the span above it."""
        attributes = {_OPERATION: "invoke_agent", "gen_ai.agent.name": name}
        return self._span(f"invoke_agent {name}", key, parent, start_ns, end_ns, attributes)

    def call(self, call: Call, parent: str = ROOT) -> Span:
        """The span of an LLM call."""
        attributes: dict[str, Value] = {_OPERATION: "chat", "gen_ai.request.model": call.model, **call.extra}
        for name, body in (("input", call.request), ("output", call.response)):
            if body is not None:
                attributes |= {f"{name}.value": body, f"{name}.mime_type": "application/json"}
        if call.missing:
            attributes[names.MISSING] = list(call.missing)
        name = f"chat {call.model}" if call.model else "chat"
        return self._span(name, call.key, parent, call.start_ns, call.end_ns, attributes, call.error, "client")

    def tool(self, tool: Tool, parent: str = ROOT) -> Span:
        """The span of an execution of a tool."""
        attributes = {
            _OPERATION: "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.call.id": tool.call_id,
            "gen_ai.tool.call.arguments": tool.arguments,
            "gen_ai.tool.call.result": tool.result,
        }
        error = ("tool_error", "") if tool.failed else None
        return self._span(f"execute_tool {tool.name}", tool.key, parent, tool.start_ns, tool.end_ns, attributes, error)

    def _span(
        self,
        name: str,
        key: str,
        parent: str | None,
        start_ns: int,
        end_ns: int | None,
        attributes: Mapping[str, Value],
        error: tuple[str, str] | None = None,
        kind: Literal["internal", "client"] = "internal",
    ) -> Span:
        kept = {name: _attribute(value) for name, value in attributes.items() if value is not None}
        if error is not None:
            kept[_ERROR_TYPE] = error[0]
        return Span(
            trace_id=self.trace_id,
            span_id=self.span_id(key),
            parent_span_id=None if parent is None else self.span_id(parent),
            name=name,
            kind=kind,
            start_ns=start_ns,
            end_ns=None if end_ns is None else max(start_ns, end_ns),
            attributes={names.ROLLOUT_ID: self.id, **kept},
            status="unset" if error is None else "error",
            status_message="" if error is None else error[1],
            scope=self._scope,
        )


def body_text(fields: Mapping[str, Value], messages: Iterable[str] | None, name: str = "messages") -> str:
    """JSON text of a request body: its fields, and last its messages, JSON texts themselves; None: unknown."""
    text = encode({field: value for field, value in fields.items() if value is not None and field != name})
    if messages is None:
        return text
    return f'{text[:-1]}{"," if len(text) > 2 else ""}"{name}":[{",".join(messages)}]}}'


def _attribute(value: Value) -> Value:
    """A value that an attribute can have; JSON text of any other."""
    items: list[Value] = value if is_list(value) else [value]
    is_plain = all(isinstance(item, (str, bool, float)) or _fits(item) for item in items)
    return value if is_plain else encode(value)


def _fits(value: Value) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _digest(size: int, *parts: str) -> str:
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def _metadata(metadata: Mapping[str, Value]) -> dict[str, Value]:
    scalars = (str, bool, int, float)
    return {
        f"{names.METADATA_PREFIX}{name}" if isinstance(value, scalars) else f"{names.METADATA_JSON_PREFIX}{name}": value
        if isinstance(value, scalars)
        else encode(value)
        for name, value in metadata.items()
        if value is not None
    }


def _evaluation(score: Score, time_ns: int) -> Event:
    fields = {
        "gen_ai.evaluation.name": score.name,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": score.label,
        "gen_ai.evaluation.explanation": score.explanation,
    }
    kept = {name: _attribute(value) for name, value in fields.items() if value is not None}
    return Event(name=_EVALUATION, time_ns=time_ns, attributes=kept)


def token_attributes(
    *, prompt: Sequence[int] | None, completion: Sequence[int] | None, logprobs: Sequence[float] | None
) -> dict[str, Value]:
    """The ids of a call's prompt and of its only choice, with their logprobs where there is one an id.

    Raises Refused for a number that is none.
    """
    try:
        attributes: dict[str, Value] = (
            {} if prompt is None else {names.PROMPT_TOKENS: _packed("i4", TokenIds.of(prompt))}
        )
        if completion is not None:
            attributes[f"{names.COMPLETION_TOKENS_PREFIX}0"] = _packed("i4", TokenIds.of(completion))
            if logprobs is not None and len(logprobs) == len(completion):
                attributes[f"{names.COMPLETION_LOGPROBS_PREFIX}0"] = _packed("f4", Logprobs.of(logprobs))
    except (OverflowError, TypeError) as error:
        raise Refused("bad field", "token_ids", str(error)) from None
    return attributes


def _packed(kind: str, numbers: Packed[int] | Packed[float]) -> str:
    return f"{kind}:{len(numbers)}:{b64encode(numbers.data).decode()}"
