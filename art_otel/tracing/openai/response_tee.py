"""ResponseTee: the body of one response, read on its way to the app.

Invariant: the app gets the same bytes from the same methods, and every exception unchanged; nothing is read that the
app does not read. A fault of ours ends our reading, not the stream.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from art_otel.spans import Value
from art_otel.tracing.internal_errors import InternalErrorHandler
from art_otel.tracing.openai.answer import decode
from art_otel.tracing.openai.event_stream import EventStream, split
from art_otel.tracing.openai.exchange import RAW_HEADER, Response, when_closed

_EVENTS: Final = "text/event-stream"
_READING: Final = InternalErrorHandler("a stream could not be read; its call misses the rest of it")


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

    def body(self) -> dict[str, Value] | None:
        """The JSON object that the body is, as far as it has passed; None for another body."""
        if self._has_begun:
            return decode(b"".join(self._parts)) if self._events is None else self._events.body()
        return decode(self._response.content) if self._response.is_closed else None

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
