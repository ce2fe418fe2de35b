"""Recorded values: what a tracer wrote as the input and the output of a call, in whatever shape its client had it.

MLflow, Langfuse and LangSmith record the arguments and the result of a client's method: bodies of OpenAI, Anthropic and
Gemini, messages of LangChain, lists of messages, bare texts. Invariant: the shape is told by the names of its fields; a
value of any other shape gives no facts, so its call is one without content.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from art_otel.calls import Choice, Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies import openai_body
from art_otel.conventions.bodies.message import join, messages_of
from art_otel.conventions.clients import gemini, langchain
from art_otel.conventions.facts import CallFacts
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
    if "contents" in body:
        return gemini.read_request(reader, name, body)
    if (prompts := values.items(body.get("prompts"))) is not None:
        return openai_body.read_request(reader, name, {"prompt": prompts}) if len(prompts) == 1 else None
    entries = values.items(body.get("messages"))
    if entries and all(values.items(entry) is not None for entry in entries):
        entries = values.items(entries[0]) if len(entries) == 1 else None  # LangChain's; of several none is the prompt
        body = {**body, "messages": entries}
    if not any(map(langchain.is_message, entries or ())):
        return openai_body.read_request(reader, name, body)
    try:
        messages = tuple(message for entry in entries or () for message in _message(entry))
    except ParseError:
        return None
    return CallFacts(
        operation_name="chat",
        request_model=values.text(body.get("model")),
        parameters=openai_body.read_parameters(reader, name, body),
        tools=openai_body.read_tools(reader, name, body),
        input_messages=messages,
    )


def _message(entry: Value) -> tuple[Message, ...]:
    return langchain.langchain_messages(entry) if langchain.is_message(entry) else messages_of(entry)


def _is_item(entry: Value) -> bool:
    return values.text((values.mapping(entry) or {}).get("type")) in _ITEMS


def read_output(reader: AttributeReader, name: str, value: Value) -> CallFacts | None:
    """Read what attribute `name` says was answered; None when it is no response."""
    return _read_output(reader, name, value, _MAX_WRAPPINGS)


def _read_output(reader: AttributeReader, name: str, value: Value, wrappings: int) -> CallFacts | None:
    if isinstance(value, str):
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
        return langchain.read_result(reader, name, body)
    if langchain.is_message(body):
        return _answers(langchain.langchain_messages(body)[-1:])
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
    return [join(answers)] if answers and any(map(_is_item, entries)) else answers


def _answers(messages: Sequence[Message]) -> CallFacts | None:
    if not messages:
        return None
    return CallFacts(choices=tuple(Choice(index=index, message=message) for index, message in enumerate(messages)))
