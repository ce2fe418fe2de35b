"""Attributes: what of an exchange stands on the span of its call. Nowhere else are they made.

Invariant: a request is read from the bytes that were sent, so nothing the app does to its messages later changes it.
What is written of an answer is what the server sent: ids and logprobs are those of the choice they stand beside, and
what is no list of ids or logprobs is left out. `art_otel.conventions.dialects.art` reads it back.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from art_otel import attributes as names
from art_otel.conventions import request_attributes, response_attributes, values
from art_otel.conventions.bodies.openai_body import counts_one_choice, given_ids
from art_otel.conventions.bodies.token_facts import FACTS, UNNAMED, fact_attributes
from art_otel.conventions.bodies.tokens import (
    choice_tokens,
    choices_with_ids,
    encode_ids,
    logprobs_mode,
    prompt_ids,
    write_ids,
    write_logprobs,
)
from art_otel.conventions.dialects.genai import (
    API_TYPE,
    INPUT_MESSAGES,
    OPERATION_NAME,
    OUTPUT_MESSAGES,
    PROVIDERS,
    REQUEST_MODEL,
    RESPONSE_ID,
    RESPONSES,
)
from art_otel.conventions.dialects.openinference import INPUT_VALUE, OUTPUT_VALUE
from art_otel.conventions.values import RawFields
from art_otel.exchange import gemini
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.bodies import RESPONSE_MESSAGES
from art_otel.exchange.exchange import Exchange
from art_otel.spans import Attributes, Value

_ASKED: Final = frozenset({"messages", "input", "instructions", "prompt", "system"})
_PROMPT: Final = _ASKED | {"tools", "functions"}
_NULL: Final = msgspec.Raw(b"null")


_PROVIDERS: Final[dict[WireDialect, str]] = {"messages": "anthropic"}
_OPERATIONS: Final[dict[WireDialect, str]] = {"completions": "text_completion", "gemini": "generate_content"}


def call_name(attributes: Mapping[str, Value]) -> str:
    """The name of a call's span: its operation and its model."""
    model, operation = attributes.get(REQUEST_MODEL), attributes[OPERATION_NAME]
    return str(operation) if model is None else f"{operation} {model}"


def identity_attributes(dialect: WireDialect, path: str, model: str | None, server: str) -> dict[str, Value]:
    """What is known of a call before its bodies are read. `server` is a URL or a host."""
    return {
        OPERATION_NAME: _OPERATIONS.get(dialect, "chat"),
        PROVIDERS[0]: gemini.provider(path) if dialect == "gemini" else _PROVIDERS.get(dialect, "openai"),
        **({} if model is None else {REQUEST_MODEL: model}),
        **({API_TYPE: RESPONSES} if dialect == "responses" else {}),
        "server.address": urlsplit(server).hostname or server,
    }


def asked_attributes(exchange: Exchange) -> dict[str, Value]:
    """What was asked, as an instrumentor writes it, and its parameters as they stand in the request's body."""
    if exchange.dialect == "gemini":
        return gemini.asked_attributes(exchange.request)
    return {**request_attributes(exchange.request), **parameters(exchange.fields)}


def answered_attributes(exchange: Exchange) -> dict[str, Value]:
    """What was answered, once the answer has ended."""
    answer = exchange.answer
    attributes: dict[str, Value] = (
        {} if answer is None else {**response_attributes(spoken(answer)), **answer_attributes(answer)}
    )
    if answer is not None and (named := values.text(answer.get(gemini.RESPONSE_ID))) is not None:
        attributes[RESPONSE_ID] = named
    if exchange.sampled is not None:
        attributes |= exchange.sampled.attributes()
    if exchange.policy_version is not None:
        attributes[names.POLICY_VERSION] = exchange.policy_version
    if exchange.was_left:
        attributes[names.CLOSED_BY_APP] = "left"
    return attributes


def parameters(fields: RawFields) -> dict[str, str]:
    """The request without its messages, and the ids of a prompt that was given as ids.

    Instructions stand among the messages; here `null` says that they do. A template on the server is a parameter.
    """
    kept = {name: value for name, value in fields.items() if name not in _ASKED}
    if _has_instructions(fields):
        kept["instructions"] = _NULL
    asked = bytes(fields.get("prompt", b""))
    if asked.startswith(b"{"):
        kept["prompt"] = fields["prompt"]
    attributes = {names.REQUEST_PARAMETERS: msgspec.json.encode(kept).decode()} if kept else {}
    if asked.startswith(b"[") and (ids := given_ids(msgspec.json.decode(asked))) is not None:
        attributes[names.PROMPT_TOKENS] = encode_ids(ids)
    return attributes


def messages(fields: RawFields) -> dict[str, str]:
    """The messages of a Chat Completions request; of a Responses request its instructions and its input items."""
    asked = fields.get("messages") or _input(fields)
    return {} if asked is None else {names.REQUEST_MESSAGES: bytes(asked).decode()}


_PROMPTS: Final = (INPUT_MESSAGES, INPUT_VALUE, "llm.input_messages.", "gen_ai.prompt.")
_ANSWERS: Final = (OUTPUT_MESSAGES, OUTPUT_VALUE, "llm.output_messages.", "gen_ai.completion.")

_NOT_AS_SENT: Final = re.compile(rb'"(?:function_call"\s*:\s*\{|role"\s*:\s*"function"|refusal"\s*:\s*")')
"""What instrumentors leave out of messages: calls of the older `functions`, their results, and refusals.

OpenLLMetry writes none of these; OpenTelemetry's writes a refusal as a text.
"""


def lost_messages(recorded: Attributes, fields: RawFields) -> dict[str, str]:
    """The messages of a request where its instrumentor, which records content, lost them or writes them otherwise.

    Where it recorded an answer without a prompt, it lost the prompt. A whole request body loses nothing.
    """
    if INPUT_VALUE in recorded:
        return {}
    has_prompt = has_answer = False
    for name in recorded:  # this runs on the app's thread for every call, so nothing is called for each name
        has_prompt = has_prompt or name.startswith(_PROMPTS)
        has_answer = has_answer or name.startswith(_ANSWERS)
    if has_prompt:
        sent = bytes(fields.get("messages") or fields.get("input") or b"")
        return messages(fields) if _NOT_AS_SENT.search(sent) is not None else {}
    return messages(fields) if has_answer else {}


def prompt(fields: RawFields) -> list[str]:
    """What a model reads of a request: JSON texts, each of which a later request of the conversation goes on from."""
    return [bytes(value).decode(errors="replace") for name, value in fields.items() if name in _PROMPT]


def _input(fields: RawFields) -> bytes | None:
    asked = bytes(fields.get("input", b""))
    if asked.startswith(b'"'):
        items = [b'{"role":"user","content":%b}' % asked]
    elif asked.startswith(b"["):
        items = [bytes(item) for item in msgspec.json.decode(asked, type=list[msgspec.Raw])]
    else:
        return None
    if _has_instructions(fields):
        items.insert(0, b'{"role":"system","content":%b}' % bytes(fields["instructions"]))
    return b"[%b]" % b",".join(items)


def _has_instructions(fields: RawFields) -> bool:
    return bytes(fields.get("instructions", _NULL)) not in (bytes(_NULL), b'""')


_NUMBERS: Final = frozenset(
    {"logprobs", "token_ids", "response_token_ids", "prompt_token_ids", "prompt_logprobs", *FACTS}
)
"""What stands in attributes of its own, or (vLLM's `prompt_logprobs`) is not about the completion."""

_ON_PROMPT: Final = ("context_management", "input_transformations", "truncated")
"""What a server says of what it made of the prompt; `conventions.bodies.openai_body` knows what it means."""

_END: Final = ("status", "incomplete_details", "usage")


def answer_attributes(body: dict[str, Value]) -> dict[str, str]:
    """Return the id, choices, token ids and logprobs of a response body as span attributes."""
    named = values.text(body.get("id"))
    attributes = {} if named is None else {RESPONSE_ID: named}
    choices = values.items(choices_with_ids(body)) if "choices" in body else None
    if choices is None:
        return attributes | _response(body)
    entries = [values.mapping(entry) or {} for entry in choices]
    if entries:
        attributes[names.RESPONSE_CHOICES] = _json([_without_numbers(entry) for entry in entries])
    if (asked := write_ids(prompt_ids(body, entries))) is not None:
        attributes[names.PROMPT_TOKENS] = asked
    has_logprobs = False
    for position, entry in enumerate(entries):
        index = values.place_of(entry, position)
        attributes |= _tokens(index, entry)
        has_logprobs = has_logprobs or f"{names.COMPLETION_LOGPROBS_PREFIX}{index}" in attributes
    if has_logprobs and (mode := logprobs_mode(body, entries)) is not None:
        attributes[names.LOGPROBS_MODE] = mode
    version = values.text((values.mapping(body.get("metadata")) or {}).get("weight_version"))
    if version is not None and version != UNNAMED:  # SGLang's, of an answer that does not stream
        attributes[names.POLICY_VERSION] = version
    count = values.integer((values.mapping(body.get("usage")) or {}).get("completion_tokens"))
    ended: dict[str, Value] = {}
    for name in _ON_PROMPT:
        if body.get(name):
            ended[name] = body[name]
    if count is not None:  # recorders estimate it, and ids may be missing
        ended |= {"usage": {"completion_tokens": count}}
        ended |= {"counts_one_choice": True} if counts_one_choice(body) else {}
    return attributes | ({names.RESPONSE_END: _json(ended)} if ended else {})


def spoken(body: dict[str, Value]) -> dict[str, Value]:
    """The body of a response without token ids and logprobs."""
    choices = values.items(body.get("choices"))
    if choices is None:
        return body
    said: list[Value] = [_without_numbers(values.mapping(entry) or {}) for entry in choices]
    return {**_without_numbers(body), "choices": said}


def _response(body: dict[str, Value]) -> dict[str, str]:
    """Return the items of a Responses body, and how it ended, as span attributes."""
    items = values.items(body.get("output")) or []
    ended = {name: body[name] for name in _END if body.get(name) is not None}
    ended |= {name: body[name] for name in _ON_PROMPT if body.get(name)}
    attributes = {names.RESPONSE_CHOICES: _json([_item(item) for item in items])} if items else {}
    return attributes | ({names.RESPONSE_END: _json(ended)} if ended else {}) | _response_tokens(body)


def _response_tokens(body: dict[str, Value]) -> dict[str, str]:
    """The ids of a Responses body. Several outputs are several samplings, and no one completion."""
    prompt, outputs = (
        [values.mapping(entry) or {} for entry in values.items(body.get(name)) or ()] for name in RESPONSE_MESSAGES
    )
    if not prompt or len(outputs) != 1:
        return {}
    prompt_numbers: list[Value] = [number for entry in prompt for number in values.items(entry.get("tokens")) or ()]
    written, completion = write_ids(prompt_numbers), write_ids(outputs[0].get("tokens"))
    if written is None or completion is None:
        return {}
    return {names.PROMPT_TOKENS: written, f"{names.COMPLETION_TOKENS_PREFIX}0": completion}


def _tokens(index: int, choice: dict[str, Value]) -> dict[str, str]:
    ids, logprobs = choice_tokens(choice)
    written_ids, written_logprobs = write_ids(ids), write_logprobs(logprobs)
    attributes: dict[str, str] = {}
    if written_ids is not None:
        attributes[f"{names.COMPLETION_TOKENS_PREFIX}{index}"] = written_ids
    if written_logprobs is not None and (written_ids is None or _are_as_many(ids, logprobs)):
        attributes[f"{names.COMPLETION_LOGPROBS_PREFIX}{index}"] = written_logprobs
    has_facts = written_ids is not None and not choice.keys().isdisjoint(FACTS)
    return attributes | fact_attributes(index, choice) if has_facts else attributes


def _are_as_many(ids: Value, logprobs: Value) -> bool:
    return len(values.items(ids) or ()) == len(values.items(logprobs) or ())


def _item(item: Value) -> Value:
    """An output item of the Responses API; the logprobs stand in the parts of its content."""
    fields = values.mapping(item)
    parts = None if fields is None else values.items(fields.get("content"))
    if fields is None or parts is None:
        return item
    return {**fields, "content": [_without_numbers(values.mapping(part) or {}) for part in parts]}


def _without_numbers(fields: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in fields.items() if name not in _NUMBERS}


def _json(value: Value) -> str:
    return msgspec.json.encode(value).decode()
