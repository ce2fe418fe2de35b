"""Exchange: one request to a model server and its answer, on their way through a client's hook or the gateway.

Invariant: the whole answer is known here before the reader has its last byte; the event that ends a stream is read
before it is passed on (`is_over`). All bytes pass unchanged, but for those that art-otel asked for itself. No content
of a body raises; what cannot be read is unknown.

`request_body` and `response_body` give the attributes for the span of the call, in the app as at the gateway. Requests
are read from the bytes that were sent, so it does not matter what the app does to its messages later. What the bodies
mean, `conventions.exchanges` says.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from art_otel import attributes as names
from art_otel.conventions import values
from art_otel.conventions.bodies.chunks import JoinedChunks, TextChunk, read_text_chunk
from art_otel.conventions.dialects.genai import RESPONSE_ID
from art_otel.conventions.exchanges import GEMINI_RESPONSE_ID
from art_otel.conventions.values import RAW_FIELDS, UNREADABLE, RawFields, json_object
from art_otel.exchange.api_dialects import API_DIALECTS, asked_in_path
from art_otel.exchange.assembly import SAMPLED, AnswerAssembler, GeminiAssembler, WireDialect, gemini_responses
from art_otel.exchange.failures import FAILED_STATUS, CallFailure, failure_in, failure_message, failure_of
from art_otel.exchange.token_requests import NO_ADDITIONS
from art_otel.scrubbing import plainly_escaped
from art_otel.spans import Value

if TYPE_CHECKING:
    from art_otel.calls import StreamClose
    from art_otel.exchange.translation import Translation

_CONVERSATION: Final = frozenset({"messages", "input", "instructions", "prompt", "system", "tools", "functions"})
_BEGUN: Final[dict[str, list[Value]]] = {
    "choices": [{"index": 0, "finish_reason": None}],
    "output": [{"type": "message", "role": "assistant", "content": []}],
}
"""The fields of an empty answer, for a stream that was closed before the first sampled text came."""
_EVENTS: Final = b"text/event-stream"
FIRST_ERROR: Final = 400
LONGEST_ANSWER: Final = 256 << 20
"""A longer answer (in bytes) reaches its reader, but is not kept, and its call says so. Requests have other limits."""


class SampledFromIds(Protocol):
    """More attributes for the span of a call, from a gateway that samples from ids."""

    @property
    def outcome(self) -> str:
        """How the prompt was made, such as "spliced" or "passed_through"."""
        ...

    def attributes(self) -> dict[str, Value]:
        """The attributes."""
        ...


class Exchange:
    """A request, and its answer as far as it has come. Feed the answer by `begin` and `take`; then read `answer`.

    - `path`: without doubled slashes. `body`: the request as the app sent it. `added`: what the gateway adds to it.
    - `policy_version`: of the weights, if the server or the app names one; `policy_version_end`: when the answer ended.
    - `sampled`: more attributes, where the gateway sampled it from ids.
    - `streamed`: the answer that comes as events; None for a whole one. `closed_by_app`: its reader closed it before
      its last event, and what that means. It is written only where the answer does not say how it ended.
    - `translation`: set where the app asked in another dialect; this exchange is in the server's dialect.
    """

    def __init__(self, dialect: WireDialect, path: str, body: bytes, start_ns: int) -> None:
        self.dialect: Final = dialect
        self.path: Final = path
        self.body: Final = body
        self.start_ns: Final = start_ns
        self.end_ns = start_ns
        self.added = NO_ADDITIONS
        self.translation: Translation | None = None
        self.policy_version: str | None = None
        self.policy_version_end: str | None = None
        self.sampled: SampledFromIds | None = None
        self.failure: CallFailure | None = None
        self.closed_by_app: StreamClose | None = None
        self.streamed: StreamedAnswer | None = None
        self._status = 0
        self._parts: list[bytes] = []
        self._part_bytes = 0

    @cached_property
    def request(self) -> dict[str, Value]:
        """The request's fields; {} where it is no JSON object."""
        body = json_object(self.body.removeprefix(BOM_UTF8)) or {}
        return {**body, **asked_in_path(self.path)} if body and self.dialect == "gemini" else body

    @cached_property
    def fields(self) -> RawFields:
        """The request's fields with their values as undecoded JSON; {} where it is no JSON object."""
        try:
            return RAW_FIELDS.decode(self.body.removeprefix(BOM_UTF8))
        except UNREADABLE:
            return {}

    @cached_property
    def settings(self) -> dict[str, Value]:
        """The request's fields without the conversation, which is long; `tools` only says whether there are any."""
        if self.dialect == "gemini" or not self.fields:
            return self.request
        try:
            settings: dict[str, Value] = {
                name: msgspec.json.decode(value) for name, value in self.fields.items() if name not in _CONVERSATION
            }
        except UNREADABLE:  # a number beyond a float, or half a character: the server says what it thinks of it
            return self.request
        if "tools" in self.fields:
            settings["tools"] = bytes(self.fields["tools"]) not in (b"null", b"[]")
        return settings

    @property
    def streams_tools(self) -> bool:
        """Whether the request streams, has tools, and asks for neither logprobs nor ids itself."""
        asked = self.settings
        wants_ids = asked.get("logprobs") or asked.get("return_token_ids")
        return bool(asked.get("stream") and asked.get("tools") and not wants_ids)

    @property
    def may_be_translated(self) -> bool:
        """Whether the request may be translated: it is no Chat Completion, or one that streams with tools.

        The latter may be sent to the server as a request for a whole answer.
        """
        return self.dialect != "chat" or self.streams_tools

    @property
    def model(self) -> str | None:
        """The model that the request names; None where it names none."""
        model = self.settings.get("model")
        return model if isinstance(model, str) and model else None

    def begin(self, status: int, content_type: bytes) -> None:
        """Take the status and the content type of the answer."""
        self._status = status
        if status >= FIRST_ERROR:
            return
        if content_type.startswith(_EVENTS):
            assembler = API_DIALECTS[self.dialect].assembler
            self.streamed = GeminiEvents() if self.dialect == "gemini" else StreamedAnswer(assembler())
        elif self.dialect == "gemini" and asked_in_path(self.path).get("stream"):
            self.streamed = GeminiArray()

    @property
    def is_cut(self) -> bool:
        """Whether the answer is too long to be kept. It is passed on, and the call says that it is missing."""
        return self._part_bytes > LONGEST_ANSWER if self.streamed is None else self.streamed.is_cut

    @property
    def is_stream(self) -> bool:
        """Whether the answer comes as events."""
        return self.streamed is not None

    @property
    def has_sampled(self) -> bool:
        """Whether a choice of the answer has begun: the first event with one counts, although its text may be empty."""
        return self.streamed is not None and any(self.streamed.body().get(name) for name in SAMPLED)

    @property
    def is_over(self) -> bool:
        """Whether the event that ends the answer has come."""
        return self.streamed is not None and self.streamed.is_over

    def take(self, piece: bytes) -> bytes:
        """Take the next bytes of the answer, and return those that the agent may have now; b"" for a whole answer.

        The answer is to be looked at after the last piece only: what was read of it is kept.
        """
        if self.streamed is None:
            self._parts.append(piece)
            self._part_bytes += len(piece)
            if not self.is_cut:
                return b""
            parts, self._parts = self._parts, []
            return b"".join(parts)
        events = self.streamed.take(piece)
        if not self.added.is_hidden:
            return self.streamed.passed(piece)
        return b"".join([self.added.without(event.text, event.data, event.chunk) for event in events])

    def read(self, pieces: Sequence[bytes]) -> None:
        """Take pieces of the answer that its reader has already."""
        self._forget()
        if self.streamed is not None:
            self.streamed.read(pieces)
            return
        self._parts += pieces
        self._part_bytes += sum(map(len, pieces))
        if self._part_bytes > LONGEST_ANSWER:
            self._parts = []

    def note_closed(self, closed_by_app: "StreamClose | None") -> None:
        """Note that the reader closed the stream before its end; None: it reads on, as far as is known."""
        self._forget()
        self.closed_by_app = closed_by_app

    def _forget(self) -> None:
        """Have what was looked at before read anew: the answer has changed since."""
        for cached in ("answer", "_answer_head", "_whole", "_has_answer"):
            vars(self).pop(cached, None)

    def rest(self) -> bytes:
        """The bytes that the agent still has to get when the server has sent everything, or broke off."""
        if self.streamed is not None:
            rest = self.streamed.rest() if self.added.is_hidden else self.streamed.held
            return self.added.without(rest, data_of(rest)) if rest and self.added.is_hidden else rest
        body = b"".join(self._parts)
        return self.added.without_tokens(body) if self.added.is_hidden else body

    def as_it_came(self) -> bytes:
        """The bytes of an answer that does not stream, as of an error; b"" for a stream."""
        return b"".join(self._parts)

    @cached_property
    def _whole(self) -> bytes:
        """The bytes of an answer that does not stream.

        A byte order mark, as of .NET's servers, and the blanks that OpenRouter sends until the model answers are left
        out.
        """
        return b"".join(self._parts).removeprefix(BOM_UTF8).lstrip()

    @cached_property
    def _has_answer(self) -> bool:
        """Whether there is an answer to be kept: no error, not too long, and of a stream its reader had a part."""
        if self._status >= FIRST_ERROR or self.is_cut:
            return False
        return self.streamed is None or self.streamed.has_begun or self.closed_by_app is not None

    @cached_property
    def answer(self) -> dict[str, Value] | None:
        """The fields of the answer once it is there, joined where it streamed; None for an error or no JSON object.

        A stream that was closed before a choice began gives an empty choice.
        """
        if not self._has_answer:
            return None
        if self.streamed is None:
            return json_object(self._whole)
        body = self.streamed.body()
        if self.closed_by_app is not None:
            body = {name: value or _BEGUN.get(name, value) for name, value in body.items()}
        return body

    def answer_body(self) -> tuple[bytes, Value] | None:
        """The answer as JSON, and its id; None where there is no JSON object.

        The JSON is the bytes as they came, or the joined events. The id may be missing (None), or anything but a text.
        """
        if self.streamed is None:
            if (head := self._answer_head) is not None:
                return self._whole, head.id
            return None if self.answer is None else (self._whole, id_of(self.answer))
        if not self._has_answer:
            return None
        if self.streamed.joined_chunks is not None and self.closed_by_app is None:
            return self.streamed.joined_chunks.json(), id_of(self.streamed.joined_chunks.head)
        return msgspec.json.encode(self.answer), id_of(self.answer or {})

    @cached_property
    def _answer_head(self) -> "AnswerHead | None":
        """Id, error and status of a whole answer; None where the whole body must be decoded for them."""
        if self.streamed is not None or self._status >= FIRST_ERROR or self.dialect == "gemini":
            return None
        try:
            return _ANSWER_HEAD.decode(self._whole)
        except UNREADABLE:
            return None

    def why_failed(self) -> CallFailure | None:
        """Why the call failed: by its connection, its status, or an error in the answer. None where it did not fail."""
        answer = self.answer if self.dialect == "gemini" else None  # an array shows its error only when it is read
        said = None if self.streamed is None else self.streamed.failure
        if self.failure is not None:
            return self.failure if said is None or self.failure.message else self.failure._replace(message=said.message)
        if self._status >= FIRST_ERROR:
            return CallFailure(str(self._status), failure_message(json_object(self._whole) or {}))
        if self.streamed is not None and self.dialect != "gemini":
            return said
        head = self._answer_head
        is_sound = head is not None and not head.error and head.status != FAILED_STATUS
        return None if is_sound else said or failure_in(answer or self.answer or {})


class AnswerHead(msgspec.Struct):
    """The fields of a whole answer that are needed at once. Skipping the others is many times as fast as decoding."""

    id: object = None
    error: object = None
    status: object = None


_ANSWER_HEAD: Final = msgspec.json.Decoder(AnswerHead)


def id_of(answer: Mapping[str, Value]) -> Value:
    """The id in the fields of an answer, in the words of any dialect."""
    return answer.get("id", answer.get(GEMINI_RESPONSE_ID))


_END: Final = re.compile(rb"\r?\n\r?\n|\r\r")
_LONGEST_END: Final = 4
_DATA: Final = b"data:"
_BLANK: Final = b"\n\n"
# Where the name of the field, the data and the blank line stand in an event of one line of data.
_FIELD: Final = slice(len(_DATA))
_CONTENT: Final = slice(len(_DATA), -len(_BLANK))
_END_OF_EVENT: Final = slice(-len(_BLANK), None)
_DONE: Final = b"[DONE]"
_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, Any]])
_LAST: Final = frozenset(
    {"message_stop", "error", "response.completed", "response.failed", "response.incomplete", "response.cancelled"}
)
_FAILURE_EVENTS: Final = frozenset({"error", "response.failed"})


class ServerSentEvent(msgspec.Struct):
    r"""The text of an event with the blank line that ends it, and its data.

        b'data: {"a"'  b': 1}\n\ndata: [DO'  b'NE]\n\n'        pieces, as the network cuts them
        data: {"a": 1}   |   data: [DONE]                      events

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """

    text: bytes
    data: bytes
    chunk: TextChunk | None = None
    """The decoded event, where it is just one more piece of a text."""


class EventSplitter:
    """Cuts the pieces of a stream into whole events. `begun` has the bytes of an event that has not ended."""

    def __init__(self) -> None:
        self.begun = b""

    def take(self, piece: bytes) -> list[ServerSentEvent]:
        """Take the next bytes, and return the events that end in them."""
        text = self.begun + piece
        if b"\r" in text:
            return self._take_any(text)
        *events, self.begun = text.split(_BLANK)
        return [
            ServerSentEvent(
                event + _BLANK,
                # One line of data, as nearly all are.
                event[len(_DATA) :].strip() if event.startswith(_DATA) and b"\n" not in event else data_of(event),
            )
            for event in events
        ]

    def _take_any(self, text: bytes) -> list[ServerSentEvent]:
        """Do the same for line ends with a carriage return, which is slower. `text` begins with `begun`."""
        begins, events = 0, list[ServerSentEvent]()
        for end in _END.finditer(text, max(0, len(self.begun) - _LONGEST_END)):
            event, begins = text[begins : end.end()], end.end()
            events.append(ServerSentEvent(event, data_of(event)))
        self.begun = text[begins:]
        return events


def split(chunk: bytes) -> list[bytes]:
    """Cut bytes into events; an event that has not ended stands last."""
    if chunk.find(_BLANK) == len(chunk) - len(_BLANK) >= 0:  # one event, as nearly all chunks are
        return [chunk]
    ends = [0, *(end.end() for end in _END.finditer(chunk)), len(chunk)]
    return [chunk[begins:ends_at] for begins, ends_at in pairwise(ends) if begins < ends_at]


def data_of(event: bytes) -> bytes:
    """The data of an event: its `data:` lines, joined by newlines."""
    return b"\n".join(line[len(_DATA) :].strip() for line in event.splitlines() if line.startswith(_DATA))


class StreamedAnswer:
    """The events of one answer, read as they come.

    - `has_begun`: the reader has a piece of it. `is_over`: the event that ends the answer has come. `is_done`: that was
      the mark `[DONE]`.
    - `failure`: the error in an event. `is_cut`: the answer is too long, so that no more events are joined.
    - `joined_chunks`: the chunks of Chat Completions and Completions joined; None for other dialects.
    - `held`: bytes that are not passed on yet, because the reader may take them for the end.
    """

    def __init__(self, assembler: AnswerAssembler) -> None:
        self.has_begun = False
        self.is_over = False
        self.is_done = False
        self.is_cut = False
        self.failure: CallFailure | None = None
        self.held = b""
        self._taken_bytes = 0
        self._splitter = EventSplitter()
        self._assembler = assembler
        self.joined_chunks = assembler if isinstance(assembler, JoinedChunks) else None

    def take(self, piece: bytes) -> list[ServerSentEvent]:
        """Read the next bytes, and return the events that end in them."""
        self._count(piece)
        events, joined = self._splitter.take(piece), None if self.is_cut else self.joined_chunks
        for event in events:  # an event that is no JSON object is passed on and has no meaning
            chunk = None if joined is None else read_text_chunk(event.data)
            if chunk is not None and joined is not None and joined.add_text(chunk):
                event.chunk = chunk
            elif event.data.startswith(_DONE):
                self.is_over = self.is_done = True
            elif joined is not None and joined.add_all(b"[%b]" % event.data):
                continue
            elif event.data and (fields := json_object(event.data)) is not None:
                self._add(fields)
        return events

    def _add(self, event: dict[str, Value]) -> None:
        kind = event.get("type")
        self.is_over = self.is_over or kind in _LAST
        if kind in _FAILURE_EVENTS or (event.get("error") and "choices" not in event):
            self.failure = failure_of(event)
        if not self.is_cut:
            self._assembler.add(event)

    def read(self, pieces: Sequence[bytes]) -> None:
        """Read many events whose own bytes are not needed any more; nearly always each piece is one event."""
        if self._splitter.begun or not self._read_lines(pieces):
            self.take(b"".join(pieces))

    def _read_lines(self, pieces: Sequence[bytes]) -> bool:
        r"""Read events of one line of data each; False, with nothing read, where some piece has another form.

        All become one list, which is decoded at once: data: 1\n\n, data: 2\n\n ─► [1, 2].
        """
        # A piece that begins with a field of data, ends with a blank line and has no other line end is one event.
        if {piece[_FIELD] for piece in pieces} != {_DATA} or {piece[_END_OF_EVENT] for piece in pieces} != {_BLANK}:
            return False
        # The ids of a long prompt are all in one piece, so the pieces are copied as seldom as can be.
        data = [piece[_CONTENT] for piece in pieces]
        is_done = data[-1].strip() == _DONE
        if is_done:
            data.pop()
        listed = b"[%b]" % b",".join(data)
        if b"\n" in listed or b"\r" in listed or self._taken_bytes + len(listed) > LONGEST_ANSWER:
            return False
        if self.joined_chunks is None or not self.joined_chunks.add_all(listed):
            try:
                objects = _OBJECTS.decode(listed)
            except UNREADABLE:
                return False
            for event in objects:
                self._add(event)
        self.has_begun = True
        self._taken_bytes += len(listed)
        if is_done:
            self.is_over = self.is_done = True
        return True

    def _count(self, piece: bytes) -> None:
        self.has_begun = True
        self._taken_bytes += len(piece)
        self.is_cut = self._taken_bytes > LONGEST_ANSWER

    def passed(self, piece: bytes) -> bytes:
        """The bytes that the reader may have, once the events of a piece are read."""
        return piece

    def body(self) -> dict[str, Value]:
        """The body that the events make together, as far as they came."""
        return self._assembler.body()

    def rest(self) -> bytes:
        """The bytes of an event that has not ended."""
        return self._splitter.begun


class GeminiEvents(StreamedAnswer):
    """The events of Gemini. One with a finish reason may be the last: it is held until the next, or the end, comes."""

    def __init__(self) -> None:
        self._contents = GeminiAssembler()
        super().__init__(self._contents)

    def passed(self, piece: bytes) -> bytes:
        """The bytes that may be passed on: none while the last event so far may be the end."""
        come = self.held + piece
        self.held = come if self._contents.may_be_whole else b""
        return b"" if self.held else come


class GeminiArray(StreamedAnswer):
    """A stream of Gemini as one JSON array. It is read once it is whole, or was closed."""

    def __init__(self) -> None:
        super().__init__(GeminiAssembler())
        self._pieces: list[bytes] = []

    def take(self, piece: bytes) -> list[ServerSentEvent]:
        """Keep the next bytes; an array has no events."""
        self._count(piece)
        if not self.is_cut:
            self._pieces.append(piece)
        return []

    def passed(self, piece: bytes) -> bytes:
        """The bytes that may be passed on: all but the closing bracket, which a client may take for the end."""
        come = self.held + piece
        array = come.rstrip()
        length = len(array) - 1 if array.endswith(b"]") else len(come)
        self.held = come[length:]
        return come[:length]

    def body(self) -> dict[str, Value]:
        """The body that the whole responses in the array make together."""
        contents = GeminiAssembler()
        for response in gemini_responses(b"".join(self._pieces)):
            if response.get("error"):
                self.failure = failure_of(response)
            contents.add(response)
        return contents.body()


def request_body(exchange: Exchange) -> dict[str, Value]:
    """The attribute with the request's body as it was sent; {} for a body that cannot be a JSON object."""
    if exchange.dialect == "gemini":  # model and `stream` are in the path of the request, and are added to its body
        return {names.REQUEST_BODY: msgspec.json.encode(exchange.request).decode()} if exchange.request else {}
    # Not parsed: in an app that would cost more than all the rest.
    body = exchange.body.removeprefix(BOM_UTF8).lstrip()
    plain = plainly_escaped(body) if body.startswith(b"{") else None
    return {} if plain is None else {names.REQUEST_BODY: plain}


def response_body(exchange: Exchange) -> dict[str, Value]:
    """The attributes of an answer that has ended: its body (joined where it streamed), its id, and further facts."""
    attributes = other_facts(exchange)
    body, response_id = exchange.answer_body() or (b"", None)
    if body and (plain := plainly_escaped(body)) is not None:
        attributes[names.RESPONSE_BODY] = plain
        if isinstance(response_id, str) and response_id:
            attributes[RESPONSE_ID] = response_id  # rewards name the id, and are matched before the body is decoded
    return attributes


def other_facts(exchange: Exchange) -> dict[str, Value]:
    """The attributes of what is known of an exchange beside its bodies."""
    attributes: dict[str, Value] = {}
    if exchange.is_cut:
        attributes[names.MISSING] = ["answer"]
    if exchange.translation is not None and exchange.translation.dialect != exchange.dialect:
        attributes[names.TRANSLATED_FROM] = exchange.translation.dialect
        if exchange.translation.left_out:
            attributes[names.LEFT_OUT] = [*exchange.translation.left_out]
    if exchange.sampled is not None:
        attributes |= exchange.sampled.attributes()
    if exchange.policy_version is not None:
        attributes[names.POLICY_VERSION] = exchange.policy_version
        if exchange.policy_version_end not in (None, exchange.policy_version):
            attributes[names.POLICY_VERSION_END] = exchange.policy_version_end
    # Who has the reason why sampling ended has the whole answer, even if it closed the stream before the last event.
    if exchange.closed_by_app is not None and not has_all_ends(exchange.answer or {}, exchange.settings.get("n")):
        attributes[names.CLOSED_BY_APP] = exchange.closed_by_app
    return attributes


_GOES_ON: Final = (None, "queued", "in_progress")


def has_all_ends(answer: dict[str, Value], asked: Value = None) -> bool:
    """Whether an answer says how the sampling of each choice ended, of as many choices as were `asked` for.

    A server that gives fewer choices than asked for has not said all.

    Each choice says it by `finish_reason`, a candidate by `finishReason`, a message by `stop_reason`, and a response by
    a `status` that does not go on.
    """
    if "output" in answer:
        return answer.get("status") not in _GOES_ON
    if "content" in answer:
        return answer.get("stop_reason") is not None
    choices = values.items(answer.get("choices")) or values.items(answer.get("candidates")) or ()
    ends = [values.mapping(choice) or {} for choice in choices]
    has_all = len(ends) >= (asked if isinstance(asked, int) else 1)
    return has_all and all(one.get("finish_reason", one.get("finishReason")) is not None for one in ends)
