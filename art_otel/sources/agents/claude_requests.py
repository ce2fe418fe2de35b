"""ClaudeRequests: what Claude Code sent, put together from its session's log and verified by the log's hashes.

A request is the first `keep` messages of the request `base` and those whose hashes stand in `tail`. A hash is SHA-256
of the message as compact JSON with sorted keys, without `cache_control`, a text being one part. The message itself is
an `api-request-blob`, a `user` line, the answers to one message's tool calls, or an assistant message.

Invariant: a request is given only when every message, and its system prompt and tools, have the hash that it names.
The block `x-anthropic-billing-header: …` before the system prompt is in no hash and in no log: it is outside of both.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from art_otel.sources.json_text.values import encode, is_list, is_object
from art_otel.spans import Value

Message = dict[str, Value]

REQUEST: Final = "api-request"
_BLOB: Final = "api-request-blob"
_SHAPE: Final = "api-request-shape"


class Prompt(NamedTuple):
    """The messages of a request as JSON texts, its system prompt and tools; None: not verified."""

    messages: tuple[str, ...] | None
    shape: dict[str, Value] | None


def digest(value: Value) -> str:
    """The hash of a message or a shape, as Claude Code makes it; empty where it can have none."""
    try:
        data = msgspec.json.encode(_without_cache_control(value), order="sorted")
    except OverflowError:  # a whole number of more than 64 bits, which JavaScript does not have
        return ""
    return sha256(data).hexdigest()


def message_digest(message: Message) -> str:
    """The hash of a message."""
    content = message.get("content")
    return digest({**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message)


class ClaudeRequests:
    """The requests of a log. `messages` are those of the conversation that requests may hold."""

    def __init__(self, lines: Iterable[dict[str, Value]], messages: Iterable[Message]) -> None:
        self.by_id: dict[str, dict[str, Value]] = {}
        self._hashes: dict[str, tuple[str, ...]] = {}
        self._shapes: dict[str, dict[str, Value]] = {}
        self._messages: dict[str, str] = {message_digest(message): encode(message) for message in messages}
        for line in lines:
            kind = line.get("type")
            if kind == REQUEST:
                self._add(str(line.get("id")), line)
            elif kind == _BLOB and is_object(message := line.get("message")):
                self._messages[message_digest(message)] = encode(message)
            elif kind == _SHAPE and is_object(shape := line.get("shape")):
                self._shapes[digest(shape)] = shape

    def prompt(self, request_id: str) -> Prompt:
        """Return the messages of a request if their hashes match, and its system prompt and tools."""
        hashes = self._hashes.get(request_id)
        messages = None if hashes is None else [self._messages.get(text) for text in hashes]
        verified = None if messages is None or None in messages else tuple(filter(None, messages))
        return Prompt(verified, self._shapes.get(str(self.by_id.get(request_id, {}).get("shapeHash"))))

    def _add(self, request_id: str, line: dict[str, Value]) -> None:
        """Add a request. Its messages stay unknown when the one that it builds on is not in the log before it."""
        self.by_id[request_id] = line
        base, keep, tail = line.get("base"), line.get("keep"), line.get("tail")
        kept = () if base is None else self._hashes.get(str(base))
        if kept is not None and isinstance(keep, int) and 0 <= keep <= len(kept) and is_list(tail):
            self._hashes[request_id] = (*kept[:keep], *map(str, tail))


def _without_cache_control(value: Value) -> Value:
    if is_object(value):
        return {name: _without_cache_control(item) for name, item in value.items() if name != "cache_control"}
    return [_without_cache_control(item) for item in value] if is_list(value) else value
