"""Bodies: what was asked and answered, as attributes of the call's span.

Invariant: a request is read from the bytes that were sent, so nothing the app does to its messages later changes it.
What is written of an answer is what the server sent: ids and logprobs are those of the choice they stand beside, and
what is no list of ids or logprobs is left out. `art_otel.conventions.dialects.art` reads it back.
"""

import re
from typing import Final, TypeAlias

import msgspec

from art_otel import attributes as names
from art_otel.conventions import request_attributes, values
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
from art_otel.conventions.dialects.genai import INPUT_MESSAGES, OUTPUT_MESSAGES, RESPONSE_ID
from art_otel.conventions.dialects.openinference import INPUT_VALUE, OUTPUT_VALUE
from art_otel.errors import ParseError
from art_otel.spans import Attributes, Value

_ASKED: Final = frozenset({"messages", "input", "instructions", "prompt", "system"})
_PROMPT: Final = _ASKED | {"tools", "functions"}
_NULL: Final = msgspec.Raw(b"null")
RawFields: TypeAlias = dict[str, msgspec.Raw]
_FIELDS: Final = msgspec.json.Decoder(RawFields)


def fields_of(body: bytes) -> RawFields:
    """The fields of a request body, as they stand in it; none where it is no JSON object."""
    try:
        return _FIELDS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


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


def request_attributes_of(request: dict[str, Value], fields: RawFields) -> dict[str, Value]:
    """The request as an instrumentor writes it, and its parameters as they stand in its fields."""
    return {**request_attributes(request), **parameters(fields)}


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

_FAILED: Final = "failed"
"""What a body of the Responses API may have as its status."""

_ON_PROMPT: Final = ("context_management", "input_transformations", "truncated")
"""What a server says of what it made of the prompt; `conventions.bodies.openai_body` knows what it means."""

_END: Final = ("status", "incomplete_details", "usage")
_FAILURE: Final = "APIError"
"""What openai's client raises for an error in the middle of a stream."""


def decode(body: bytes) -> dict[str, Value] | None:
    """The JSON object of a body or of a stream's event; None for anything else."""
    try:
        return values.mapping(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return values.mapping(values.decode(body.decode(errors="replace"))[0])
    except ParseError:
        return None


def failure(body: dict[str, Value]) -> str:
    """Return the error code of a failed Responses body, or of an error event."""
    error = values.mapping((values.mapping(body.get("response")) or body).get("error")) or body
    return values.text(error.get("code")) or _FAILURE


LONGEST_MESSAGE: Final = 1000
"""Characters of an error's message that are kept."""


def failure_message(body: dict[str, Value]) -> str:
    """Return what a body or an event with an error says: its message, and its code where the message has none.

    As OpenAI, Anthropic, FastAPI and TGI write them. The code is that of `conventions.failures`, too.
    """
    said = values.mapping(body.get("response")) or body
    error = values.mapping(said.get("error")) or said
    message = values.text(error.get("message")) or values.text(said.get("detail")) or values.text(said.get("error"))
    code = values.text(error.get("code")) or values.text(error.get("type"))
    if message is None or code is None or code in message:
        return (message or "")[:LONGEST_MESSAGE]
    return f"{message[:LONGEST_MESSAGE]} ({code[:LONGEST_MESSAGE]})"


def failed_status(body: dict[str, Value]) -> str | None:
    """Return the error code of a body of the Responses API that says that it failed; None for any other."""
    return failure(body) if body.get("status") == _FAILED else None


_RUNNING: Final = (None, "queued", "in_progress")


def is_unfinished(body: dict[str, Value]) -> bool:
    """Whether the body of an answer does not say how it ended."""
    if "output" in body:
        return body.get("status") in _RUNNING
    choices = [values.mapping(choice) or {} for choice in values.items(body.get("choices")) or ()]
    return not choices or any(choice.get("finish_reason") is None for choice in choices)


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


RESPONSE_MESSAGES: Final = ("input_messages", "output_messages")
"""Where vLLM's Responses have token ids, if they are asked for with `enable_response_messages`."""


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
