"""Logfire: bodies of its OpenAI, Anthropic and OpenAI Agents integrations, as JSON under names of one word.

Source of the format: `logfire/_internal/integrations` (`llm_providers`, `openai_agents`). The clients' spans have
`request_data` and `response_data` (before version 5 and with `version=1`), the Agents' `raw_input` and `response` or
`input` and `output`. Invariant: `request_data` of the Agents is the prompt and the answer in one list and is not read;
of a stream `response_data` may have the text only, which is read where nothing else tells the answer, with a gap.

Logfire's scrubbing (`logfire/_internal/scrubbing.py`) replaces whole texts that hold a word such as `session`, and
lists where: what was replaced is not what was said. GenAI's own attributes are never scrubbed.
"""

import json
from collections.abc import Collection
from typing import Final

import msgspec

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies import openai_body
from art_otel.conventions.bodies.recorded_values import read_input, read_output
from art_otel.conventions.dialects import genai
from art_otel.conventions.dialects.dialect import Dialect, Role, ToolAttributes
from art_otel.conventions.facts import CallFacts, merge_facts
from art_otel.spans import Span, Value

CONVENTION: Final = "logfire"

SPAN_TYPE: Final = "logfire.span_type"
_TEMPLATE: Final = "logfire.msg_template"
_REQUEST: Final = "request_data"
_RESPONSE: Final = "response_data"
_AGENTS_RESPONSE: Final = "response"
_RAW_INPUT: Final = "raw_input"
_INPUT: Final = "input"
_OUTPUT: Final = "output"
_BODIES: Final = (_REQUEST, _RESPONSE, _AGENTS_RESPONSE, _RAW_INPUT, _INPUT, _OUTPUT)
_MODEL_CONFIG: Final = "model_config"

_ROLES: Final[dict[str, Role]] = {
    "Chat Completion with": "inference",
    "Chat completion with": "inference",
    "Completion with": "inference",
    "Message with": "inference",
    "Responses API with": "inference",
    "streaming response from": "inference",
    "Embedding Creation with": "embeddings",
    "OpenAI API call to": "retrieval",  # as of a stored response
    "Function: ": "tool",
    "Agent run: ": "agent",
}
_ANTHROPIC: Final = "Message with"
_COMPACT: Final = "/responses/compact"


def role(span: Span) -> Role | None:
    """The role by the message; None where the operation is named, the message is another or the span an app's own."""
    if genai.OPERATION_NAME in span.attributes or not any(name.startswith("gen_ai.") for name in span.attributes):
        return None
    template = values.text(span.attributes.get(_TEMPLATE)) or ""
    if str(span.attributes.get("url", "")).endswith(_COMPACT):
        return "inference"  # which samples what later prompts begin with, and of which nothing is recorded
    return next((named for beginning, named in _ROLES.items() if template.startswith(beginning)), None)


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the bodies; None where there are none."""
    if not recording.families.starting("gen_ai."):
        return None
    reader = recording.reader()
    if _MODEL_CONFIG in reader.attributes:
        outputs = values.items(reader.structured(_OUTPUT)) or []  # of a stream one response, made by the Agents SDK
        facts = merge_facts(_asked(reader, _INPUT), read_output(reader, _OUTPUT, outputs) or CallFacts())
    elif _RAW_INPUT in reader.attributes or _AGENTS_RESPONSE in reader.attributes:
        facts = _response(reader)
    else:
        facts = merge_facts(_client_request(reader), _client_response(reader))
    if facts == CallFacts() and not reader.gaps:
        return None
    doubt_scrubbed(reader, _BODIES)
    return msgspec.structs.replace(facts, conventions=(CONVENTION,), gaps=reader.gaps)


def _asked(reader: AttributeReader, name: str) -> CallFacts:
    """Read a prompt, of which the tools were not recorded."""
    asked = read_input(reader, name, reader.json_safe(name)) or CallFacts()
    return msgspec.structs.replace(asked, tools=None)


def _response(reader: AttributeReader) -> CallFacts:
    """Read a call of the Responses API, whose response repeats the instructions and the tools."""
    response = values.mapping(reader.structured(_AGENTS_RESPONSE)) or {}
    repeated = {name: response[name] for name in ("instructions", "tools") if response.get(name) is not None}
    request = {**repeated, "input": _input(reader)} if _RAW_INPUT in reader.attributes else None
    asked = None if request is None else openai_body.read_request(reader, _RAW_INPUT, request)
    answered = openai_body.read_response(reader, _AGENTS_RESPONSE, response)
    return merge_facts(asked or CallFacts(), answered or CallFacts())


def _input(reader: AttributeReader) -> Value:
    recorded = reader.structured(_RAW_INPUT)
    return reader.attributes.get(_RAW_INPUT) if recorded is None else recorded


def _client_request(reader: AttributeReader) -> CallFacts:
    """Read the request of a client; where GenAI's messages are recorded it has the model only."""
    body = values.mapping(reader.structured(_REQUEST)) or {}
    if body.keys().isdisjoint(("messages", "prompt")):
        return CallFacts()
    return openai_body.read_request(reader, _REQUEST, body) or CallFacts()


def _client_response(reader: AttributeReader) -> CallFacts:
    body = values.mapping(reader.structured(_RESPONSE)) or {}
    usage = openai_body.read_usage(values.mapping(body.get("usage")) or {})
    if (message := values.mapping(body.get("message"))) is not None:
        is_anthropic = (reader.text(_TEMPLATE) or "").startswith(_ANTHROPIC)
        answered = read_output(reader, _RESPONSE, _unwrapped(message) if is_anthropic else message)
    elif (text := values.text(body.get("text"))) is not None:
        answered = read_output(reader, _RESPONSE, text)
    elif genai.OUTPUT_MESSAGES not in reader.attributes and "combined_chunk_content" in body:
        reader.gap("lossy recorder", f"{_RESPONSE}: combined_chunk_content", field="answer")
        answered = read_output(reader, _RESPONSE, body["combined_chunk_content"])
    else:
        answered = None
    return msgspec.structs.replace(answered or CallFacts(), usage=usage)


def _unwrapped(message: dict[str, Value]) -> dict[str, Value]:
    """Take the arguments of Anthropic's tool calls out of the object in which Logfire writes them."""
    calls: list[Value] = []
    for call in values.items(message.get("tool_calls")) or ():
        fields = values.mapping(call) or {}
        function = values.mapping(fields.get("function")) or {}
        arguments = values.mapping(values.json_value(function.get("arguments"))) or {}
        inner = arguments["input"] if arguments.keys() == {"input"} else function.get("arguments")
        text = inner if isinstance(inner, str) else json.dumps(inner)
        calls.append({**fields, "function": {**function, "arguments": text}})
    return {**message, "tool_calls": calls} if calls else message


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="verbatim body",
    read=read,
    shown_by=(_TEMPLATE,),
    role=role,
    recorder=SPAN_TYPE,
    prefixes=("logfire.",),
    content=(_REQUEST, _RESPONSE, _AGENTS_RESPONSE, _RAW_INPUT, "logfire.msg"),
    tools=ToolAttributes(name="name", arguments=_INPUT, result=_OUTPUT),
)


_SCRUBBED: Final = "logfire.scrubbed"


def doubt_scrubbed(reader: AttributeReader, names: Collection[str]) -> None:
    """Doubt what was read where one of these attributes was scrubbed."""
    if _SCRUBBED not in reader.attributes:
        return
    for note in values.items(reader.structured(_SCRUBBED)) or ():
        path = values.items((values.mapping(note) or {}).get("path")) or []
        if len(path) > 1 and path[1] in names:
            reader.gap("masked", f"{_SCRUBBED}: {path[1]}")
