"""EventStream: the JSON of server-sent events, read from the bytes as they pass.

Invariant: `split` gives the very bytes it was given, cut so that a reader gets no event before it asks for it; what was
read at any moment is what the app was given.

Source of the format: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from collections.abc import Iterator
from typing import Final

from art_otel.conventions.bodies.chunks import JoinedChunks
from art_otel.spans import Value
from art_otel.tracing.openai.answer import decode, failure
from art_otel.tracing.openai.events import JoinedEvents

_END: Final = b"\n\n"
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_AT_ONCE: Final = 64
_FAILED: Final = ("error", "response.failed")


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
    """What the events of one stream say so far. Many are read at once: that costs less than each as it passes."""

    def __init__(self, *, responses: bool) -> None:
        self._error: str | None = None
        self._is_done = False
        self._joined = JoinedEvents() if responses else JoinedChunks()
        self._passed: list[bytes] = []
        self._data: list[bytes] = []
        self._is_behind_return = False

    @property
    def error(self) -> str | None:
        """Why the stream failed, as far as an event said so."""
        self._read()
        return self._error

    @property
    def is_done(self) -> bool:
        """Whether the event passed that says that there are no more."""
        self._read()
        return self._is_done

    def body(self) -> dict[str, Value]:
        """The body so far."""
        self._read()
        return self._joined.body()

    def take(self, piece: bytes) -> None:
        """Take the bytes that pass next."""
        self._passed.append(piece)
        if len(self._passed) > _AT_ONCE:
            self._read()

    def _read(self) -> None:
        data = b"".join(self._passed)
        if self._is_behind_return and data:
            data = data.removeprefix(b"\n")  # it belongs to the line that ended
            self._is_behind_return = False
        lines = data.splitlines(keepends=True)
        self._passed = [] if not lines or lines[-1].endswith((b"\n", b"\r")) else [lines.pop()]
        if lines and not self._passed:
            self._is_behind_return = lines[-1].endswith(b"\r")
        for line in lines:
            if line.startswith(_DATA):
                self._data.append(line[len(_DATA) :])
            elif self._data and not line.rstrip(b"\r\n"):
                data, self._data = b"".join(self._data), []
                self._tell(data)

    def _tell(self, data: bytes) -> None:
        if data.lstrip().startswith(_DONE):
            self._is_done = True
            return
        event = decode(data)
        if event is None:
            return
        if (event.get("error") and "choices" not in event) or event.get("type") in _FAILED:
            self._error = failure(event)
        self._joined.add(event)
