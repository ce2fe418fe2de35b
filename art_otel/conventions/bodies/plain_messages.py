"""PlainMessage: a message that is a role and one text, as most are, decoded in one step.

Invariant: what is decoded here gives the same message that `message.messages_of` gives, which reads everything else.
Read are GenAI's messages of one text part and messages whose content is a text.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from art_otel.calls import Message
from art_otel.conventions.bodies.message import ROLES
from art_otel.spans import Value


class _TextPart(msgspec.Struct, gc=False):
    type: Literal["text"]  # as a tag of the struct it could be left out
    content: str


class PlainMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields of a plain message in JSON."""

    role: Annotated[str, Meta(min_length=1)]
    parts: Annotated[tuple[_TextPart, ...], Meta(max_length=1)] | None = None
    content: str | None = None
    finish_reason: Value = None


_LIST: Final = msgspec.json.Decoder(tuple[PlainMessage, ...])


def decode_plain(json_text: str) -> list[tuple[Message, Value]] | None:
    """Decode a JSON list of plain messages and their finish reasons; None for anything else.

    A message without text counts as anything else.
    """
    try:
        entries = _LIST.decode(json_text)
    except (ValueError, RecursionError):
        return None
    messages: list[tuple[Message, Value]] = []
    for plain in entries:
        parts, role = plain.parts, plain.role
        text = parts[0].content if parts else plain.content
        if text is None:
            return None
        messages.append((Message(role=ROLES.get(role, role), content=text), plain.finish_reason))
    return messages


def plain_messages(json_text: str) -> tuple[Message, ...] | None:
    """Decode a JSON list of plain messages; None for anything else, and for an empty list."""
    messages = decode_plain(json_text)
    return tuple([message for message, _ in messages]) if messages else None
