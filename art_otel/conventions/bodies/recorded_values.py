"""Recorded values: what a tracer wrote as the input and the output of a call, in whatever shape its client had it.

MLflow, Langfuse and LangSmith record the arguments and the result of a client's method: bodies of OpenAI, Anthropic and
Gemini, messages of LangChain, lists of messages, bare texts. Invariant: the shape is told by the names of its fields; a
value of any other shape gives no facts, so its call is one without content.

LangChain's messages are constructors (`{"lc": 1, "id": […, "AIMessage"], "kwargs": {…}}`), `{"type": "ai", "data":
{…}}`, or their fields alone; a result is an `LLMResult` (`langchain_core.load`, `.messages`, `.outputs`). LangChain
lists a tool call up to four times, as sent, in the content, as the chunks of a stream and parsed; it is read once, from
where its arguments are the sampled text.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from art_otel.calls import Choice, Message, Usage
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies import gemini, openai_body
from art_otel.conventions.bodies.messages import join_messages, messages_of
from art_otel.conventions.bodies.openai_body import read_tokens
from art_otel.conventions.bodies.tokens import choice_tokens
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.vocabulary import completed_reason, finish_reason, response_finish_reason
from art_otel.errors import ParseError
from art_otel.spans import Value

_ITEMS: Final = frozenset(
    {"message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
"""Types of items of the Responses API, of which several are one message."""

_WRAPPED: Final = ("output", "message", "response")
_FAKE_ID: Final = "__fake_id__"
"""The response's id where the Agents SDK makes a response out of a stream of Chat Completions."""

_MAX_WRAPPINGS: Final = 4
"""Functions that return what a function returned wrap it again."""


def read_input(reader: AttributeReader, name: str, value: Value) -> CallFacts | None:
    """Read what attribute `name` says was asked; None when it is no request."""
    if isinstance(value, str):
        return CallFacts(input_messages=(Message(role="user", content=value),)) if value else None
    listed = values.items(value)
    body = values.mapping(value) or {"input" if any(map(_is_item, listed or ())) else "messages": value}
    body = openai_body.with_extra_body(body)
    if "contents" in body:
        return gemini.read_request(reader, name, body)
    if (prompts := values.items(body.get("prompts"))) is not None:
        return openai_body.read_request(reader, name, {"prompt": prompts}) if len(prompts) == 1 else None
    entries = values.items(body.get("messages"))
    if entries and all(values.items(entry) is not None for entry in entries):
        entries = values.items(entries[0]) if len(entries) == 1 else None  # LangChain's; of several none is the prompt
        body = {**body, "messages": entries}
    if not any(map(is_message, entries or ())):
        return openai_body.read_request(reader, name, body)
    try:
        messages = tuple(message for entry in entries or () for message in _message(entry, is_sent=True))
    except ParseError:
        return None
    return CallFacts(
        operation_name="chat",
        request_model=values.text(body.get("model")),
        parameters=openai_body.read_parameters(reader, name, body),
        tools=openai_body.read_tools(reader, name, body),
        input_messages=messages,
    )


def _message(entry: Value, *, is_sent: bool = False) -> tuple[Message, ...]:
    return langchain_messages(entry, is_sent=is_sent) if is_message(entry) else messages_of(entry)


def _is_item(entry: Value) -> bool:
    return values.text((values.mapping(entry) or {}).get("type")) in _ITEMS


def are_items(value: Value) -> bool:
    """Whether a value is an output item of the Responses API, or a list of them."""
    entries = values.items(value)
    return _is_item(value) if entries is None else bool(entries) and all(map(_is_item, entries))


_PRINTED_OBJECT: Final = re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>")
"""What a recorder that knows no streams writes of one: MLflow of Anthropic's `<anthropic.Stream object at 0x7f04…>`."""


def read_output(reader: AttributeReader, name: str, value: Value) -> CallFacts | None:
    """Read what attribute `name` says was answered; None when it is no response."""
    return _read_output(reader, name, value, _MAX_WRAPPINGS)


def _read_output(reader: AttributeReader, name: str, value: Value, wrappings: int) -> CallFacts | None:
    if isinstance(value, str):
        if _PRINTED_OBJECT.fullmatch(value):
            reader.gap("lossy recorder", f"{name}: {value}", field="answer")
            return None
        return _answers([Message(role="assistant", content=value)]) if value else None
    listed = values.items(value)
    try:
        if listed is not None:
            response = _only_response(listed)
            return _answers(_sampled(listed)) if response is None else _read_object(reader, name, response, wrappings)
        return _read_object(reader, name, values.mapping(value) or {}, wrappings)
    except ParseError:
        reader.mark_invalid(name)
        return None


def _read_object(reader: AttributeReader, name: str, body: dict[str, Value], wrappings: int) -> CallFacts | None:
    """Read a response body, a result or one message. Raises ParseError when one of its messages is none."""
    if "generations" in body:
        return read_result(reader, name, body)
    if is_message(body):
        return _answers(langchain_messages(body)[-1:])
    if "candidates" in body:
        return gemini.read_response(reader, name, body)
    is_responses = values.items(body.get("output")) is not None and "object" in body
    if "choices" in body or is_responses or ("stop_reason" in body and "content" in body):
        answered = openai_body.read_response(reader, name, body)
        if answered is None or answered.response_id != _FAKE_ID:
            return answered
        return msgspec.structs.replace(answered, response_id=_provider_id(body))
    if "role" in body or _is_item(body):
        return _answers(messages_of(body, role="assistant")[-1:])
    if (parts := body.get("parts")) is not None:
        return _answers([gemini.sampled({"parts": parts})])
    wrapped = next((body[key] for key in _WRAPPED if body.get(key) is not None), None)
    return None if wrapped is None or not wrappings else _read_output(reader, name, wrapped, wrappings - 1)


def _only_response(entries: list[Value]) -> dict[str, Value] | None:
    """The response body that is a list's only entry: what the Agents SDK makes of a stream."""
    body = values.mapping(entries[0]) if len(entries) == 1 else None
    return body if body is not None and body.get("object") == "response" else None


def _provider_id(response: dict[str, Value]) -> str | None:
    """Find the id of the completion that the Agents SDK made a response of."""
    items = [values.mapping(item) or {} for item in values.items(response.get("output")) or ()]
    data = [values.mapping(item.get("provider_data")) or {} for item in items]
    return next((response_id for entry in data if (response_id := values.text(entry.get("response_id")))), None)


def _sampled(entries: list[Value]) -> list[Message]:
    """The answers in a list: one of several items, else one a message. Raises ParseError for anything else."""
    if any(isinstance(entry, str) for entry in entries):
        entries = [{"role": "assistant", "content": entry} if isinstance(entry, str) else entry for entry in entries]
    answers = [message for entry in entries for message in _message(entry)]
    if any(message.role != "assistant" for message in answers):
        raise ParseError("", "is no list of answers")
    return [join_messages(answers)] if answers and any(map(_is_item, entries)) else answers


def _answers(messages: Sequence[Message]) -> CallFacts | None:
    if not messages:
        return None
    return CallFacts(choices=tuple(Choice(index=index, message=message) for index, message in enumerate(messages)))


_ROLES: Final = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}
_REASONS: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""Where the metadata of a message have OpenAI's, Anthropic's, Bedrock's and Ollama's finish reason."""

_CHUNKS: Final = ("AIMessageChunk",)
"""Types of messages that LangChain joins from a stream."""

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


_BESIDE_CONTENT: Final = ("refusal", "reasoning_content", "function_call")
"""What LangChain keeps of an answer beside its content."""


def langchain_messages(value: Value, *, is_sent: bool = False) -> tuple[Message, ...]:
    """Parse one message. Raises ParseError when it is none.

    Of one that was sent, LangChain leaves out the refusal that stands beside the content.
    """
    fields = _fields(value)
    kind = values.text(fields.get("role")) or values.text(fields.get("type"))
    if kind is None:
        raise ParseError("", "is no message of LangChain")
    extra = values.mapping(fields.get("additional_kwargs")) or {}
    named = {name: fields[name] for name in ("name", "tool_call_id") if fields.get(name) is not None}
    calls = _tool_calls(fields, extra, is_sent=is_sent)
    beside = [name for name in _BESIDE_CONTENT if extra.get(name) and not (is_sent and name == "refusal")]
    return messages_of(
        {
            **{name: extra[name] for name in beside},
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


def _tool_calls(fields: dict[str, Value], extra: dict[str, Value], *, is_sent: bool) -> list[Value]:
    """Return the tool calls as the API sent them if all are there, else as LangChain parsed them.

    It closes arguments that a stream cut: `{"city": "Zü` in the chunk is `{"city": "Zü"}` in the call, which it sends.
    """
    parsed = [*(values.items(fields.get("tool_calls")) or ()), *(values.items(fields.get("invalid_tool_calls")) or ())]
    parts = [values.mapping(part) or {} for part in values.items(fields.get("content")) or ()]
    in_content: list[Value] = [part for part in parts if part.get("type") == _EXACT_CALL]
    from_api = values.items(extra.get("tool_calls")) or []
    chunks = [] if is_sent else values.items(fields.get("tool_call_chunks")) or []
    return next((calls for calls in (from_api, in_content, chunks) if len(calls) == len(parsed)), parsed)


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
        stream=True if any(output.get("type") in _CHUNKS for output in outputs) else None,
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
    reason = finish_reason(next((metadata[name] for name in _REASONS if metadata.get(name)), None))
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
