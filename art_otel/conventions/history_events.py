"""History events: messages that an app put behind a completion, as the result of a tool that the completion called.

Invariant: an event names the response and holds the message as OpenAI's chat format has it, so whoever reads a dump
needs no other record. An event that names no response, or holds no message, is left out.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from art_otel import attributes as names
from art_otel.calls import Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.messages import parse, read_messages
from art_otel.conventions.dialects.genai import RESPONSE_ID
from art_otel.spans import Span


class RecordedMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that was put behind `choice` of the response `completion_id`."""

    completion_id: str
    choice: int
    message: Message


def history_messages(message: Mapping[str, Any]) -> tuple[Message, ...]:
    """What a message of OpenAI's chat format says. Raises ParseError for what is no message."""
    return parse([dict(message)])


def history_attributes(completion_id: str, choice: int, message: Mapping[str, Any]) -> dict[str, str | int]:
    """The attributes of an event for a message. Raises TypeError or ValueError for what is no JSON value."""
    text = json.dumps([message], ensure_ascii=False, allow_nan=False)
    return {RESPONSE_ID: completion_id, names.HISTORY_CHOICE: choice, names.REQUEST_MESSAGES: text}


def recorded_messages(span: Span) -> Iterator[RecordedMessage]:
    """The messages that a rollout's own span has, in the order in which they were put."""
    events = [event for event in span.events if event.name == names.HISTORY_EVENT]
    for event in sorted(events, key=lambda event: event.time_ns):
        reader = AttributeReader(event.attributes)
        completion_id = reader.text(RESPONSE_ID)
        choice = values.integer(event.attributes.get(names.HISTORY_CHOICE, 0))
        if completion_id is None or choice is None:
            continue
        for message in read_messages(reader, names.REQUEST_MESSAGES) or ():
            yield RecordedMessage(completion_id=completion_id, choice=choice, message=message)
