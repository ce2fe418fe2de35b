"""Stream: the body of one response, read on its way to the app, and the events that a streamed one consists of.

Invariant: the app gets the same bytes from the same methods, and every exception unchanged; nothing is read that the
app does not read, and what was read at any moment is what the app was given. A fault of ours ends our reading, not the
stream. Of a stream that never came to its end, everything is kept as far as it had come.

Sources: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation and
https://platform.openai.com/docs/api-reference/responses-streaming
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from art_otel.conventions import values
from art_otel.conventions.bodies.chunks import JoinedChunks, join, objects, whole
from art_otel.spans import Value
from art_otel.tracing.internal_errors import InternalErrorHandler
from art_otel.tracing.openai.bodies import decode, failure
from art_otel.tracing.openai.client import RAW_HEADER, Response

_EVENTS: Final = "text/event-stream"
_READING: Final = InternalErrorHandler("a stream could not be read; its call misses the rest of it")
_TELLING_CLOSED: Final = InternalErrorHandler("a call was not told that its response was closed")


class ResponseTee:
    """The body of `response`; `responses` says that its events are those of the Responses API."""

    def __init__(self, response: Response, *, responses: bool) -> None:
        self._response = response
        self._parts: list[bytes] = []
        self._broke: str | None = None
        self._has_begun = False
        self._is_read = False
        self._is_awaited = False
        self._after: list[Callable[[], None]] = []
        self._is_blind = False
        self._events: EventStream | None = None
        self._splits = False
        if response.is_closed:
            return
        if str(response.headers.get("content-type", "")).startswith(_EVENTS):
            self._events = EventStream(responses=responses)
            self._splits = response.request.headers.get(RAW_HEADER) != "stream"
        self._watch()

    @property
    def error(self) -> str | None:
        """The type of the exception, or the code of the event, that broke the body; None while nothing did."""
        return self._broke or (None if self._events is None else self._events.error)

    @property
    def was_left(self) -> bool:
        """Whether the body is a stream that was closed before its end, by no error that `except Exception` sees."""
        events = self._events
        return events is not None and self._response.is_closed and not (self._is_read or events.is_done or events.error)

    @property
    def is_to_come(self) -> bool:
        """Whether nobody has begun to read a body that can still be read."""
        return not self._has_begun and not self._response.is_closed

    @property
    def is_over(self) -> bool:
        """Whether the app has all of the body that it will get."""
        return self._response.is_closed or self.error is not None

    def joined(self) -> dict[str, Value] | None:
        """The body that the events of a stream make, as far as they have passed; None of a body that is no stream."""
        return self._events.body() if self._events is not None and self._has_begun else None

    def content(self) -> bytes:
        """The bytes of a body that is no stream, as far as they have passed."""
        if self._has_begun:
            return b"".join(self._parts)
        return self._response.content if self._response.is_closed else b""

    def body(self) -> dict[str, Value] | None:
        """The JSON object that the body is, as far as it has passed; None for another body."""
        joined = self.joined()
        return decode(self.content()) if joined is None else joined

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What came, in the pieces in which it is handed on."""
        return split(chunk) if self._splits else iter((chunk,))

    def take(self, piece: bytes) -> None:
        """A piece passes."""
        if self._is_blind:
            return
        self._is_blind = True
        with _READING:
            if self._events is None:
                self._parts.append(piece)
            else:
                self._events.take(piece)
            self._is_blind = False

    def when_over(self, act: Callable[[], None]) -> None:
        """Do something once the body is closed; where it breaks, once that is known."""

        def closed() -> None:
            if self._is_awaited:
                self._after.append(act)
            else:
                act()

        when_closed(self._response, closed)

    def wait(self) -> None:
        """The next bytes are waited for."""
        self._is_awaited = True

    def go_on(self) -> None:
        """They came, or something else did."""
        self._is_awaited = False
        while self._after:
            with _READING:
                self._after.pop()()

    def break_off(self, error: BaseException) -> None:
        """The body ended with an exception, or as it should."""
        self._is_read = isinstance(error, Exception)
        if not isinstance(error, StopIteration | StopAsyncIteration):
            self._broke = type(error).__name__

    def _watch(self) -> None:
        """Wrap the two methods through which every reader of a response gets its body."""
        iter_bytes, aiter_bytes = self._response.iter_bytes, self._response.aiter_bytes

        def iterate(*args: Any, **kwargs: Any) -> Iterator[bytes]:  # noqa: ANN401 # as httpx has them
            chunks = iter_bytes(*args, **kwargs)
            return chunks if self._begins() else _Passed(self, chunks)

        def async_iterate(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:  # noqa: ANN401 # as httpx has them
            chunks = aiter_bytes(*args, **kwargs)
            return chunks if self._begins() else _AsyncPassed(self, chunks)

        vars(self._response).update(iter_bytes=iterate, aiter_bytes=async_iterate)

    def _begins(self) -> bool:
        """Begin to read; True when that was done before, and the bytes have been read."""
        begun, self._has_begun = self._has_begun, True
        return begun


class _Passed:
    """The chunks of a body, each read by us as it is handed on. No generator: the app closes what it was given."""

    def __init__(self, tee: ResponseTee, chunks: Any) -> None:  # noqa: ANN401 # httpx's generator
        self._tee = tee
        self._chunks = chunks
        self._pieces: Iterator[bytes] = iter(())

    def __iter__(self) -> "_Passed":
        return self

    def __next__(self) -> bytes:
        while (piece := next(self._pieces, None)) is None:
            self._tee.wait()
            try:
                chunk: bytes = next(self._chunks)
            except BaseException as error:
                self._tee.break_off(error)
                raise
            finally:
                self._tee.go_on()
            self._pieces = self._tee.pieces(chunk)
        self._tee.take(piece)
        return piece

    def close(self) -> None:
        self._chunks.close()


class _AsyncPassed:
    """The same as `_Passed` for async responses."""

    def __init__(self, tee: ResponseTee, chunks: Any) -> None:  # noqa: ANN401 # httpx's async generator
        self._tee = tee
        self._chunks = chunks
        self._pieces: Iterator[bytes] = iter(())

    def __aiter__(self) -> "_AsyncPassed":
        return self

    async def __anext__(self) -> bytes:
        while (piece := next(self._pieces, None)) is None:
            self._tee.wait()
            try:
                chunk: bytes = await anext(self._chunks)
            except BaseException as error:
                self._tee.break_off(error)
                raise
            finally:
                self._tee.go_on()
            self._pieces = self._tee.pieces(chunk)
        self._tee.take(piece)
        return piece

    async def aclose(self) -> None:
        await self._chunks.aclose()


def when_closed(response: Response, act: Callable[[], None]) -> None:
    """Do something whenever a response has been closed, by whoever reads it or at its end."""
    close, aclose = response.close, response.aclose

    def closing() -> None:
        try:
            close()
        finally:
            with _TELLING_CLOSED:
                act()

    async def async_closing() -> None:
        try:
            await aclose()
        finally:
            with _TELLING_CLOSED:
                act()

    vars(response).update(close=closing, aclose=async_closing)


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


_ITEM_BEGINS: Final = "response.output_item.added"
_ITEM_ENDS: Final = "response.output_item.done"
_PARTS: Final = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
}
_FIELDS: Final = {
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}
_MAX_PARTS: Final = 1024


class JoinedEvents:
    """Joins the events that a stream has sent so far."""

    def __init__(self) -> None:
        self._response: dict[str, Value] = {}
        self._items: dict[int, dict[str, Value]] = {}

    def add(self, event: dict[str, Value]) -> None:
        """Add the next event."""
        kind = values.text(event.get("type")) or ""
        self._response = values.mapping(event.get("response")) or self._response
        output_index = values.integer(event.get("output_index"))
        if output_index is None:
            return
        if kind in (_ITEM_BEGINS, _ITEM_ENDS):
            self._items[output_index] = values.mapping(event.get("item")) or {}
        elif output_index in self._items:
            _add_piece(self._items[output_index], kind, event)

    def body(self) -> dict[str, Value]:
        """Return the response body as far as it has come."""
        items = [whole(self._items[output_index]) for output_index in sorted(self._items)]
        return {**self._response, "output": values.items(self._response.get("output")) or items}


def _add_piece(item: dict[str, Value], kind: str, event: dict[str, Value]) -> None:
    piece = event.get("delta")
    if not isinstance(piece, str):
        return
    if kind in _FIELDS:
        join(item, {_FIELDS[kind]: piece})
    elif kind in _PARTS:
        listed, part_type, field = _PARTS[kind]
        parts = objects(item, listed)
        at = values.integer(event.get("content_index", event.get("summary_index"))) or 0
        while len(parts) <= at < _MAX_PARTS:
            parts.append({"type": part_type})
        if 0 <= at < len(parts):
            join(parts[at], {field: piece})
