"""Exchange: one request to a model, and the answer to it, as both pass through the gateway.

Invariant: what a server answered is whole here before the agent has its last byte: of a stream the event that ends it
waits until it `is_over`. Bytes that nobody asked for otherwise pass as they came. Nothing here raises for what a body
holds; what cannot be read is unknown.

Sources: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation,
https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/messages-streaming
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from art_otel.conventions import values
from art_otel.conventions.bodies.chunks import JoinedChunks
from art_otel.exchange.answer_shapes import GatewayDialect
from art_otel.model_gateway import gemini
from art_otel.model_gateway.tokens import RequestAdditions
from art_otel.spans import Value
from art_otel.tracing.openai.bodies import RawFields, decode, failed_status, failure, failure_message, fields_of
from art_otel.tracing.openai.stream import JoinedEvents

if TYPE_CHECKING:
    from art_otel.exchange.translation import Translation

_PATHS: Final[tuple[tuple[str, GatewayDialect], ...]] = (
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


def dialect_of(path: str) -> GatewayDialect | None:
    """How a POST to a path, as `plain` gives it, asks for a completion; None for one that asks for something else."""
    if _OF_THREAD.search(path):
        return None
    if gemini.PATH.search(path):
        return "gemini"
    return next((dialect for end, dialect in _PATHS if path.endswith(end)), None)


class CallFailure(NamedTuple):
    """Why a call failed: a status, an error's code or the name of an exception, and what was said of it."""

    type: str
    message: str = ""


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

    `path` is plain; `body` is the request's, as the agent sent it; `policy_version` is that of the weights, if the
    server names it; `sampled` is what is known of its ids beside the answer. `was_left` says that the agent closed the
    stream of the answer before it ended. `translation` is set where the agent asked in another dialect than the server
    is asked in, which is this exchange's.
    """

    def __init__(self, dialect: GatewayDialect, path: str, body: bytes, start_ns: int) -> None:
        self.dialect: Final = dialect
        self.path: Final = path
        self.body: Final = body
        self.start_ns: Final = start_ns
        self.end_ns = start_ns
        self.policy_version: str | None = None
        self.failure: CallFailure | None = None
        self.was_left = False
        self.asked = RequestAdditions()
        self.sampled: HasAttributes | None = None
        self.translation: Translation | None = None
        self._status = 0
        self._parts: list[bytes] = []
        self._stream: _Stream | None = None

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
            self._stream = _GeminiEvents() if self.dialect == "gemini" else _Stream(_JOINED[self.dialect]())
        elif self.dialect == "gemini" and gemini.asked_in_path(self.path).get("stream"):
            self._stream = _GeminiArray()

    @property
    def is_stream(self) -> bool:
        """Whether the answer comes as events."""
        return self._stream is not None

    @property
    def has_sampled(self) -> bool:
        """Whether events of a completion have come, not only those that announce one."""
        return self._stream is not None and any(self._stream.body().get(name) for name in _SAMPLED)

    @property
    def is_over(self) -> bool:
        """Whether the event has come that ends the answer."""
        return self._stream is not None and self._stream.is_over

    def take(self, piece: bytes) -> bytes:
        """Take what the server sent next, and give what the agent may have: nothing of a body that is no stream."""
        if self._stream is None:
            self._parts.append(piece)
            return b""
        if not self.asked.is_hidden:
            for event in self._stream.take(piece):
                self._stream.read(event)
            return self._stream.passed(piece)
        passed: list[bytes] = []
        for event in self._stream.take(piece):
            self._stream.read(event)
            passed.append(self.asked.without(event.text, event.data))
        return b"".join(passed)

    def rest(self) -> bytes:
        """Give what the agent has not got when the server has sent everything, or breaks off."""
        if self._stream is not None:
            rest = self._stream.rest() if self.asked.is_hidden else self._stream.held
            return self.asked.without(rest, _data_of(rest)) if rest and self.asked.is_hidden else rest
        body = b"".join(self._parts)
        return self.asked.without_tokens(body) if self.asked.is_hidden else body

    def refusal(self) -> bytes:
        """The body of an answer that is an error."""
        return b"".join(self._parts)

    @cached_property
    def answer(self) -> dict[str, Value] | None:
        """The body of the answer once it is there, joined where it streamed; None where there is none."""
        if self._status >= FIRST_REFUSAL:
            return None
        return decode(b"".join(self._parts)) if self._stream is None else self._stream.body()

    def why_failed(self) -> CallFailure | None:
        """Why the call failed, by the connection, the status or what the answer says; None where it did not."""
        if self.failure is not None:
            return self.failure
        if self._status >= FIRST_REFUSAL:
            return CallFailure(str(self._status), failure_message(decode(b"".join(self._parts)) or {}))
        answer = self.answer or {}
        if self.dialect == "gemini" and (refused := gemini.refusal_of(answer)) is not None:
            return CallFailure(*refused)
        if self._stream is not None:
            return self._stream.failure
        is_error = bool(answer.get("error")) and not any(name in answer for name in _SAMPLED)  # as OpenRouter answers
        return _failure_of(answer) if is_error or failed_status(answer) is not None else None


class ServerSentEvent(NamedTuple):
    """The text of an event with the blank line that ends it, and its data."""

    text: bytes
    data: bytes


class _Joined(Protocol):
    def add(self, event: dict[str, Value], /) -> None: ...
    def body(self) -> dict[str, Value]: ...


_END: Final = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_LONGEST_END: Final = 4
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_LAST: Final = frozenset(
    {"message_stop", "error", "response.completed", "response.failed", "response.incomplete", "response.cancelled"}
)
_FAILED: Final = frozenset({"error", "response.failed"})


class _Stream:
    """The events of one answer, of which `take` gives those that are whole.

    `held` are bytes that the agent has not got, because it may take them for the end.
    """

    def __init__(self, joined: _Joined) -> None:
        self.is_over = False
        self.failure: CallFailure | None = None
        self.held = b""
        self._begun = b""
        self._joined: _Joined = joined

    def take(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Give the events that end in the bytes that came next."""
        text, begins = self._begun + piece, 0
        for end in _END.finditer(text, max(0, len(self._begun) - _LONGEST_END)):
            event, begins = text[begins : end.end()], end.end()
            yield ServerSentEvent(event, _data_of(event))
        self._begun = text[begins:]

    def read(self, event: ServerSentEvent) -> None:
        """Read an event. One that is no JSON object says nothing."""
        if event.data.startswith(_DONE):
            self.is_over = True
            return
        fields = decode(event.data) if event.data else None
        if fields is None:
            return
        kind = fields.get("type")
        self.is_over = self.is_over or kind in _LAST
        if kind in _FAILED or (fields.get("error") and "choices" not in fields):
            self.failure = _failure_of(fields)
        self._joined.add(fields)

    def passed(self, piece: bytes) -> bytes:
        """What the agent may have once the events of a piece are read. The event that ends it waits by `is_over`."""
        return piece

    def body(self) -> dict[str, Value]:
        """The body that the events make so far."""
        return self._joined.body()

    def rest(self) -> bytes:
        """What came of an event that never ended."""
        return self._begun


class _GeminiEvents(_Stream):
    """Those of Gemini, which has no event that ends a stream: one with a finish reason may be the last."""

    def __init__(self) -> None:
        self._responses = gemini.JoinedContents()
        super().__init__(self._responses)

    def passed(self, piece: bytes) -> bytes:
        come = self.held + piece
        self.held = come if self._responses.may_be_whole else b""
        return b"" if self.held else come


class _GeminiArray(_Stream):
    """A stream of Gemini that is one array, which is read when it is whole or was left."""

    def __init__(self) -> None:
        super().__init__(gemini.JoinedContents())
        self._pieces: list[bytes] = []

    def take(self, piece: bytes) -> Iterator[ServerSentEvent]:
        self._pieces.append(piece)
        return iter(())

    def passed(self, piece: bytes) -> bytes:
        come = self.held + piece
        length = gemini.length_before_end(come)
        self.held = come[length:]
        return come[:length]

    def body(self) -> dict[str, Value]:
        joined = gemini.JoinedContents()
        for response in gemini.responses_in(b"".join(self._pieces)):
            if response.get("error"):
                self.failure = _failure_of(response)
            joined.add(response)
        return joined.body()


async def events_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of the events that come in pieces."""
    begun = b""
    async for piece in pieces:
        text, begins = begun + piece, 0
        for end in _END.finditer(text, max(0, len(begun) - _LONGEST_END)):
            event, begins = text[begins : end.end()], end.end()
            if data := _data_of(event):
                yield data
        begun = text[begins:]


def _data_of(event: bytes) -> bytes:
    return b"\n".join(line[len(_DATA) :].strip() for line in event.splitlines() if line.startswith(_DATA))


_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
    "compaction_delta": "content",
}
"""The field of each kind of a piece of a content block, and the block's, but for a tool's input, which is parsed."""

_TOLD_LAST: Final = ("context_management", "input_transformations")
"""What a server says of the prompt, in the message or behind it."""


class JoinedMessage:
    """Joins the events of a streamed Anthropic message."""

    def __init__(self) -> None:
        self._message: dict[str, Value] = {}
        self._is_counted = False
        self._blocks: dict[int, dict[str, Value]] = {}

    def add(self, event: dict[str, Value]) -> None:
        """Add the next event."""
        kind, index = event.get("type"), values.integer(event.get("index"))
        if kind == "message_start":
            self._message = dict(values.mapping(event.get("message")) or {})
        elif kind == "message_delta":
            self._is_counted = True
            self._message |= values.mapping(event.get("delta")) or {}
            self._message |= {name: event[name] for name in _TOLD_LAST if event.get(name) is not None}
            usage = values.mapping(event.get("usage")) or {}
            self._message["usage"] = {**(values.mapping(self._message.get("usage")) or {}), **usage}
        elif kind == "content_block_start" and index is not None:
            self._blocks[index] = dict(values.mapping(event.get("content_block")) or {})
        elif kind == "content_block_delta" and index in self._blocks:
            delta = values.mapping(event.get("delta")) or {}
            field = _DELTAS.get(str(delta.get("type")))
            if field is not None and isinstance(piece := delta.get(field), str):
                _add_piece(self._blocks[index], field, piece)

    def body(self) -> dict[str, Value]:
        """The message so far. `message_start` has a count of tokens that no token was sampled for yet."""
        message = self._message
        usage = values.mapping(message.get("usage"))
        if usage is not None and not self._is_counted:
            usage = {name: count for name, count in usage.items() if name != "output_tokens"}
            message = {**message, "usage": usage}
        return {**message, "content": [_block(self._blocks[index]) for index in sorted(self._blocks)]}


def _add_piece(block: dict[str, Value], field: str, piece: str) -> None:
    pieces = block.setdefault("_pieces", {})
    pieces.setdefault(field, []).append(piece)


def _block(block: dict[str, Value]) -> dict[str, Value]:
    pieces: dict[str, list[str]] = block.get("_pieces", {})
    made = {name: value for name, value in block.items() if name != "_pieces"}
    for field, texts in pieces.items():
        text = "".join(texts)
        if field == "partial_json":
            made["input"] = _input(made, text)
        else:
            made[field] = f"{made.get(field) or ''}{text}"
    return made


def _input(block: dict[str, Value], text: str) -> Value:
    """The input of a tool: the text that was sampled; of a tool that the server ran, what agents send back."""
    parsed = None if block.get("type") == "tool_use" else decode(text.encode())
    return (text or block.get("input")) if parsed is None else parsed


_JOINED: Final[Mapping[GatewayDialect, Callable[[], _Joined]]] = {
    "chat": JoinedChunks,
    "completions": JoinedChunks,
    "responses": JoinedEvents,
    "messages": JoinedMessage,
}


def _failure_of(said: dict[str, Value]) -> CallFailure:
    """The failure that an event or a body with an error says."""
    return CallFailure(failure(said), failure_message(said))
