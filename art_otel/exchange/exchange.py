"""Exchange: one request to a model server, and the answer to it, as both pass a client's hook or the gateway.

Invariant: what a server answered is whole here before its reader has the last byte: of a stream the event that ends it
waits until it `is_over`. Bytes that nobody asked for otherwise pass as they came. Nothing here raises for what a body
holds; what cannot be read is unknown.
"""

import re
from functools import cached_property
from typing import Final, Protocol

from art_otel.exchange import gemini
from art_otel.exchange.assembly import ASSEMBLERS, WireDialect
from art_otel.exchange.bodies import (
    CallFailure,
    RawFields,
    decode,
    failure_message,
    failure_of,
    fields_of,
    response_failure,
)
from art_otel.exchange.events import GeminiArray, GeminiEvents, StreamedAnswer, data_of
from art_otel.exchange.token_requests import RequestAdditions
from art_otel.spans import Value

_PATHS: Final[tuple[tuple[str, WireDialect], ...]] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
    ("/responses", "responses"),
    ("/messages", "messages"),
)
_OF_THREAD: Final = re.compile(r"/threads/[^/]+/messages$")
"""OpenAI's Assistants: a message is put into a thread, and nobody answers it yet."""
_SAMPLED: Final = ("choices", "output", "content", "candidates")
_EVENTS: Final = b"text/event-stream"
FIRST_REFUSAL: Final = 400


def dialect_of(path: str) -> WireDialect | None:
    """How a POST to a path, as `plain` gives it, asks for a completion; None for one that asks for something else."""
    if _OF_THREAD.search(path):
        return None
    if gemini.PATH.search(path):
        return "gemini"
    return next((dialect for end, dialect in _PATHS if path.endswith(end)), None)


class HasAttributes(Protocol):
    """What the span of a call says, too. `outcome` is what became of its prompt."""

    @property
    def outcome(self) -> str:
        """The word for it."""
        ...

    def attributes(self) -> dict[str, Value]:
        """The attributes."""
        ...


class Exchange:
    """A request with its answer as far as it has come. `take` passes on what comes of it.

    `path` is plain; `body` is the request's, as the app sent it; `added` is what its server is asked for beside that.
    `policy_version` is that of the weights, if the server names it; `sampled` is what is known of its ids beside the
    answer. `streamed` is an answer that comes as events. `was_left` says that the app closed that before its end.
    """

    def __init__(self, dialect: WireDialect, path: str, body: bytes, start_ns: int) -> None:
        self.dialect: Final = dialect
        self.path: Final = path
        self.body: Final = body
        self.start_ns: Final = start_ns
        self.end_ns = start_ns
        self.policy_version: str | None = None
        self.failure: CallFailure | None = None
        self.was_left = False
        self.added = RequestAdditions()
        self.sampled: HasAttributes | None = None
        self._status = 0
        self._parts: list[bytes] = []
        self.streamed: StreamedAnswer | None = None

    @cached_property
    def request(self) -> dict[str, Value]:
        """The request; empty where it is no JSON object."""
        body = decode(self.body) or {}
        return {**body, **gemini.asked_in_path(self.path)} if body and self.dialect == "gemini" else body

    @cached_property
    def fields(self) -> RawFields:
        """The fields of the request, in the bytes that it has."""
        return fields_of(self.body)

    def begin(self, status: int, content_type: bytes) -> None:
        """The server begins to answer."""
        self._status = status
        if status >= FIRST_REFUSAL:
            return
        if content_type.startswith(_EVENTS):
            self.streamed = GeminiEvents() if self.dialect == "gemini" else StreamedAnswer(ASSEMBLERS[self.dialect]())
        elif self.dialect == "gemini" and gemini.asked_in_path(self.path).get("stream"):
            self.streamed = GeminiArray()

    @property
    def is_stream(self) -> bool:
        """Whether the answer comes as events."""
        return self.streamed is not None

    @property
    def has_sampled(self) -> bool:
        """Whether events of a completion have come, not only those that announce one."""
        return self.streamed is not None and any(self.streamed.body().get(name) for name in _SAMPLED)

    @property
    def is_over(self) -> bool:
        """Whether the event has come that ends the answer."""
        return self.streamed is not None and self.streamed.is_over

    def take(self, piece: bytes) -> bytes:
        """Take what the server sent next, and give what the agent may have: nothing of a body that is no stream."""
        if self.streamed is None:
            self._parts.append(piece)
            return b""
        if not self.added.is_hidden:
            self.streamed.take(piece)
            return self.streamed.passed(piece)
        return b"".join(self.added.without(event.text, event.data) for event in self.streamed.take(piece))

    def rest(self) -> bytes:
        """Give what the agent has not got when the server has sent everything, or breaks off."""
        if self.streamed is not None:
            rest = self.streamed.rest() if self.added.is_hidden else self.streamed.held
            return self.added.without(rest, data_of(rest)) if rest and self.added.is_hidden else rest
        body = b"".join(self._parts)
        return self.added.without_tokens(body) if self.added.is_hidden else body

    def refusal(self) -> bytes:
        """The body of an answer that is an error."""
        return b"".join(self._parts)

    @cached_property
    def answer(self) -> dict[str, Value] | None:
        """The body of the answer once it is there, joined where it streamed; None where there is none."""
        if self._status >= FIRST_REFUSAL:
            return None
        return decode(b"".join(self._parts)) if self.streamed is None else self.streamed.body()

    def why_failed(self) -> CallFailure | None:
        """Why the call failed, by the connection, the status or what the answer says; None where it did not."""
        if self.failure is not None:
            return self.failure
        if self._status >= FIRST_REFUSAL:
            return CallFailure(str(self._status), failure_message(decode(b"".join(self._parts)) or {}))
        answer = self.answer or {}
        if self.dialect == "gemini" and (refused := gemini.refusal_of(answer)) is not None:
            return CallFailure(*refused)
        return self.streamed.failure if self.streamed is not None else failure_in(answer)


def failure_in(answer: dict[str, Value]) -> CallFailure | None:
    """The failure that a whole answer says behind a status of success, as OpenRouter and the Responses API have it."""
    is_error = bool(answer.get("error")) and not any(name in answer for name in _SAMPLED)
    return failure_of(answer) if is_error else response_failure(answer)
