"""Messages: a recorded message list in any dialect -> Message records.

Invariant: a list is read whole or not at all (ParseError), because a prompt with a hole in it would teach the wrong
thing. A prompt that begins with an earlier one shares its messages, and each message's JSON is parsed once.
"""

from functools import lru_cache
from itertools import chain, groupby
from typing import Final

import msgspec

from art_otel.calls import Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.message import join, messages_of
from art_otel.conventions.bodies.plain_messages import plain_messages
from art_otel.conventions.caches.prefix_cache import Prefix, PrefixCache
from art_otel.errors import ParseError
from art_otel.spans import Value

REMEMBERED: Final = 4096
REMEMBERED_BYTES: Final = 16_384
"""Longer messages are parsed anew: they are few, and remembering them would hold too much memory."""

_RAW_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_BLANKS: Final = " \t\r\n"
_LISTS: Final[PrefixCache[str, tuple[Message, ...]]] = PrefixCache()
"""Parsed JSON lists, without their closing bracket."""


def read_messages(reader: AttributeReader, name: str) -> tuple[Message, ...] | None:
    """Read the message list that attribute `name` holds; None for other JSON, which does not count as cut."""
    value = reader.attributes.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            parsed = from_json(value)
            if parsed is not None:
                return parsed
            value = reader.structured(name)
        return parse(value)
    except ParseError:
        return None


def parse(value: Value) -> tuple[Message, ...]:
    """Parse a list of messages. Raises ParseError when it is no list, or one entry is no message."""
    entries = values.items(value)
    if entries is None:
        raise ParseError("", "is no list of messages")
    return tuple(chain.from_iterable(messages_of(entry) for entry in entries))


def from_json(json_text: str) -> tuple[Message, ...] | None:
    """Parse the JSON text of a list of messages; None when msgspec refuses it. Raises ParseError as `parse` does."""
    earlier = _LISTS.find(json_text)
    if earlier is not None:
        rest = json_text[earlier.length :].lstrip(_BLANKS)
        if rest == "]":
            return earlier.value
        added = _parse_rest(rest)
        if added:
            return _cache(json_text, earlier.value + added, earlier)
    messages = _parse_list(json_text)
    return _cache(json_text, messages, None) if messages else messages


def _cache(
    json_text: str, parsed: tuple[Message, ...], earlier: Prefix[str, tuple[Message, ...]] | None
) -> tuple[Message, ...]:
    if json_text.endswith("]"):
        _LISTS.keep(json_text, parsed, end=len(json_text) - 1, earlier=earlier)
    return parsed


def _parse_rest(rest: str) -> tuple[Message, ...] | None:
    """Parse the rest of a JSON list, which begins behind one of its entries."""
    if not rest.startswith(","):
        return None
    added = f"[{rest[1:]}"
    return plain_messages(added) or _parse_list(added)


def _parse_list(json_text: str) -> tuple[Message, ...] | None:
    try:
        entries = _RAW_LIST.decode(json_text)
        return tuple(chain.from_iterable(_message(bytes(entry)) for entry in entries))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _message(json_text: bytes) -> tuple[Message, ...]:
    return _remembered(json_text) if len(json_text) <= REMEMBERED_BYTES else _parsed(json_text)


def _parsed(json_text: bytes) -> tuple[Message, ...]:
    return messages_of(msgspec.json.decode(json_text))


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
