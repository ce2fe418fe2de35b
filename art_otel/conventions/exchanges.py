"""Exchanges: the bodies of a request and of its answer, as the attributes of the span of their call.

    art.request.body   the request as it was sent       ─┐  `whole`     ┌─ gen_ai.input.messages, gen_ai.usage.…
    art.response.body  the answer, or its joined events ─┘ ─────────►  └─ art.request.parameters, art.tokens.…

A gateway writes the bodies to its spool as they were, and nothing of what they mean. Whoever reads the line, or sends
the span on, makes the attributes here. Invariant: so the spool and a collector have the same span, and both give the
same trajectory. What stands on a span beside the bodies counts more than what they say.

What is written of an answer is what the server sent: ids and logprobs are those of the choice they stand beside, and
what is no list of ids or logprobs is left out. `dialects.art` reads it back.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies import gemini
from art_otel.conventions.bodies.openai_body import counts_one_choice, given_ids
from art_otel.conventions.bodies.token_facts import FACTS, UNNAMED, fact_attributes
from art_otel.conventions.bodies.tokens import (
    RESPONSE_MESSAGES,
    choice_tokens,
    choices_with_ids,
    encode_ids,
    logprobs_mode,
    prompt_ids,
    write_ids,
    write_logprobs,
)
from art_otel.conventions.dialects.genai import (
    INPUT_MESSAGES,
    OUTPUT_MESSAGES,
    RESPONSE_ID,
    request_attributes,
    response_attributes,
)
from art_otel.conventions.dialects.openinference import INPUT_VALUE, OUTPUT_VALUE
from art_otel.conventions.facts import NO_FACTS
from art_otel.conventions.values import RawFields, json_object, raw_fields
from art_otel.spans import Attributes, Span, Value

BODIES: Final = (names.REQUEST_BODY, names.RESPONSE_BODY)
GEMINI_RESPONSE_ID: Final = "responseId"

ASKED: Final = frozenset({"messages", "input", "instructions", "prompt", "system"})
_READ: Final = ASKED | {"tools", "functions"}
_NULL: Final = msgspec.Raw(b"null")


def whole(span: Span) -> Span:
    """The span with the attributes that its bodies mean in their place; the very same span where it has no bodies."""
    if names.REQUEST_BODY not in span.attributes and names.RESPONSE_BODY not in span.attributes:
        return span
    return msgspec.structs.replace(span, attributes=whole_attributes(span.attributes))


def whole_attributes(attributes: Attributes) -> dict[str, Value]:
    """Attributes with what their bodies mean in the place of the bodies."""
    request, answer = (attributes.get(name) for name in BODIES)
    return {
        **(asked_attributes(request.encode(errors="replace")) if isinstance(request, str) else {}),
        **(answered_attributes(json_object(answer.encode(errors="replace")) or {}) if isinstance(answer, str) else {}),
        **{name: value for name, value in attributes.items() if name not in BODIES},
    }


def asked_attributes(body: bytes) -> dict[str, Value]:
    """What was asked, as an instrumentor writes it, and its parameters as they stand in the request's body."""
    request = json_object(body) or {}
    if "contents" in request:
        return _gemini_attributes(request)
    return {**request_attributes(request), **parameters(raw_fields(body))}


def answered_attributes(answer: dict[str, Value]) -> dict[str, Value]:
    """What was answered: as an instrumentor writes it, and with its ids."""
    attributes: dict[str, Value] = {**response_attributes(spoken(answer)), **answer_attributes(answer)}
    if (named := values.text(answer.get(GEMINI_RESPONSE_ID))) is not None:
        attributes[RESPONSE_ID] = named
    return attributes


def parameters(fields: RawFields) -> dict[str, str]:
    """The request without its messages, and the ids of a prompt that was given as ids.

    Instructions stand among the messages; here `null` says that they do. A template on the server is a parameter.
    """
    kept = {name: value for name, value in fields.items() if name not in ASKED}
    if has_instructions(fields):
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


def lost_messages(
    recorded: Attributes, fields: RawFields, *, records_content: Callable[[], bool] = bool
) -> dict[str, str]:
    """The messages of a request where its instrumentor, which records content, lost them or writes them otherwise.

    Where it recorded an answer without a prompt, or is known to record content, it lost the prompt. A whole request
    body loses nothing.
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
    return messages(fields) if has_answer or records_content() else {}


def prompt(fields: RawFields) -> list[str]:
    """What a model reads of a request: JSON texts, each of which a later request of the conversation goes on from."""
    return [bytes(value).decode(errors="replace") for name, value in fields.items() if name in _READ]


def _input(fields: RawFields) -> bytes | None:
    asked = bytes(fields.get("input", b""))
    if asked.startswith(b'"'):
        items = [b'{"role":"user","content":%b}' % asked]
    elif asked.startswith(b"["):
        items = [bytes(item) for item in msgspec.json.decode(asked, type=list[msgspec.Raw])]
    else:
        return None
    if has_instructions(fields):
        items.insert(0, b'{"role":"system","content":%b}' % bytes(fields["instructions"]))
    return b"[%b]" % b",".join(items)


def has_instructions(fields: RawFields) -> bool:
    """Whether a Responses request has instructions beside its items."""
    return bytes(fields.get("instructions", _NULL)) not in (bytes(_NULL), b'""')


def _gemini_attributes(request: dict[str, Value]) -> dict[str, Value]:
    """The attributes that say what a request asks, its parameters and tools in OpenAI's words."""
    facts = gemini.read_request(AttributeReader({}), "", request) or NO_FACTS
    tools = [_with_type(values.mapping(tool) or {}) for tool in facts.tools or ()]
    kept = {
        **{name: request[name] for name in ("model", "stream") if name in request},
        **({"tools": tools} if tools else {}),
        **facts.parameters,
    }
    return {**request_attributes(request), names.REQUEST_PARAMETERS: msgspec.json.encode(kept).decode()}


def _with_type(tool: dict[str, Value]) -> dict[str, Value]:
    """A tool of the server's own, which its one key names."""
    return tool if "type" in tool else {"type": next(iter(tool), "unknown"), **tool}


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
