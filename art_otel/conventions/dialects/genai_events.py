"""GenAI's former events, one a message: `gen_ai.{system,user,assistant,tool}.message` and `gen_ai.choice`.

Span events or log records, the message in the body or in the attributes; the oldest are `gen_ai.content.prompt` and
`gen_ai.content.completion` with the whole list as JSON text. Invariant: where content capture is off, the events are
still written, without content; then nothing is known about the messages.

Older pydantic-ai (`event_mode="attributes"`) and Logfire write them as one JSON list on the span, in the attribute
`events`: each entry is an event's body with its `event.name`. pydantic-ai tells the answer by `gen_ai.choice`. Logfire
writes the items of the Responses API, of which the assistant's at the end are the answer; `gen_ai.unknown` is
reasoning, or not understood.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from art_otel.calls import Choice, Message
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.messages import (
    join_assistant_messages,
    join_chunks,
    join_messages,
    messages_of,
    unwrapped,
    with_empty_results,
)
from art_otel.conventions.dialects import genai
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.dialects.genai import event_name
from art_otel.conventions.dialects.logfire import doubt_scrubbed
from art_otel.conventions.facts import CallFacts, with_gap
from art_otel.conventions.vocabulary import completed_reason, finish_reason
from art_otel.errors import ParseError
from art_otel.spans import Attributes, Event, LogRecord, Span, Value

CONVENTION: Final = "gen_ai.messages"

_ROLES: Final = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CHOICE: Final = "gen_ai.choice"
_PROMPT: Final = "gen_ai.content.prompt"
_COMPLETION: Final = "gen_ai.content.completion"
_EVENT_NAMES: Final = frozenset({*_ROLES, _CHOICE, _PROMPT, _COMPLETION})
_BESIDE: Final = ("role", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning", "audio")
"""What OpenLLMetry writes beside a choice's message, where OpenAI has it inside."""

_TRANSCRIPT: Final = re.compile("(?:system|developer|user|assistant|tool): ")

_ELIDED: Final = "<elided>"
"""What google-genai's instrumentor wrote in place of content before 0.5 where content capture is off."""

_TOOL: Final = "gen_ai.tool.message"
_CALL_ID: Final = "id"
_OF_MESSAGES: Final = frozenset({"role", "tool_calls", "parts", "refusal", "finish_reason"})
"""Fields by which JSON is a message, where it may also be what was said."""

_SAID: Final = ("content", "message")
"""The attributes of events that hold a text, or the JSON text of a list of blocks."""

_EMPTY_LIST: Final = "[]"
_CONTENT: Final = ("content", "parts", "refusal", "reasoning_content", "audio")


class _MessageEvent(msgspec.Struct, frozen=True):
    """One message event, from a span event or a log record."""

    time_ns: int
    name: str
    fields: dict[str, Value]


def is_completion_event(log: LogRecord) -> bool:
    """Whether the log record is a completion, which only LLM calls have."""
    return event_name(log) == _CHOICE


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the message events; None when there are none."""
    span, logs = recording.span, recording.logs
    events = _events(span, logs) if span.events or logs else ()
    if not events:
        return None
    are_dropped = bool(span.dropped_events_count) and not logs
    try:
        inputs = None if are_dropped else _input_messages(events)
        answered = _answered(events)
    except ParseError:
        return with_gap(CallFacts(conventions=(CONVENTION,)), "not understood", "events of messages")
    prompts = [event.fields["gen_ai.prompt"] for event in events if "gen_ai.prompt" in event.fields]
    facts = msgspec.structs.replace(answered, conventions=(CONVENTION,), input_messages=inputs)
    if are_dropped:
        facts = with_gap(facts, "dropped", "events of messages", field="prompt")
    if any(map(_is_transcript, prompts)):
        facts = with_gap(facts, "lossy recorder", "gen_ai.prompt is a transcript", field="prompt")
    return facts


def _events(span: Span, logs: Sequence[LogRecord]) -> list[_MessageEvent]:
    """Collect the message events in the order of their times. A log record delivered twice is one event."""
    events = [
        _MessageEvent(event.time_ns, event.name, _fields(event.attributes, None))
        for event in _with_empty_blocks([event for event in span.events if event.name in _EVENT_NAMES])
    ]
    for log in logs:
        name = event_name(log)
        if name is not None and name in _EVENT_NAMES:
            events.append(_MessageEvent(log.time_ns, name, _fields(log.attributes, log.body)))
    events.sort(key=lambda event: event.time_ns)
    simultaneous = (list(group) for _, group in groupby(events, key=lambda event: event.time_ns))
    return [event for group in simultaneous for position, event in enumerate(group) if event not in group[:position]]


def _with_empty_blocks(events: list[Event]) -> list[Event]:
    """Write an empty list of blocks as the empty text, where lists of blocks beside it show that it is no text."""
    if not any(_EMPTY_LIST in event.attributes.values() for event in events):
        return events
    texts = [text for event in events for name in _SAID if isinstance(text := event.attributes.get(name), str)]
    if all(unwrapped(text) is text for text in texts):
        return events
    return [
        msgspec.structs.replace(
            event,
            attributes={
                name: "" if name in _SAID and value == _EMPTY_LIST else value
                for name, value in event.attributes.items()
            },
        )
        for event in events
    ]


def _fields(attributes: Attributes, body: Value) -> dict[str, Value]:
    """Merge the fields of an event: its attributes, the JSON object in `gen_ai.event.content`, its body.

    Only an attribute has to be text to hold a list of parts: a text in an object is what was said, also if it is JSON.
    """
    reader = AttributeReader({**attributes, "body": body})
    content = values.mapping(reader.structured("gen_ai.event.content")) or {}
    text = attributes.get("content")
    parts = {"content": unwrapped(text)} if isinstance(text, str) else {}
    fields = {**attributes, **parts, **content, **(values.mapping(reader.structured("body")) or {})}
    if isinstance(fields.get("tool_calls"), str):
        fields["tool_calls"] = AttributeReader(fields).structured("tool_calls")
    return fields


def _input_messages(events: Sequence[_MessageEvent]) -> tuple[Message, ...] | None:
    messages: list[Message] = []
    has_content = any(event.name in _ROLES and _has_content(event.fields) for event in events)
    for event in events:
        if event.name == _PROMPT:
            if _is_transcript(event.fields.get("gen_ai.prompt")):
                return None
            for entry in _message_list(event.fields.get("gen_ai.prompt")):
                messages += messages_of(entry, role="user")
        elif event.name in _ROLES:
            is_empty_result = has_content and event.name == _TOOL and _CALL_ID in event.fields
            if not _has_content(event.fields) and not is_empty_result:
                return None
            messages += messages_of(_message(event.fields), role=_ROLES[event.name])
    return _without_repeated_answers(with_empty_results(messages)) or None


def _is_transcript(prompt: Value) -> bool:
    """Whether a prompt is several messages in one text, each behind its role (openlit), which cannot be told apart."""
    return isinstance(prompt, str) and _TRANSCRIPT.match(prompt) is not None


def _without_repeated_answers(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Drop an answer to a tool call that stands there twice (botocore writes it as a tool's and as the user's)."""
    all_answers = [message for message in messages if message.role == "tool"]
    if len(set(all_answers)) == len(all_answers):
        return tuple(messages)
    kept: list[Message] = []
    answers: set[Message] = set()
    for message in messages:
        if message.role == "assistant":
            answers.clear()
        elif message.role == "tool" and message.tool_call_id is not None:
            if message in answers:
                continue
            answers.add(message)
        kept.append(message)
    return tuple(kept)


def _answered(events: Iterable[_MessageEvent]) -> CallFacts:
    """Read the choices. Those of one index are the chunks of a stream where all but the last have no finish reason."""
    choices: dict[int, list[Choice]] = {}
    for event in events:
        for fields in (
            _message_list(event.fields.get("gen_ai.completion")) if event.name == _COMPLETION else [event.fields]
        ):
            if event.name not in (_CHOICE, _COMPLETION):
                continue
            message = _choice_message(fields)
            if not _has_content(message):
                return CallFacts()
            index = values.integer(fields.get("index"))
            index = len(choices) if index is None or index < 0 else index
            choice = Choice(
                index=index,
                message=messages_of(message, role="assistant")[-1],
                finish_reason=finish_reason(fields.get("finish_reason")),
            )
            of_index = choices.setdefault(index, [])
            if of_index and of_index[-1].finish_reason is not None:
                of_index.clear()  # recorded twice
            of_index.append(choice)
    return CallFacts(
        choices=tuple(_joined(choices[index]) for index in sorted(choices)) or None,
        stream=True if any(len(chunks) > 1 for chunks in choices.values()) else None,
    )


def _joined(chunks: Sequence[Choice]) -> Choice:
    if len(chunks) == 1:
        return chunks[0]
    return msgspec.structs.replace(chunks[-1], message=join_chunks([chunk.message for chunk in chunks]))


def _choice_message(fields: dict[str, Value]) -> dict[str, Value]:
    """Find the message of a choice: below `message`, as an object, JSON text or bare text, or beside the index."""
    message = fields.get("message")
    if isinstance(message, str):
        decoded = values.mapping(AttributeReader(fields).structured("message"))
        message = decoded if _is_message(decoded) else {"content": unwrapped(message)}
    nested = values.mapping(message)
    if not nested:
        return _message(fields)
    siblings = {name: fields[name] for name in _BESIDE if name in fields}
    return _message({**siblings, **{name: value for name, value in nested.items() if value is not None}})


def _is_message(fields: dict[str, Value] | None) -> bool:
    """Whether decoded JSON is a message, and no text that is JSON itself, as structured answers are."""
    names = (fields or {}).keys()
    return not names.isdisjoint(_OF_MESSAGES) or names == {"content"}


def _message(fields: dict[str, Value]) -> dict[str, Value]:
    content = fields.get("content")
    if fields.get("role") == "tool" and values.mapping(content) is not None:  # pydantic-ai: what the tool gave
        return {**fields, "content": msgspec.json.encode(values.json_safe(content)).decode()}
    return fields


def _has_content(fields: dict[str, Value]) -> bool:
    """Whether a message was recorded with its content; without, only names of called functions are left."""
    if any(fields.get(name) not in (None, _ELIDED) for name in _CONTENT):
        return True
    calls = [values.mapping(call) or {} for call in values.items(fields.get("tool_calls")) or ()]
    functions = [values.mapping(call.get("function")) or call for call in calls]
    return any("arguments" in call or "input" in call for call in functions)


def _message_list(value: Value) -> list[dict[str, Value]]:
    """List the messages in the JSON text of an event of the oldest kind, which may be one bare text."""
    decoded = AttributeReader({"messages": value}).structured("messages")
    entries = [values.mapping(entry) for entry in values.items(decoded) or [decoded]]
    return [entry for entry in entries if entry] if all(map(_is_message, entries)) else [{"content": value}]


LIST_CONVENTION: Final = "gen_ai.event_list"

_EVENTS: Final = "events"
_NAME: Final = "event.name"
_UNKNOWN: Final = "gen_ai.unknown"
_PARAMETERS: Final = "model_request_parameters"


def read_list(recording: SpanRecording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the list; None where there is none, or a more trusted dialect has the prompt and the answer."""
    is_answered = trusted_facts.input_messages is not None and trusted_facts.choices is not None
    if is_answered or _EVENTS not in recording.families or genai.REQUEST_MODEL not in recording.families:
        return None
    reader = recording.reader()
    entries = [values.mapping(entry) or {} for entry in values.items(reader.structured(_EVENTS)) or ()]
    if not any(_NAME in entry for entry in entries):
        return None if not reader.gaps else CallFacts(conventions=(LIST_CONVENTION,), gaps=reader.gaps)
    try:
        is_items = _PARAMETERS not in reader.attributes and not any(entry.get(_NAME) == _CHOICE for entry in entries)
        facts = _items(reader, entries) if is_items else _listed(entries)
    except ParseError:
        reader.mark_invalid(_EVENTS)
        facts = CallFacts(conventions=(LIST_CONVENTION,))
    doubt_scrubbed(reader, (_EVENTS,))
    return msgspec.structs.replace(facts, gaps=reader.gaps)


def _listed(entries: Sequence[dict[str, Value]]) -> CallFacts:
    """Read message events, each with its name. Raises ParseError when one is no message."""
    events = [
        _MessageEvent(position, name, entry)
        for position, entry in enumerate(entries)
        if (name := values.text(entry.get(_NAME))) in _EVENT_NAMES
    ]
    facts = _answered(events)
    return msgspec.structs.replace(facts, conventions=(LIST_CONVENTION,), input_messages=_input_messages(events))


def _items(reader: AttributeReader, entries: Sequence[dict[str, Value]]) -> CallFacts:
    """Read the items of the Responses API. Raises ParseError when one is no message."""
    items = [message for entry in entries for message in _item(reader, entry)]
    end = len(items)
    while end and items[end - 1].role == "assistant":
        end -= 1
    choices = None
    if answer := items[end:]:
        message = join_messages(answer)
        reason = completed_reason(tool_calls=bool(message.tool_calls))
        choices = (Choice(index=0, message=message, finish_reason=reason),)
    return CallFacts(
        conventions=(LIST_CONVENTION,),
        input_messages=join_assistant_messages(tuple(items[:end])) or None,
        choices=choices,
    )


def _item(reader: AttributeReader, entry: dict[str, Value]) -> tuple[Message, ...]:
    if entry.get(_NAME) != _UNKNOWN:
        return messages_of({name: value for name, value in entry.items() if name != _NAME})
    data = values.mapping(entry.get("data")) or {}
    if data.get("type") != "reasoning":
        reader.gap("not understood", f"{_EVENTS}: {_UNKNOWN}")
        return ()
    return messages_of(data)


LIST_DIALECT: Final = Dialect(
    convention=LIST_CONVENTION,
    known="parsed attributes",
    read=read_list,
    shown_by=(_EVENTS,),
    content=(_EVENTS, "all_messages_events"),
)
