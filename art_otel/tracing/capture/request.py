"""Request: what was asked, as attributes of the call's span.

Invariant: it is read from the bytes that were sent, so nothing the app does to its messages later changes it.
"""

from typing import Final

import msgspec

from art_otel import attributes as names

_ASKED: Final = frozenset({"messages", "input", "instructions", "prompt"})
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parameters(body: bytes) -> dict[str, str]:
    """The request body without its messages."""
    fields = _fields(body)
    kept = {name: value for name, value in fields.items() if name not in _ASKED}
    return {names.REQUEST_PARAMETERS: msgspec.json.encode(kept).decode()} if kept else {}


def messages(body: bytes) -> dict[str, str]:
    """The messages of a Chat Completions request."""
    asked = _fields(body).get("messages")
    return {} if asked is None else {names.REQUEST_MESSAGES: bytes(asked).decode()}


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _FIELDS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
