"""OpenTelemetry's GenAI attributes, on the span or on its `gen_ai.client.inference.operation.details` event.

https://github.com/open-telemetry/semantic-conventions-genai (attributes `gen_ai.*`; messages as JSON text on spans, as
structured values on events). Invariant: the same function reads both. Instrumentors parse tool-call arguments
into objects, so most arguments here are not the sampled JSON text.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

import msgspec

from art_otel.calls import Choice, Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.finish import finish_reason, is_responses_api_id
from art_otel.conventions.bodies.message import messages_of
from art_otel.conventions.bodies.messages import join_assistant_messages, read_messages
from art_otel.conventions.bodies.openai_body import MAX_CHOICES, system_messages
from art_otel.conventions.bodies.operations import operation
from art_otel.conventions.bodies.plain_messages import decode_plain
from art_otel.conventions.bodies.tools import parse_tools
from art_otel.conventions.dialects.genai_numbers import (
    REQUEST_MODEL,
    REQUEST_TYPE,
    layout_of,
    read_parameters,
    read_usage,
)
from art_otel.conventions.dialects.logfire_responses import LOGFIRE_SPANS, is_logfire_responses
from art_otel.conventions.facts import CallFacts, merge_facts, with_gap
from art_otel.conventions.recorders.langchain_blocks import may_have_blocks, read_blocks, with_blocks
from art_otel.conventions.recorders.sent_by_frameworks import result_writer, sent_prompt
from art_otel.conventions.recording import Recording
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

_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_CONVERSATION: Final = "gen_ai.conversation.id"
_TOOLS: Final = "gen_ai.tool.definitions"
_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
_FINISH_REASON_NAMES: Final = (
    _FINISH_REASONS,
    "anthropic.message.stop_reason",
    "gen_ai.response.finish_reason",
    "llm.response.finish_reason",
    "llm.response.stop_reason",
)
"""The others are what some instrumentors write instead, of the only choice."""


def matches(names: AttributeNames) -> bool:
    """Whether a span with these attributes may have GenAI's."""
    return bool(names.starting("gen_ai.") or names.memo(layout_of).usage or names.memo(layout_of).stream)


def read(recording: Recording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the attributes of the span; None when there are none."""
    return _facts(recording.reader(), CONVENTION, recording.span)


def read_details(recording: Recording, trusted_facts: CallFacts) -> CallFacts | None:
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


def finish_reasons(recording: Recording) -> tuple[str | None, ...]:
    """The finish reason of each choice, by the span's attribute: the messages may have none."""
    for name in recording.names.memo(_finish_reason_names):
        if (value := recording.span.attributes[name]) is not None:
            return (
                tuple(map(finish_reason, values.strings(value))) if name == _FINISH_REASONS else (finish_reason(value),)
            )
    return ()


def _finish_reason_names(names: AttributeNames) -> tuple[str, ...]:
    return names.among(_FINISH_REASON_NAMES)


def event_name(log: LogRecord) -> str | None:
    """The name of the event that a log record is; older SDKs kept it in an attribute."""
    return log.event_name or values.text(log.attributes.get("event.name"))


def is_responses(span: Span) -> bool:
    """Whether the call went to the Responses API, which may record each output item as a message."""
    if span.attributes.get(API_TYPE) == RESPONSES or span.name == RESPONSES_SPAN:
        return True
    return span.name.startswith(LOGFIRE_SPANS) and is_logfire_responses(span)


def _facts(reader: AttributeReader, convention: str, span: Span) -> CallFacts | None:
    """Read attributes of the span or of a details event; None when there is nothing but the operation's name."""
    attributes, layout = reader.attributes, reader.names.memo(layout_of)
    get, text = attributes.get, values.text
    messages = None
    if INPUT_MESSAGES in attributes:
        if may_have_blocks(span.scope.name, attributes[INPUT_MESSAGES]):
            messages = read_blocks(reader, INPUT_MESSAGES)
        else:
            messages = read_messages(reader, INPUT_MESSAGES, result_writer(span))
    responses = is_responses(span)
    if messages is not None and responses:
        messages = join_assistant_messages(messages)
    instructions = _instructions(reader) if _INSTRUCTIONS in attributes else ()
    messages = sent_prompt(span, text(get(RESPONSE_ID)), instructions, messages)
    operation_word = text(get(OPERATION_NAME)) or text(get(REQUEST_TYPE))
    operation_name = None if operation_word is None else operation(operation_word)
    facts = CallFacts(
        conventions=(convention,),
        operation_name=operation_name,
        response_id=text(get(RESPONSE_ID)),
        provider=text(get(PROVIDERS[0])) or text(get(PROVIDERS[1])),
        request_model=text(get(REQUEST_MODEL)),
        response_model=text(get("gen_ai.response.model")),
        parameters=read_parameters(reader, layout.parameters),
        tools=_tools(reader) if _TOOLS in attributes else None,
        input_messages=messages,
        choices=_choices(reader, span, responses=responses) if OUTPUT_MESSAGES in attributes else None,
        usage=read_usage(reader, layout.usage) if layout.usage else None,
        stream=reader.flag(*layout.stream) if layout.stream else None,
        gaps=reader.gaps,
    )
    if _CONVERSATION in attributes:
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


def _instructions(reader: AttributeReader) -> tuple[Message, ...]:
    value = reader.structured(_INSTRUCTIONS)
    return system_messages(reader.text(_INSTRUCTIONS) if value is None else value)


def _choices(reader: AttributeReader, span: Span, *, responses: bool) -> tuple[Choice, ...] | None:
    """Read each output message as a choice; of the Responses API all are one choice, whose items may be messages.

    An empty list means that nobody recorded the choices: a call that ended well has one.
    """
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


def _output_messages(
    reader: AttributeReader, span: Span, *, responses: bool
) -> list[tuple[Message, str | None]] | None:
    """Parse the output messages, each with its finish reason; None when they are unknown or cannot be parsed."""
    raw = reader.attributes.get(OUTPUT_MESSAGES)
    are_blocks = may_have_blocks(span.scope.name, raw)
    if isinstance(raw, str) and not responses and not are_blocks and (plain := decode_plain(raw)):
        return [(message, finish_reason(reason)) for message, reason in plain]
    value = reader.structured(OUTPUT_MESSAGES)
    if value is None:
        return None
    entries = values.items(value)
    outputs = [value] if entries is None else entries
    try:
        return [
            (
                _output_message(with_blocks(entry) if are_blocks else entry),
                finish_reason((values.mapping(entry) or {}).get("finish_reason")),
            )
            for entry in outputs
        ]
    except ParseError:
        return None


def _output_message(entry: Value) -> Message:
    """Parse an output message. One with an empty list of parts is an empty answer, and not an unknown one."""
    message = messages_of(entry, role="assistant")[-1]
    if message.is_unknown and (values.mapping(entry) or {}).get("parts") == []:
        return msgspec.structs.replace(message, content="")
    return message


def _tools(reader: AttributeReader) -> tuple[Value, ...] | None:
    value = reader.attributes.get(_TOOLS)
    if value is None:
        return None
    try:
        return parse_tools(value)
    except ParseError:
        reader.mark_invalid(_TOOLS)
        return None
