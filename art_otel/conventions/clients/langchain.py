"""LangChain: messages and results of its models in each of its serializations.

A message is a constructor (`{"lc": 1, "id": […, "AIMessage"], "kwargs": {…}}`), `{"type": "ai", "data": {…}}`, or its
fields alone; a result is an `LLMResult`. Source of the format: `langchain_core.load`, `langchain_core.messages` and
`langchain_core.outputs`. Invariant: LangChain lists a tool call up to three times, as sent, in the content and parsed;
it is read once, from where its arguments are the sampled text.
"""

from typing import Final

from art_otel.calls import Choice, Message, Usage
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.finish import completed_reason, finish_reason, response_finish_reason
from art_otel.conventions.bodies.message import messages_of
from art_otel.conventions.bodies.openai_body import read_tokens
from art_otel.conventions.bodies.server_tokens import choice_tokens
from art_otel.conventions.facts import CallFacts
from art_otel.errors import ParseError
from art_otel.spans import Value

_ROLES: Final = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}
_OWN_FIELDS: Final = frozenset({"lc", "additional_kwargs", "response_metadata", "invalid_tool_calls"})
_EXACT_CALL: Final = "function_call"
_CALL_PARTS: Final = frozenset({_EXACT_CALL, "tool_use", "tool_call", "input_json_delta", "tool_call_chunk"})
"""Parts of the content that repeat tool calls, of which a function call has the sampled text."""


def is_message(value: Value) -> bool:
    """Whether a value is a message as only LangChain writes it."""
    fields = values.mapping(value) or {}
    return not _OWN_FIELDS.isdisjoint(fields) or fields.keys() == {"type", "data"} or _is_doubled(fields)


def _is_doubled(fields: dict[str, Value]) -> bool:
    """Whether tool calls stand both in the content and beside it."""
    parts = [values.mapping(part) or {} for part in values.items(fields.get("content")) or ()]
    return bool(fields.get("tool_calls")) and any(values.text(part.get("type")) in _CALL_PARTS for part in parts)


def langchain_messages(value: Value) -> tuple[Message, ...]:
    """Parse one message. Raises ParseError when it is none."""
    fields = _fields(value)
    kind = values.text(fields.get("role")) or values.text(fields.get("type"))
    if kind is None:
        raise ParseError("", "is no message of LangChain")
    extra = values.mapping(fields.get("additional_kwargs")) or {}
    named = {name: fields[name] for name in ("name", "tool_call_id") if fields.get(name) is not None}
    calls = _tool_calls(fields, extra)
    return messages_of(
        {
            **{name: extra[name] for name in ("refusal", "reasoning_content", "function_call") if extra.get(name)},
            **named,
            "role": _ROLES.get(kind, kind),
            "content": _without_calls(fields.get("content")) if calls else fields.get("content"),
            "tool_calls": calls,
        }
    )


def _fields(value: Value) -> dict[str, Value]:
    """The fields of a message, which may be below another object."""
    fields = values.mapping(value) or {}
    inner = (
        fields.get("kwargs") if "lc" in fields else fields.get("data") if fields.keys() == {"type", "data"} else None
    )
    return fields if inner is None else {**(values.mapping(inner) or {})}


def _tool_calls(fields: dict[str, Value], extra: dict[str, Value]) -> list[Value]:
    """Return the tool calls as the API sent them if all are there, else as LangChain parsed them."""
    parsed = [*(values.items(fields.get("tool_calls")) or ()), *(values.items(fields.get("invalid_tool_calls")) or ())]
    parts = [values.mapping(part) or {} for part in values.items(fields.get("content")) or ()]
    in_content: list[Value] = [part for part in parts if part.get("type") == _EXACT_CALL]
    from_api = values.items(extra.get("tool_calls")) or []
    return next((calls for calls in (from_api, in_content) if len(calls) == len(parsed)), parsed)


def _without_calls(content: Value) -> Value:
    parts = values.items(content)
    if parts is None:
        return content
    return [part for part in parts if values.text((values.mapping(part) or {}).get("type")) not in _CALL_PARTS]


def read_result(reader: AttributeReader, name: str, result: dict[str, Value]) -> CallFacts | None:
    """Read the `LLMResult` that attribute `name` holds; None for one of several prompts, which is no one call."""
    prompts = values.items(result.get("generations")) or []
    sampled = values.items(prompts[0]) if prompts and values.items(prompts[0]) is not None else prompts
    if (len(prompts) != 1 and sampled is not prompts) or not sampled:
        return None
    generations = [values.mapping(entry) or {} for entry in sampled]
    outputs = [_fields(generation.get("message")) for generation in generations]
    holders = [*(_object(output, "response_metadata") for output in outputs), _object(result, "llm_output")]
    try:
        choices = tuple(_choice(reader, name, index, generation) for index, generation in enumerate(generations))
    except ParseError:
        choices = None
    return CallFacts(
        response_id=_first(holders, "id"),
        response_model=_first(holders, "model_name") or _first(holders, "model"),
        choices=choices,
        usage=_usage(_object(outputs[-1], "usage_metadata")),
    )


def _choice(reader: AttributeReader, name: str, index: int, generation: dict[str, Value]) -> Choice:
    """Parse a generation: of a chat model with its message, of a completion model with its text alone."""
    recorded = generation.get("message")
    entry: Value = {"role": "assistant", "content": generation.get("text")} if recorded is None else recorded
    message = langchain_messages(entry)[-1]
    metadata = {**_object(_fields(recorded), "response_metadata"), **_object(generation, "generation_info")}
    ids, logprobs = read_tokens(reader, name, *choice_tokens(metadata))
    return Choice(
        index=index,
        message=message,
        finish_reason=_finish_reason(metadata, tool_calls=bool(message.tool_calls)),
        token_ids=ids,
        logprobs=logprobs,
    )


def _finish_reason(metadata: dict[str, Value], *, tool_calls: bool) -> str | None:
    reason = finish_reason(metadata.get("finish_reason") or metadata.get("stop_reason") or metadata.get("done_reason"))
    if reason is None:
        return response_finish_reason(metadata, tool_calls=tool_calls)
    return completed_reason(tool_calls=tool_calls) if reason == "stop" else reason


def _usage(counts: dict[str, Value]) -> Usage | None:
    usage = Usage(
        input_tokens=values.integer(counts.get("input_tokens")),
        output_tokens=values.integer(counts.get("output_tokens")),
        total_tokens=values.integer(counts.get("total_tokens")),
        cached_tokens=values.integer(_object(counts, "input_token_details").get("cache_read")),
        reasoning_tokens=values.integer(_object(counts, "output_token_details").get("reasoning")),
    )
    return None if usage == Usage() else usage


def _object(fields: dict[str, Value], name: str) -> dict[str, Value]:
    return values.mapping(fields.get(name)) or {}


def _first(holders: list[dict[str, Value]], name: str) -> str | None:
    return next(filter(None, (values.text(holder.get(name)) for holder in holders)), None)
