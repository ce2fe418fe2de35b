"""Tokens: the gateway asks servers for token ids and logprobs, and the agent gets the answer that it asked for.

Invariant: what the agent did not ask for is taken out of what it gets, and all other fields pass in the bytes in which
they came. A request is changed only by fields that the agent left out.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from art_otel.spans import Value
from art_otel.tracing.openai.bodies import RESPONSE_MESSAGES, RawFields, fields_of
from art_otel.tracing.openai.token_requests import (
    NOTHING,
    STREAM_OPTIONS,
    TokenRequest,
    TokenRequests,
    is_usage_alone,
    missing_fields,
    target_of,
)

_HIDDEN: Final[Mapping[str, tuple[str, ...]]] = {
    "return_token_ids": ("prompt_token_ids", "token_ids"),
    "return_weight_versions": ("weight_versions",),
    "enable_response_messages": RESPONSE_MESSAGES,
}
"""The fields of an answer, or of a choice or response in it, that a field of the request adds."""

_LOGPROBS: Final = "logprobs"
_LLAMA: Final = b'{"content":[{"id":'
"""How llama.cpp's logprobs begin. Its chat has no such field where they are not asked for; others have null."""

_SGLANG: Final = ("sglext",)
_NULL: Final = msgspec.Raw(b"null")
_CHOICES: Final = msgspec.json.Decoder(list[RawFields])
_ENCODE: Final = msgspec.json.Encoder().encode


class RequestAdditions:
    """What was asked of a server beside what the agent asked; `without` takes it out of the answer again."""

    def __init__(self, ask: TokenRequest = NOTHING, added: Mapping[str, object] | None = None) -> None:
        self.ask = ask
        self._added = added or {}
        self._fields = tuple(field for name in self._added for field in _HIDDEN.get(name, ()))
        if ask.headers:
            self._fields += _SGLANG

    @property
    def is_hidden(self) -> bool:
        """Whether there is anything to take out."""
        return bool(self._added or self.ask.headers)

    def body(self, fields: RawFields) -> bytes | None:
        """The body of a request of these fields with what is asked for; None where nothing is."""
        added = {name: msgspec.Raw(_ENCODE(value)) for name, value in self._added.items()}
        return _ENCODE({**fields, **added}) if added else None

    def without_tokens(self, body: bytes) -> bytes:
        """A body without what the agent did not ask for; as it is where it has nothing of that, or is no JSON."""
        fields = fields_of(body)
        kept = self._without(fields)
        return body if kept == fields else _ENCODE(kept)

    def without(self, event: bytes, data: bytes) -> bytes:
        """The same of an event with this data; the one that has nothing but the usage that we asked for goes.

        Beside choices its field is null because of us; llama.cpp's Completions count there unasked.
        """
        if STREAM_OPTIONS in self._added and is_usage_alone(data):
            return b""
        kept = self.without_tokens(data)
        return event if kept is data else event.replace(data, kept, 1)

    def _without(self, fields: RawFields) -> RawFields:
        hidden = self._fields
        kept = {
            name: _NULL if name in hidden else value  # vLLM has null where it is not asked for messages
            for name, value in fields.items()
            if name not in hidden or name in RESPONSE_MESSAGES
        }
        if STREAM_OPTIONS in self._added and bytes(kept.get("usage", b"")) == bytes(_NULL):
            del kept["usage"]
        if "choices" in kept:
            try:
                choices = _CHOICES.decode(kept["choices"])
            except msgspec.MsgspecError:  # as some servers end a stream
                return kept
            without = [self._choice(choice) for choice in choices]
            if without != choices:
                kept["choices"] = msgspec.Raw(_ENCODE(without))
        if "response" in kept:
            kept["response"] = msgspec.Raw(self.without_tokens(bytes(kept["response"])))
        return kept

    def _choice(self, choice: RawFields) -> RawFields:
        kept = {name: value for name, value in choice.items() if name not in self._fields}
        if _LOGPROBS in self._added and _LOGPROBS in kept:
            if "text" not in kept and bytes(kept[_LOGPROBS]).startswith(_LLAMA):
                del kept[_LOGPROBS]
            else:
                kept[_LOGPROBS] = _NULL
        return kept


class TokenAsking:
    """Decides what to ask, and learns from what servers refuse."""

    def __init__(self) -> None:
        self._requests = TokenRequests()

    def asked(self, server: str, path: str, request: dict[str, Value]) -> RequestAdditions:
        """What to ask of a server with a request."""
        if not request:
            return RequestAdditions()
        return _asked(self._requests.ask(path, target_of(server, request), request), request)

    def less(self, asked: RequestAdditions, request: dict[str, Value], refusal: bytes) -> RequestAdditions:
        """What to ask for after a refusal, in the end nothing."""
        return _asked(self._requests.less(asked.ask, refusal), request)

    def accepted(
        self, asked: RequestAdditions, server: str, request: dict[str, Value], refused: int, refusal: bytes
    ) -> None:
        """Remember what a server accepted after it had refused more with a status and a body."""
        self._requests.accepted(asked.ask, target_of(server, request), refused, refusal)


def _asked(ask: TokenRequest, request: dict[str, Value]) -> RequestAdditions:
    """What of an ask the agent did not ask itself."""
    return RequestAdditions(ask, missing_fields(ask, request))
