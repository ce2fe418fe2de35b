"""OpenTelemetry's GenAI attributes, on the span or on its `gen_ai.client.inference.operation.details` event.

https://github.com/open-telemetry/semantic-conventions-genai (attributes `gen_ai.*`; messages as JSON text on spans, as
structured values on events). Invariant: the same function reads both. Instrumentors parse tool-call arguments into
objects, so most arguments here are not the sampled JSON text. A parameter has OpenAI's name; a value that is not what
its name promises is left out.

What `request_attributes`, `response_attributes` and `genai_message` write is read back: texts, reasoning, tool calls
with their exact arguments. Logfire's spans of the Responses API have its items as messages, several of one message.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final, cast

import msgspec

from art_otel.attributes import GATEWAY_SCOPE
from art_otel.calls import Choice, Gap, Message, Usage
from art_otel.conventions import values
from art_otel.conventions.attribute_names import NameFamilies, is_of_list
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.api_bodies import read_request, read_response
from art_otel.conventions.bodies.messages import (
    decode_plain,
    join_assistant_messages,
    join_chunks,
    messages_of,
    read_messages,
    with_instructions,
)
from art_otel.conventions.bodies.openai_body import (
    MAX_CHOICES,
    parse_tools,
    read_choices,
    system_messages,
    with_extra_body,
)
from art_otel.conventions.facts import NO_FACTS, CallFacts, merge_facts, with_gap
from art_otel.conventions.frameworks import (
    FRAMEWORKS,
    TOOL_DEFINITIONS,
    is_unfinished,
    may_have_blocks,
    read_blocks,
    result_writer,
    rewrite_output,
    sent_prompt,
)
from art_otel.conventions.vocabulary import (
    LIVE_OPERATIONS,
    finish_reason,
    is_responses_api_id,
    operation,
    response_finish_reason,
)
from art_otel.errors import ParseError
from art_otel.spans import Attributes, LogRecord, Span, Value

CONVENTION: Final = "gen_ai"
DETAILS_CONVENTION: Final = "gen_ai.details"

OPERATION_NAME: Final = "gen_ai.operation.name"
RESPONSE_ID: Final = "gen_ai.response.id"
PROVIDERS: Final = ("gen_ai.provider.name", "gen_ai.system")
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
RESPONSES_SPAN: Final = "openai.response"
API_TYPE: Final = "openai.api.type"
RESPONSES: Final = "responses"
_API_NAMES: Final = (API_TYPE, OPERATION_NAME, "llm.request.type", "litellm.call_type")
_RESPONSES_WORDS: Final = (RESPONSES, "aresponses")

PREFIXES: Final = ("gen_ai.", "llm.usage.total_tokens", "llm.is_streaming")

_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_CONVERSATION: Final = "gen_ai.conversation.id"
_PREVIOUS_RESPONSE: Final = (
    *("gen_ai.request.previous_response.id", "gen_ai.request.previous_response_id"),
    *("openai.request.previous_response_id", "gen_ai.openai.request.previous_response_id"),
)
"""GenAI's name from 0.1.0 on, and what SDKs of xAI, JetBrains and others write."""
_COMPACTED: Final = "gen_ai.conversation.compacted"
_CACHED_CONTENT: Final = "gcp.gen_ai.operation.config.cached_content"
"""What OTel's google-genai writes where OTEL_GOOGLE_GENAI_GENERATE_CONTENT_CONFIG_INCLUDES names it."""
_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
_FINISH_REASON_NAMES: Final = (
    _FINISH_REASONS,
    "anthropic.message.stop_reason",
    "gen_ai.response.finish_reason",
    "llm.response.finish_reason",
    "llm.response.stop_reason",
)
"""The others are what some instrumentors write instead, of the only choice."""


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the attributes of the span; None when there are none."""
    facts = _facts(recording.reader(), CONVENTION, recording.span)
    if facts is None or recording.span.scope.name != GATEWAY_SCOPE:
        return facts
    # What went over the wire is known. Anthropic's API has no word for an answer that vLLM broke off, and says null.
    aborted = [
        Gap(kind="aborted", field=f"answer[{choice.index}]", evidence="no finish reason")
        for choice in facts.choices or ()
        if choice.finish_reason is None and not choice.message.is_unknown
    ]
    return msgspec.structs.replace(
        facts,
        gaps=(*facts.gaps, *aborted),
        prompt_known=None if facts.input_messages is None else "verbatim body",
        answer_known=None if facts.choices is None else "verbatim body",
    )


def read_details(recording: SpanRecording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the details events, which are log records or span events; None when there are none."""
    span, logs = recording.span, recording.logs
    if (
        not span.events and not logs
    ) or "gemini_cli" in trusted_facts.conventions:  # which reads them as it writes them
        return None
    events = [event.attributes for event in span.events if event.name == DETAILS_EVENT]
    log_events = [log for log in logs if event_name(log) == DETAILS_EVENT]
    events += [{**(values.mapping(log.body) or {}), **log.attributes} for log in log_events]
    facts_of_events = [
        _facts(AttributeReader(attributes), DETAILS_CONVENTION, span) for attributes in _of_one_event(events)
    ]
    recorded = [facts for facts in facts_of_events if facts is not None]
    if not recorded:
        return None
    merged = reduce(merge_facts, recorded)
    are_several = len({facts.usage for facts in recorded if facts.usage is not None}) > 1
    return with_gap(merged, "lossy recorder", f"several events {DETAILS_EVENT}") if are_several else merged


def _of_one_event(events: Sequence[Attributes]) -> Sequence[Attributes]:
    """Join events of which each has other attributes: Strands writes one for each attribute."""
    joined: dict[str, Value] = {}
    for event in events:
        if not joined.keys().isdisjoint(event):
            return events
        joined |= event
    return [joined] if joined else ()


def response_id_of_details(log: LogRecord) -> str | None:
    """The response's id that a details event has as a log record."""
    if event_name(log) != DETAILS_EVENT:
        return None
    return values.text({**(values.mapping(log.body) or {}), **log.attributes}.get(RESPONSE_ID))


def finish_reasons(recording: SpanRecording) -> tuple[str | None, ...]:
    """The finish reason of each choice, by the span's attribute: the messages may have none."""
    for name in recording.families.memo(_finish_reason_names):
        if (value := recording.span.attributes[name]) is not None:
            return (
                tuple(map(finish_reason, values.strings(value))) if name == _FINISH_REASONS else (finish_reason(value),)
            )
    return ()


def _finish_reason_names(families: NameFamilies) -> tuple[str, ...]:
    return families.among(_FINISH_REASON_NAMES)


def event_name(log: LogRecord) -> str | None:
    """The name of the event that a log record is; older SDKs kept it in an attribute."""
    return log.event_name or values.text(log.attributes.get("event.name"))


def is_responses(span: Span) -> bool:
    """Whether the call went to the Responses API, which may record each output item as a message."""
    if span.name == RESPONSES_SPAN or any(span.attributes.get(name) in _RESPONSES_WORDS for name in _API_NAMES):
        return True
    if is_responses_api_id(values.text(span.attributes.get(RESPONSE_ID))):  # LiteLLM's callback has no other sign
        return True
    return span.name.startswith(LOGFIRE_SPANS) and is_logfire_responses(span)


def _facts(reader: AttributeReader, convention: str, span: Span) -> CallFacts | None:
    """Read attributes of the span or of a details event; None when there is nothing but the operation's name."""
    attributes, layout = reader.attributes, reader.families.memo(layout_of)
    get, text = attributes.get, values.text
    responses = is_responses(span)
    operation_word = text(get(OPERATION_NAME)) or text(get(REQUEST_TYPE))
    operation_name = None if operation_word is None else operation(operation_word)
    facts = CallFacts(
        conventions=(convention,),
        operation_name=operation_name,
        response_id=text(get(RESPONSE_ID)),
        provider=text(get(PROVIDERS[0])) or text(get(PROVIDERS[1])),
        request_model=text(get(REQUEST_MODEL)),
        response_model=text(get("gen_ai.response.model")),
        parameters=read_parameters(reader, layout.parameters_in(reader)),
        tools=reader.parsed(TOOL_DEFINITIONS, parse_tools, get(TOOL_DEFINITIONS)),
        input_messages=_prompt(reader, span, responses=responses),
        choices=_choices(reader, span, responses=responses) if OUTPUT_MESSAGES in attributes else None,
        usage=read_usage(reader, layout.usage) if layout.usage else None,
        stream=reader.flag(*layout.stream) if layout.stream else True if layout.has_first_chunk else None,
        gaps=reader.gaps,
    )
    if facts.choices is not None and len(facts.choices) > 1 and _are_chunks(reader):
        answer = join_chunks([choice.message for choice in facts.choices])
        joined = Choice(index=0, message=answer, finish_reason=facts.choices[-1].finish_reason)
        facts = msgspec.structs.replace(facts, choices=(joined,), stream=True)
    if convention == CONVENTION and facts.stream is None and facts.usage is None and is_unfinished(span):
        facts = msgspec.structs.replace(facts, stream=True)
    if operation_name in LIVE_OPERATIONS:
        facts = with_gap(facts, "history on the server", f"a session of {operation_name}", field="prompt")
    if values.flag(get(_COMPACTED)):
        facts = with_gap(facts, "compacted", _COMPACTED, field="prompt")
    if get(_CACHED_CONTENT) is not None:
        facts = with_gap(facts, "history on the server", f"{_CACHED_CONTENT} {get(_CACHED_CONTENT)}", field="prompt")
    if (previous := reader.text(*layout.previous)) is not None:
        facts = msgspec.structs.replace(facts, previous_response_id=previous)
    elif _CONVERSATION in attributes:
        facts = _continuing(facts, values.text(attributes[_CONVERSATION]) or "", is_responses=responses)
    if responses and attributes.get(_INSTRUCTIONS):
        facts = msgspec.structs.replace(facts, has_instructions=True)
    if facts.request_model is None and facts == CallFacts(conventions=(convention,), operation_name=operation_name):
        return None
    return facts


def _continuing(facts: CallFacts, conversation: str, *, is_responses: bool) -> CallFacts:
    """Say what a call continues: the id of a conversation may be that of a response, or of one that the server keeps.

    Other ids are the app's own, of a thread that it keeps itself.
    """
    if is_responses_api_id(conversation) and conversation != facts.response_id:
        return msgspec.structs.replace(facts, previous_response_id=conversation)
    if conversation.startswith("conv_") and (is_responses or is_responses_api_id(facts.response_id)):
        return with_gap(facts, "history on the server", f"{_CONVERSATION} {conversation}", field="prompt")
    return facts


def _prompt(reader: AttributeReader, span: Span, *, responses: bool) -> tuple[Message, ...] | None:
    """Read the messages and the instructions, as they were sent."""
    is_framework = span.scope.name in FRAMEWORKS
    if INPUT_MESSAGES not in reader.attributes:
        messages = None
    elif is_framework and may_have_blocks(span.scope.name, reader.attributes[INPUT_MESSAGES]):
        messages = read_blocks(reader, INPUT_MESSAGES)
    else:
        messages = read_messages(reader, INPUT_MESSAGES, result_writer(span))
    if messages is not None and responses:
        messages = join_assistant_messages(messages)
    instructions = _instructions(reader) if _INSTRUCTIONS in reader.attributes else ()
    if is_framework:
        return sent_prompt(span, reader.text(RESPONSE_ID), instructions, messages)
    return with_instructions(instructions, messages) if instructions else messages


def _instructions(reader: AttributeReader) -> tuple[Message, ...]:
    value = reader.structured(_INSTRUCTIONS)
    return system_messages(reader.text(_INSTRUCTIONS) if value is None else value)


def _choices(reader: AttributeReader, span: Span, *, responses: bool) -> tuple[Choice, ...] | None:
    """Read each output message as a choice; of the Responses API all are one choice, whose items may be messages.

    An empty list means that no choice was recorded: a call that ended well has one.
    """
    if (bodies := _choice_bodies(reader)) is not None:
        return reader.parsed(OUTPUT_MESSAGES, lambda value: read_choices(reader, OUTPUT_MESSAGES, value), bodies)
    outputs = _output_messages(reader, span, responses=responses)
    if not outputs:
        return None
    if responses:
        joined = join_assistant_messages(tuple([message for message, _ in outputs]))[0]
        reasons = [reason for _, reason in outputs if reason is not None]
        return (Choice(index=0, message=joined, finish_reason=reasons[-1] if reasons else None),)
    if len(outputs) > MAX_CHOICES:
        reader.mark_invalid(OUTPUT_MESSAGES)
        return None
    return tuple(
        [Choice(index=index, message=message, finish_reason=reason) for index, (message, reason) in enumerate(outputs)]
    )


def _are_chunks(reader: AttributeReader) -> bool:
    """Whether the output messages are chunks of one streamed answer: ADK gives all but the last an empty reason.

    Where several answers are asked for, the request says how many, and each has a reason in the span's list.
    """
    asked = values.integer(reader.attributes.get(_CHOICE_COUNT)) or 1
    if asked > 1 or len(values.strings(reader.attributes.get(_FINISH_REASONS))) > 1:
        return False
    entries = [values.mapping(entry) or {} for entry in values.items(reader.structured(OUTPUT_MESSAGES)) or ()]
    return all(entry.get("finish_reason") == "" for entry in entries[:-1])


def _choice_bodies(reader: AttributeReader) -> Value:
    """The output messages that are choices of a Chat Completion, as Laminar writes them; None for any other."""
    raw = reader.attributes.get(OUTPUT_MESSAGES)
    if isinstance(raw, str) and '"message":' not in raw:
        return None
    value = reader.structured(OUTPUT_MESSAGES)
    entries = values.items(value)
    is_choices = bool(entries) and all("message" in (values.mapping(entry) or {}) for entry in entries or ())
    return value if is_choices else None


def _output_messages(
    reader: AttributeReader, span: Span, *, responses: bool
) -> list[tuple[Message, str | None]] | None:
    """Parse the output messages, each with its finish reason; None when they are unknown or cannot be parsed."""
    raw = reader.attributes.get(OUTPUT_MESSAGES)
    is_framework = span.scope.name in FRAMEWORKS
    may_be_plain = not responses and not (is_framework and may_have_blocks(span.scope.name, raw))
    if isinstance(raw, str) and may_be_plain and (plain := decode_plain(raw)):
        return [(messages[-1], finish_reason(reason)) for messages, reason in plain]
    value = reader.structured(OUTPUT_MESSAGES)
    if value is None:
        return None
    entries = values.items(value)
    outputs = [value] if entries is None else entries
    try:
        return [
            (
                _output_message(rewrite_output(span, entry) if is_framework else entry),
                _finish_reason(values.mapping(entry) or {}),
            )
            for entry in outputs
        ]
    except ParseError:
        return None


def _output_message(entry: Value) -> Message:
    """Parse an output message. One with an empty list of parts is an empty answer, and not an unknown one.

    Raises ParseError for an object that has nothing of a message.
    """
    message, fields = messages_of(entry, role="assistant")[-1], values.mapping(entry) or {}
    if message.is_unknown and fields.get("parts") == []:
        return msgspec.structs.replace(message, content="")
    if message.is_unknown and fields.keys().isdisjoint(("role", "type", "content", "parts", "tool_calls")):
        raise ParseError("", "is no message")
    return message


def _finish_reason(fields: dict[str, Value]) -> str | None:
    return finish_reason(fields.get("finish_reason") or fields.get("stop_reason"))


REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TYPE: Final = "gen_ai.request.type"
"""Where AgentOps writes the operation."""
FUNCTIONS: Final = "gen_ai.request.functions."
"""The prefix of the attributes to which AgentOps flattens the tools."""

_REQUEST: Final = "gen_ai.request."
STREAM: Final = "gen_ai.request.stream"
_STREAM: Final = (
    "gen_ai.is_streaming",
    "gen_ai.request.is_stream",
    STREAM,
    "gen_ai.request.streaming",
    "llm.is_streaming",
)
_FIRST_CHUNK: Final = ("gen_ai.response.time_to_first_chunk", "gen_ai.client.operation.time_to_first_chunk")
"""What only streams have. pydantic-ai and the AI SDK write the second, and nothing else that says so."""
_NO_PARAMETERS: Final = frozenset(
    {REQUEST_MODEL, REQUEST_TYPE, "gen_ai.request.headers", *_STREAM, *_PREVIOUS_RESPONSE}
)
_INTEGERS: Final = frozenset({"max_tokens", "seed", "top_k", "n"})
_NUMBERS: Final = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
_OPENAI_NAMES: Final = {"stop_sequences": "stop", "choice.count": "n"}
_USAGE: Final = {
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "total_tokens": ("gen_ai.usage.total_tokens", "llm.usage.total_tokens"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
    "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
}
"""The attributes of each count of `Usage`."""


class Parameter(msgspec.Struct, frozen=True):
    """The attribute of a request parameter, OpenAI's name for it, and how its value is checked (None: any JSON)."""

    attribute: str
    name: str
    check: Callable[[Value], Value] | None


class AttributeLayout(msgspec.Struct, frozen=True):
    """What follows from attribute names alone; it is computed once per set of attribute names."""

    parameters: tuple[Parameter, ...]
    listed_parameters: tuple[str, ...]
    """The families of parameters that are flattened."""
    usage: tuple[tuple[str, str], ...]
    """Fields of `Usage` and their attributes; the first attribute of a field wins."""
    stream: tuple[str, ...]
    has_first_chunk: bool
    """Whether an attribute tells when the first chunk of a stream came."""
    previous: tuple[str, ...]
    """The attributes that name an earlier response."""

    def parameters_in(self, reader: AttributeReader) -> tuple[Parameter, ...]:
        """The parameters of a span."""
        if not self.listed_parameters:
            return self.parameters
        return (*self.parameters, *map(_parameter, reader.names.of(self.listed_parameters)))


def layout_of(families: NameFamilies) -> AttributeLayout:
    """Find the attributes by their names."""
    requested = [
        family
        for family in families.starting(_REQUEST)
        if family not in _NO_PARAMETERS and not family.startswith(FUNCTIONS)
    ]
    return AttributeLayout(
        parameters=tuple(_parameter(family) for family in requested if not is_of_list(family)),
        listed_parameters=tuple(filter(is_of_list, requested)),
        usage=tuple((count, name) for count, candidates in _USAGE.items() for name in families.among(candidates)),
        stream=families.among(_STREAM),
        has_first_chunk=bool(families.among(_FIRST_CHUNK)),
        previous=families.among(_PREVIOUS_RESPONSE),
    )


def _parameter(attribute: str) -> Parameter:
    suffix = attribute.removeprefix(_REQUEST)
    name = _OPENAI_NAMES.get(suffix, suffix)
    check = values.integer if name in _INTEGERS else values.number if name in _NUMBERS else None
    return Parameter(attribute=attribute, name=name, check=check)


def read_parameters(reader: AttributeReader, layout: tuple[Parameter, ...]) -> dict[str, Value]:
    """Read the request parameters, under OpenAI's names."""
    parameters: dict[str, Value] = {}
    for parameter in layout:
        attribute, check = parameter.attribute, parameter.check
        value = reader.json_safe(attribute) if check is None else check(reader.attributes[attribute])
        parameters[parameter.name] = value
    if user := values.text(reader.attributes.get("gen_ai.user")):
        parameters["user"] = user
    schema = parameters.pop("structured_output_schema", None)
    if schema is not None:
        parameters["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    parameters = with_extra_body(parameters)
    if None in parameters.values():
        return {name: value for name, value in parameters.items() if value is not None}
    return parameters


def read_usage(reader: AttributeReader, layout: tuple[tuple[str, str], ...]) -> Usage | None:
    """Read the counts of tokens; None when there is none."""
    counts: dict[str, int] = {}
    for count, name in layout:
        if count not in counts and (number := values.integer(reader.attributes[name])) is not None:
            counts[count] = number
    return Usage(**counts) if counts else None


_WRITTEN_PARAMETERS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "n": "choice.count",
}
"""OpenAI's names of numbers that may be asked for, and GenAI's."""

WRITTEN_USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "total_tokens": "gen_ai.usage.total_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}


def request_attributes(body: dict[str, Value]) -> dict[str, Value]:
    """Write what was asked: the model, numeric parameters, messages and whether for a stream. `body` is a request's."""
    facts = read_request(AttributeReader({}), "", body) or NO_FACTS
    numbers = {
        _WRITTEN_PARAMETERS[name]: value for name, value in facts.parameters.items() if name in _WRITTEN_PARAMETERS
    }
    written: dict[str, Value] = {
        f"gen_ai.request.{name}": value for name, value in numbers.items() if isinstance(value, (int, float))
    }
    if facts is not NO_FACTS:
        written[STREAM] = facts.stream is True
    if facts.request_model is not None:
        written[REQUEST_MODEL] = facts.request_model
    if facts.input_messages:
        written[INPUT_MESSAGES] = _json([genai_message(message) for message in facts.input_messages])
    return written


def response_attributes(body: dict[str, Value]) -> dict[str, Value]:
    """Write what was answered: the model, messages, finish reasons and usage. `body` is that of a response."""
    facts = read_response(AttributeReader({}), "", body) or NO_FACTS
    choices = facts.choices or _without_items(body)
    counts = cast(dict[str, int | None], msgspec.structs.asdict(facts.usage or Usage()))
    written: dict[str, Value] = {
        WRITTEN_USAGE[name]: count for name, count in counts.items() if name in WRITTEN_USAGE and count
    }
    if facts.response_model is not None:
        written["gen_ai.response.model"] = facts.response_model
    if choices:
        messages = [genai_message(choice.message) | {"finish_reason": choice.finish_reason} for choice in choices]
        written[OUTPUT_MESSAGES] = _json(messages)
        if all(choice.finish_reason for choice in choices):
            written["gen_ai.response.finish_reasons"] = [choice.finish_reason for choice in choices]
    return written


def _without_items(body: dict[str, Value]) -> tuple[Choice, ...]:
    """The empty answer of a response that has ended without items, as where a server's parser shows nothing."""
    reason = response_finish_reason(body, tool_calls=False) if body.get("output") == [] else None
    return (
        ()
        if reason is None
        else (Choice(index=0, message=Message(role="assistant", content=""), finish_reason=reason),)
    )


def _json(messages: list[dict[str, Value]]) -> str:
    return msgspec.json.encode(messages).decode()  # many times as fast as `json`: a prompt has all that was said


def genai_message(message: Message) -> dict[str, Value]:
    """Write a message with GenAI's parts."""
    parts: list[Value] = []
    if message.reasoning is not None:
        parts.append({"type": "reasoning", "content": message.reasoning})
    content: list[Value] | None = None if message.parts is None else msgspec.json.decode(message.parts)
    if message.tool_call_id is not None:
        result = message.content if content is None else content
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "result": result})
    elif content is not None:
        parts += content
    elif message.content is not None:
        parts.append({"type": "text", "content": message.content})
    if message.refusal is not None:
        parts.append({"type": "refusal", "content": message.refusal})
    parts.extend(
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    )
    named = {} if message.name is None else {"name": message.name}
    return {"role": message.role, "parts": parts, **named}


_REQUEST_SPAN: Final = "Responses API with "
_STREAM_SPAN: Final = "streaming response from "
_LOGFIRE_REQUEST: Final = "request_data"

LOGFIRE_SPANS: Final = (_REQUEST_SPAN, _STREAM_SPAN)
"""How the names of these spans begin."""


def is_logfire_responses(span: Span) -> bool:
    """Whether Logfire recorded a call of the Responses API, or the answer of its stream."""
    return span.name.startswith(_REQUEST_SPAN) or (span.name.startswith(_STREAM_SPAN) and _shows_stream(span))


def _shows_stream(span: Span) -> bool:
    """Whether the request is shown as for this API only: the model, and whether it streams."""
    request = span.attributes.get(_LOGFIRE_REQUEST)
    return isinstance(request, str) and '"stream"' in request and '"messages"' not in request
