r"""Events: a streamed answer on its way, cut into server-sent events and read.

    b'data: {"a"'  b': 1}\n\ndata: [DO'  b'NE]\n\n'        pieces, as the network cuts them
    data: {"a": 1}   |   data: [DONE]                      events, each with the blank line that ends it

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import re
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Final, NamedTuple

from art_otel.exchange.assembly import AnswerAssembler, GeminiAssembler, gemini_responses
from art_otel.exchange.bodies import CallFailure, decode, failure_of
from art_otel.spans import Value

_END: Final = re.compile(rb"\r?\n\r?\n|\r\r")
_LONGEST_END: Final = 4
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_LAST: Final = frozenset(
    {"message_stop", "error", "response.completed", "response.failed", "response.incomplete", "response.cancelled"}
)
_FAILED: Final = frozenset({"error", "response.failed"})


class ServerSentEvent(NamedTuple):
    """The text of an event with the blank line that ends it, and its data."""

    text: bytes
    data: bytes


class EventSplitter:
    """Cuts the pieces of a stream into whole events. `begun` is what came of an event that has not ended."""

    def __init__(self) -> None:
        self.begun = b""

    def take(self, piece: bytes) -> list[ServerSentEvent]:
        """Give the events that end in the bytes that came next."""
        text, begins = self.begun + piece, 0
        events: list[ServerSentEvent] = []
        for end in _END.finditer(text, max(0, len(self.begun) - _LONGEST_END)):
            event, begins = text[begins : end.end()], end.end()
            events.append(ServerSentEvent(event, data_of(event)))
        self.begun = text[begins:]
        return events


def split(chunk: bytes) -> list[bytes]:
    """The bytes, an event at a time; what is behind the last end of an event stands last."""
    if chunk.find(b"\n\n") + 2 == len(chunk):  # one event, as nearly all chunks are
        return [chunk]
    ends = [0, *(end.end() for end in _END.finditer(chunk)), len(chunk)]
    return [chunk[begins:ends_at] for begins, ends_at in pairwise(ends) if begins < ends_at]


def data_of(event: bytes) -> bytes:
    """The data of an event, its lines joined."""
    return b"\n".join(line[len(_DATA) :].strip() for line in event.splitlines() if line.startswith(_DATA))


async def data_in(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of the events that come in pieces, those without data left out."""
    splitter = EventSplitter()
    async for piece in pieces:
        for event in splitter.take(piece):
            if event.data:
                yield event.data


class StreamedAnswer:
    """The events of one answer, read as they come.

    `is_over` says that the event has come that ends the answer, `is_done` that it was the mark `[DONE]`, `failure` what
    an event said of an error. `held` are bytes that the reader has not got yet, because it may take them for the end.
    """

    def __init__(self, assembler: AnswerAssembler) -> None:
        self.is_over = False
        self.is_done = False
        self.failure: CallFailure | None = None
        self.held = b""
        self._splitter = EventSplitter()
        self._assembler = assembler

    def take(self, piece: bytes) -> list[ServerSentEvent]:
        """Read what the server sent next, and give the events that ended in it."""
        events = self._splitter.take(piece)
        for event in events:
            self._read(event.data)
        return events

    def _read(self, data: bytes) -> None:
        """Read the data of an event; what is no JSON object says nothing."""
        if data.startswith(_DONE):
            self.is_over = self.is_done = True
            return
        fields = decode(data) if data else None
        if fields is None:
            return
        kind = fields.get("type")
        self.is_over = self.is_over or kind in _LAST
        if kind in _FAILED or (fields.get("error") and "choices" not in fields):
            self.failure = failure_of(fields)
        self._assembler.add(fields)

    def passed(self, piece: bytes) -> bytes:
        """What the reader may have once the events of a piece are read."""
        return piece

    def body(self) -> dict[str, Value]:
        """The body that the events make so far."""
        return self._assembler.body()

    def rest(self) -> bytes:
        """What came of an event that never ended."""
        return self._splitter.begun


class GeminiEvents(StreamedAnswer):
    """Those of Gemini, which has no event that ends a stream: one with a finish reason may be the last."""

    def __init__(self) -> None:
        self._contents = GeminiAssembler()
        super().__init__(self._contents)

    def passed(self, piece: bytes) -> bytes:
        """What may be passed on: nothing while the event may be the last."""
        come = self.held + piece
        self.held = come if self._contents.may_be_whole else b""
        return b"" if self.held else come


class GeminiArray(StreamedAnswer):
    """A stream of Gemini that is one JSON array, which is read when it is whole or was left."""

    def __init__(self) -> None:
        super().__init__(GeminiAssembler())
        self._pieces: list[bytes] = []

    def take(self, piece: bytes) -> list[ServerSentEvent]:
        """Keep what the server sent next."""
        self._pieces.append(piece)
        return []

    def passed(self, piece: bytes) -> bytes:
        """What may be passed on: all but the bracket that closes the array, which a client may take for the end."""
        come = self.held + piece
        array = come.rstrip()
        length = len(array) - 1 if array.endswith(b"]") else len(come)
        self.held = come[length:]
        return come[:length]

    def body(self) -> dict[str, Value]:
        """The body that the responses make which have come whole."""
        contents = GeminiAssembler()
        for response in gemini_responses(b"".join(self._pieces)):
            if response.get("error"):
                self.failure = failure_of(response)
            contents.add(response)
        return contents.body()
