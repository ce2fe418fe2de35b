"""EventStream: the JSON of server-sent events, read from the bytes as they pass.

Invariant: `split` gives the very bytes it was given, cut so that a reader gets no event before it asks for it; what was
read at any moment is what the app was given.

Source of the format: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from collections.abc import Iterator
from typing import Final

from art_otel.conventions import values
from art_otel.spans import Value
from art_otel.tracing.capture.answer import decode
from art_otel.tracing.capture.chunks import JoinedChunks
from art_otel.tracing.capture.events import JoinedEvents

_END: Final = b"\n\n"
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_FAILED: Final = ("error", "response.failed")
_FAILURE: Final = "APIError"
"""What openai's client raises for an error in the middle of a stream."""


def split(chunk: bytes) -> Iterator[bytes]:
    """The bytes, an event at a time."""
    start = 0
    while (end := chunk.find(_END, start)) >= 0:
        end += len(_END)
        yield chunk if start == 0 and end == len(chunk) else chunk[start:end]
        start = end
    if start < len(chunk):
        yield chunk[start:]


class EventStream:
    """What the events of one stream say so far. `error` is why it failed, as far as an event said so."""

    def __init__(self, *, responses: bool) -> None:
        self.error: str | None = None
        self._joined = JoinedEvents() if responses else JoinedChunks()
        self._rest: list[bytes] = []
        self._data: list[bytes] = []

    def read(self, piece: bytes) -> None:
        """Take the bytes that pass next."""
        if not self._rest and not self._data and _is_one_event(piece):
            self._take(piece[len(_DATA) :])
            return
        self._rest.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return
        lines = b"".join(self._rest).splitlines(keepends=True)
        self._rest = [] if lines[-1].endswith((b"\n", b"\r")) else [lines.pop()]
        for line in lines:
            line = line.rstrip(b"\r\n")  # noqa: PLW2901 # the same line
            if line.startswith(_DATA):
                self._data.append(line[len(_DATA) :])
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                self._take(data)

    def body(self) -> dict[str, Value]:
        """The body so far."""
        return self._joined.body()

    def _take(self, data: bytes) -> None:
        event = None if data.lstrip().startswith(_DONE) else decode(data)
        if event is None:
            return
        if (event.get("error") and "choices" not in event) or event.get("type") in _FAILED:
            self.error = _failure(event)
        self._joined.add(event)


def _is_one_event(piece: bytes) -> bool:
    """Whether the bytes are an event of one line, as nearly all are."""
    return piece.startswith(_DATA) and piece.endswith(_END) and piece.count(b"\n") == len(_END) and b"\r" not in piece


def _failure(event: dict[str, Value]) -> str:
    told = values.mapping((values.mapping(event.get("response")) or event).get("error")) or event
    return values.text(told.get("code")) or _FAILURE
