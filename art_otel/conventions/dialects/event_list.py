"""Event list: GenAI's former message events as one JSON list on the span, in the attribute `events`.

Older pydantic-ai (`event_mode="attributes"`) and Logfire write it; each entry is an event's body with its `event.name`.
Invariant: pydantic-ai tells the answer by `gen_ai.choice`. Logfire writes the items of the Responses API, of which the
assistant's at the end are the answer; `gen_ai.unknown` is reasoning, or not understood and then doubted.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from art_otel.calls import Choice, Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.finish import completed_reason
from art_otel.conventions.bodies.message import join, messages_of
from art_otel.conventions.bodies.messages import join_assistant_messages
from art_otel.conventions.dialects import genai
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.dialects.genai_events import read_listed
from art_otel.conventions.dialects.logfire_scrubbing import doubt_scrubbed
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.recording import Recording
from art_otel.errors import ParseError
from art_otel.spans import Value

CONVENTION: Final = "gen_ai.event_list"

_EVENTS: Final = "events"
_NAME: Final = "event.name"
_CHOICE: Final = "gen_ai.choice"
_UNKNOWN: Final = "gen_ai.unknown"
_PARAMETERS: Final = "model_request_parameters"


def matches(names: AttributeNames) -> bool:
    """Whether a span with these attributes may have such a list."""
    return _EVENTS in names and genai.REQUEST_MODEL in names


def read(recording: Recording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read the list; None where there is none, or a more trusted dialect has the prompt and the answer."""
    is_answered = trusted_facts.input_messages is not None and trusted_facts.choices is not None
    if is_answered or not matches(recording.names):
        return None
    reader = recording.reader()
    entries = [values.mapping(entry) or {} for entry in values.items(reader.structured(_EVENTS)) or ()]
    if not any(_NAME in entry for entry in entries):
        return None if not reader.gaps else CallFacts(conventions=(CONVENTION,), gaps=reader.gaps)
    try:
        is_items = _PARAMETERS not in reader.attributes and not any(entry.get(_NAME) == _CHOICE for entry in entries)
        facts = _items(reader, entries) if is_items else read_listed(entries, CONVENTION)
    except ParseError:
        reader.mark_invalid(_EVENTS)
        facts = CallFacts(conventions=(CONVENTION,))
    doubt_scrubbed(reader, (_EVENTS,))
    return msgspec.structs.replace(facts, gaps=reader.gaps)


def _items(reader: AttributeReader, entries: Sequence[dict[str, Value]]) -> CallFacts:
    """Read the items of the Responses API. Raises ParseError when one is no message."""
    items = [message for entry in entries for message in _item(reader, entry)]
    end = len(items)
    while end and items[end - 1].role == "assistant":
        end -= 1
    choices = None
    if answer := items[end:]:
        message = join(answer)
        reason = completed_reason(tool_calls=bool(message.tool_calls))
        choices = (Choice(index=0, message=message, finish_reason=reason),)
    return CallFacts(
        conventions=(CONVENTION,),
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


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="parsed attributes",
    read=read,
    matches=matches,
    content=(_EVENTS, "all_messages_events"),
)
