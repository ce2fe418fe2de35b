"""Messages: a recorded message list in any dialect -> Message records.

Invariant: a list is read whole or not at all (ParseError), because a prompt with a hole in it would teach the wrong
thing. A prompt that begins with an earlier one shares its messages, and each message's JSON is parsed once.
"""

from collections import defaultdict
from functools import lru_cache
from itertools import chain, groupby
from typing import Final

import msgspec

from art_otel.calls import Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.message import ResultWriter, join, messages_of, sent_result
from art_otel.conventions.bodies.plain_messages import plain_messages
from art_otel.conventions.caches.prefix_cache import PrefixCache
from art_otel.errors import ParseError
from art_otel.spans import Value

REMEMBERED: Final = 4096
REMEMBERED_BYTES: Final = 16_384
"""Longer messages are parsed anew: they are few, and remembering them would hold too much memory."""

_RAW_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_BLANKS: Final = " \t\r\n"
_LISTS: Final[defaultdict[ResultWriter, PrefixCache[str, tuple[Message, ...]]]] = defaultdict(PrefixCache)
"""Parsed JSON lists, without their closing bracket, by how the results of tools in them were written."""


def read_messages(
    reader: AttributeReader, name: str, write_result: ResultWriter = sent_result
) -> tuple[Message, ...] | None:
    """Read the message list that attribute `name` holds; None for other JSON, which does not count as cut."""
    value = reader.attributes.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            parsed = from_json(value, write_result)
            if parsed is not None:
                return parsed
            value = reader.structured(name)
        return parse(value, write_result)
    except ParseError:
        return None


def parse(value: Value, write_result: ResultWriter = sent_result) -> tuple[Message, ...]:
    """Parse a list of messages. Raises ParseError when it is no list, or one entry is no message."""
    entries = values.items(value)
    if entries is None:
        raise ParseError("", "is no list of messages")
    return tuple(chain.from_iterable(messages_of(entry, write_result=write_result) for entry in entries))


def from_json(json_text: str, write_result: ResultWriter = sent_result) -> tuple[Message, ...] | None:
    """Parse the JSON text of a list of messages; None when msgspec refuses it. Raises ParseError as `parse` does."""
    lists = _LISTS[write_result]
    earlier = lists.find(json_text)
    messages = None
    if earlier is not None:
        rest = json_text[earlier.length :].lstrip(_BLANKS)
        if rest == "]":
            return earlier.value
        added = _parse_rest(rest, write_result)
        messages = earlier.value + added if added else None
    if messages is None:
        messages, earlier = _parse_list(json_text, write_result), None
    if messages and json_text.endswith("]"):
        lists.keep(json_text, messages, end=len(json_text) - 1, earlier=earlier)
    return messages


def _parse_rest(rest: str, write_result: ResultWriter) -> tuple[Message, ...] | None:
    """Parse the rest of a JSON list, which begins behind one of its entries."""
    if not rest.startswith(","):
        return None
    added = f"[{rest[1:]}"
    return plain_messages(added) or _parse_list(added, write_result)


def _parse_list(json_text: str, write_result: ResultWriter) -> tuple[Message, ...] | None:
    try:
        entries = _RAW_LIST.decode(json_text)
        return tuple(chain.from_iterable(_message(bytes(entry), write_result) for entry in entries))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _message(json_text: bytes, write_result: ResultWriter) -> tuple[Message, ...]:
    parse_one = _remembered if len(json_text) <= REMEMBERED_BYTES else _parsed
    return parse_one(json_text, write_result)


def _parsed(json_text: bytes, write_result: ResultWriter) -> tuple[Message, ...]:
    return messages_of(msgspec.json.decode(json_text), write_result=write_result)


_remembered = lru_cache(maxsize=REMEMBERED)(_parsed)


def join_assistant_messages(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Join adjacent assistant messages: together they were sampled, where an API records each item as a message."""
    done: list[Message] = []
    for is_sampled, adjacent in groupby(messages, key=_is_assistant):
        run = list(adjacent)
        done += [join(run)] if is_sampled else run
    return tuple(done)


def _is_assistant(message: Message) -> bool:
    return message.role == "assistant"


def with_instructions(
    instructions: tuple[Message, ...], messages: tuple[Message, ...] | None
) -> tuple[Message, ...] | None:
    """Put system instructions before a prompt, unless it starts with them already."""
    if messages is None or messages[: len(instructions)] == instructions:
        return messages
    return instructions + messages
