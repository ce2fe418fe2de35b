"""Request: what was asked, as attributes of the call's span.

Invariant: it is read from the bytes that were sent, so nothing the app does to its messages later changes it.
"""

from typing import Final, TypeAlias

import msgspec

from art_otel import attributes as names
from art_otel.conventions import request_attributes
from art_otel.spans import Value
from art_otel.tracing.openai.answer import decode

_ASKED: Final = frozenset({"messages", "input", "instructions", "prompt"})
_PROMPT: Final = _ASKED | {"tools", "functions"}
_NULL: Final = msgspec.Raw(b"null")
Fields: TypeAlias = dict[str, msgspec.Raw]
_FIELDS: Final = msgspec.json.Decoder(Fields)


def fields_of(body: bytes) -> Fields:
    """The fields of a request body, as they stand in it; none where it is no JSON object."""
    try:
        return _FIELDS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def parameters(fields: Fields) -> dict[str, str]:
    """The request without its messages.

    Instructions stand among the messages; here `null` says that they do. A template on the server is a parameter.
    """
    kept = {name: value for name, value in fields.items() if name not in _ASKED}
    if _has_instructions(fields):
        kept["instructions"] = _NULL
    if bytes(fields.get("prompt", b"")).startswith(b"{"):
        kept["prompt"] = fields["prompt"]
    return {names.REQUEST_PARAMETERS: msgspec.json.encode(kept).decode()} if kept else {}


def messages(fields: Fields) -> dict[str, str]:
    """The messages of a Chat Completions request; of a Responses request its instructions and its input items."""
    asked = fields.get("messages") or _input(fields)
    return {} if asked is None else {names.REQUEST_MESSAGES: bytes(asked).decode()}


def prompt(fields: Fields) -> list[str]:
    """What a model reads of a request: JSON texts, each of which a later request of the conversation goes on from."""
    return [bytes(value).decode(errors="replace") for name, value in fields.items() if name in _PROMPT]


def request_attributes_of(body: bytes) -> dict[str, Value]:
    """The request as an instrumentor writes it, and its parameters exactly."""
    asked = decode(body) or {}
    return {**request_attributes(asked), **parameters(fields_of(body))}


def _input(fields: Fields) -> bytes | None:
    asked = bytes(fields.get("input", b""))
    if asked.startswith(b'"'):
        items = [b'{"role":"user","content":%b}' % asked]
    elif asked.startswith(b"["):
        items = [bytes(item) for item in msgspec.json.decode(asked, type=list[msgspec.Raw])]
    else:
        return None
    if _has_instructions(fields):
        items.insert(0, b'{"role":"system","content":%b}' % bytes(fields["instructions"]))
    return b"[%b]" % b",".join(items)


def _has_instructions(fields: Fields) -> bool:
    return bytes(fields.get("instructions", _NULL)) not in (bytes(_NULL), b'""')
