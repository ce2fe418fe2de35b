"""Stream: the body of one response, read on its way to the app.

Invariant: the app gets the same bytes from the same methods, and every exception unchanged; nothing is read that the
app does not read, and what was read at any moment is what the app was given. Only the event with the usage that we
asked for, and the app did not, is kept from the app. A fault of ours ends our reading, not the stream. Of a stream that
never came to its end, everything is kept as far as it had come.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from art_otel.exchange.exchange import CallFailure, Exchange, StreamedAnswer, split
from art_otel.exchange.token_requests import NO_CHOICES, is_usage_alone
from art_otel.spans import Value
from art_otel.tracing.internal_errors import InternalErrorHandler, handle_internal_errors
from art_otel.tracing.openai.client import RAW_HEADER, READ, Method, Response

_READING: Final = InternalErrorHandler("a stream could not be read; its call misses the rest of it")
_TELLING_CLOSED: Final = InternalErrorHandler("a call did not notice that its response was closed")
_BEGUN: Final[dict[str, list[Value]]] = {
    "choices": [{"index": 0, "finish_reason": None}],
    "output": [{"type": "message", "role": "assistant", "content": []}],
}
"""What the app has of a stream that it left before anything sampled came: the beginning of an answer."""
_AT_ONCE: Final = 256
"""Pieces that pass before they are read: many at once cost less than each by itself."""


class ResponseTee:
    """The body of `response`, which is yet to be read: the answer of `exchange`.

    With `hides_usage` the event that has only the usage is kept from the app.
    `is_raw` says that the app asked for the response itself, which it has before the body.
    It stands in the place of the iterator, sync or async, through which every reader of a response gets its body, and
    keeps what it hands on. It is no generator: the app closes what it was given.
    """

    def __init__(self, response: Response, exchange: Exchange, *, hides_usage: bool = False) -> None:
        self._response = response
        exchange.begin(response.status_code, str(response.headers.get("content-type", "")).encode())
        self._events = exchange.streamed
        is_stream = exchange.is_stream
        raw = response.request.headers.get(RAW_HEADER)
        self.is_raw = raw is not None
        self._splits = is_stream and raw != "stream"
        self._hides_usage = is_stream and hides_usage
        self._held = b""
        """The beginning of an event, which is handed on with its end where the usage is hidden."""
        self._may_hide = False
        """Whether a piece of what came last may be the event to hide."""
        self._chunks: Any = None
        """httpx's iterator, once somebody reads."""
        self._pieces: Iterator[bytes] = iter(())
        """What came and was not handed on yet."""
        self._passed: list[bytes] = []
        """What was handed on and not read yet; of a body that is no stream, all."""
        self._broke: str | None = None
        self._is_read = False
        self._is_awaited = False
        self._is_blind = False
        self._after: list[Callable[[], None]] = []
        iter_bytes, aiter_bytes = response.iter_bytes, response.aiter_bytes
        vars(response).update(
            iter_bytes=partial(self._begin, iter_bytes), aiter_bytes=partial(self._begin, aiter_bytes)
        )

    @property
    def failure(self) -> CallFailure | None:
        """The exception, or what the event said, that broke the body; None while nothing did."""
        said = None if self._events is None else self._read(self._events).failure
        if self._broke is None:
            return said
        return CallFailure(self._broke, "" if said is None else said.message)

    @property
    def was_left(self) -> bool:
        """Whether the body is a stream that was closed before its end, by no error that `except Exception` sees."""
        if self._events is None or not self._response.is_closed or self._is_read:
            return False
        events = self._read(self._events)
        return not (events.is_done or events.failure)

    @property
    def is_closed_by_app(self) -> bool:
        """Whether the app stopped reading a stream before its end, where the span of the call ends now.

        It closed the stream, or dropped it: then who reads it for the app is gone, before the response is closed.
        """
        if self._events is None or self._is_read or self.failure is not None or self._events.is_done:
            return False
        if self._is_awaited:  # it breaks, and what broke it is not said yet
            return False
        return self._response.is_closed or self._chunks is not None

    @property
    def is_cut(self) -> bool:
        """Whether the body is a stream of which the end is not joined any more."""
        return self._events is not None and self._events.is_cut

    @property
    def is_to_come(self) -> bool:
        """Whether nobody has begun to read a body that can still be read."""
        return self._chunks is None and not self._response.is_closed

    @property
    def is_over(self) -> bool:
        """Whether the app has all of the body that it will get."""
        return self._response.is_closed or self.failure is not None

    def joined(self) -> dict[str, Value] | None:
        """The body that the events of a stream make, as far as they have passed; None of a body that is no stream.

        None too while nobody has read and somebody still may. What was left before an answer came has an empty one.
        """
        if self._events is None or (self._chunks is None and not self.was_left):
            return None
        body = self._read(self._events).body()
        if not self.was_left:
            return body
        return {name: value or _BEGUN.get(name, value) for name, value in body.items()}

    def content(self) -> bytes:
        """The bytes of a body that is no stream, as far as they have passed."""
        if self._chunks is not None:
            return b"".join(self._passed)
        return self._response.content if self._response.is_closed else b""

    def when_over(self, act: Callable[[], None]) -> None:
        """Do something once the body is closed; where it breaks, once that is known."""

        def closed() -> None:
            if self._is_awaited:
                self._after.append(act)
            else:
                act()

        when_closed(self._response, closed)

    def _begin(self, read: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as httpx has them
        """Begin to read the body, in the place of httpx's iterator, unless that was done before."""
        chunks = read(*args, **kwargs)
        if self._chunks is not None:
            return chunks
        self._chunks = chunks
        return self

    def __iter__(self) -> "ResponseTee":
        return self

    def __aiter__(self) -> "ResponseTee":
        return self

    def __next__(self) -> bytes:
        while True:
            for piece in self._pieces:  # here and not in a method: this runs for every piece of an answer
                self._passed.append(piece)
                if not (self._may_hide and _is_usage(piece)):
                    return piece
            self._is_awaited = True
            try:
                chunk: bytes = next(self._chunks)
            except BaseException as error:
                if (rest := self._break_off(error)) is not None:
                    return rest
                raise
            if self._take(chunk):
                return chunk

    async def __anext__(self) -> bytes:
        while True:
            for piece in self._pieces:  # here and not in a method: this runs for every piece of an answer
                self._passed.append(piece)
                if not (self._may_hide and _is_usage(piece)):
                    return piece
            self._is_awaited = True
            try:
                chunk: bytes = await anext(self._chunks)
            except BaseException as error:
                if (rest := self._break_off(error)) is not None:
                    return rest
                raise
            if self._take(chunk):
                return chunk

    def close(self) -> None:
        """Close httpx's iterator."""
        self._chunks.close()

    async def aclose(self) -> None:
        """Close httpx's iterator."""
        await self._chunks.aclose()

    def _take(self, chunk: bytes) -> bool:
        """Take what came, in the pieces in which it is handed on, and read what was handed on before.

        True where it is handed on as it is: nearly every chunk is one event.
        """
        is_event = self._splits and not self._held and chunk.find(b"\n\n") + 2 == len(chunk)
        if is_event and not (self._hides_usage and NO_CHOICES.search(chunk) is not None):
            if self._after or len(self._passed) > _AT_ONCE:
                self._settle()
            self._is_awaited = False
            self._passed.append(chunk)
            return True
        pieces = split(self._held + chunk) if self._splits or self._hides_usage else [chunk]
        if self._hides_usage:
            self._may_hide = NO_CHOICES.search(self._held + chunk) is not None
            self._held = pieces.pop() if pieces and not pieces[-1].endswith(_ENDS) else b""
        self._pieces = iter(pieces)
        self._settle()
        return False

    def _settle(self) -> None:
        """Read what was handed on, if it is much, and note that nothing is awaited."""
        if self._events is not None and len(self._passed) > _AT_ONCE:
            self._read(self._events)
        self._is_awaited = False
        if self._after:
            self._go_on()

    def _break_off(self, error: BaseException) -> bytes | None:
        """Note that the body ended with an exception, or as it should: then give what was held back."""
        self._is_read = isinstance(error, Exception)
        rest, self._held = self._held, b""
        if not isinstance(error, StopIteration | StopAsyncIteration):
            self._broke = type(error).__name__
            rest = b""
        elif rest:
            self._passed.append(rest)
        self._go_on()
        return None if not rest or _is_usage(rest) else rest

    def _go_on(self) -> None:
        """Note that nothing is awaited any more, and do what waited for that."""
        self._is_awaited = False
        while self._after:
            with _READING:
                self._after.pop()()

    def _read(self, events: StreamedAnswer) -> StreamedAnswer:
        """Give the events with all that was handed on; a fault of ours ends the reading."""
        passed, self._passed = self._passed, []
        if passed and not self._is_blind:
            self._is_blind = True
            try:
                events.read(passed if self._splits else split(b"".join(passed)))
                self._is_blind = False
            except Exception as fault:  # noqa: BLE001 # the app reads on
                _READING.note(fault)
        return events


def when_closed(response: Response, act: Callable[[], None]) -> None:
    """Do something whenever a response has been closed, by whoever reads it or at its end."""
    close, aclose = response.close, response.aclose

    def tell() -> None:
        try:
            act()
        except Exception as fault:  # noqa: BLE001 # the app has closed its response
            _TELLING_CLOSED.note(fault)

    def closing() -> None:
        try:
            close()
        finally:
            tell()

    async def async_closing() -> None:
        try:
            await aclose()
        finally:
            tell()

    vars(response).update(close=closing, aclose=async_closing)


_DATA: Final = b"data:"
_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")


def _is_usage(event: bytes) -> bool:
    """Whether an event has the usage of a stream and nothing else."""
    return is_usage_alone(event.partition(_DATA)[2])


_READER: Final = "_iterator"


def ending_when_dropped(init: Method) -> Method:
    """Wrap the initializer of streams, which read through a generator that holds its stream.

    Let it hold a copy instead: then a stream that the app drops is gone at once, and with it the generator, which
    closes the response. Else both wait for Python's garbage collector, and the rollout may end before.
    """

    def initialize(stream: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 # as openai
        init(stream, *args, **kwargs)
        try:
            if _READER in vars(stream):
                reading = copy.copy(stream)
                vars(reading)[_READER] = None
                vars(stream)[_READER] = getattr(reading, READ)()
        except Exception as fault:  # noqa: BLE001 # the stream of the app is as it was
            handle_internal_errors.note(fault)

    return initialize
