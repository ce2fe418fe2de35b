"""Stream: the body of one response, read on its way to the app.

Invariant: the app gets the same bytes from the same methods, and every exception unchanged; nothing is read that the
app does not read, and what was read at any moment is what the app was given. Only events that are there because of
what we asked for, and the app did not, are kept from the app. A fault of ours ends our reading, not the stream. Of a
stream that never came to its end, everything is kept as far as it had come.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, cast

import msgspec

from art_otel.exchange.exchange import CallFailure, Exchange, StreamedAnswer, split
from art_otel.exchange.token_requests import NO_ADDITIONS, NO_CHOICES, RequestAdditions
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

    Its generators, sync or async, stand in the place of those of httpx, through which every reader of a response gets
    its body, and keep what they hand on. Events that are there only because of the `additions` are kept from the app.
    `is_raw` says that the app asked for the response itself, which it has before the body.
    """

    def __init__(self, response: Response, exchange: Exchange, additions: RequestAdditions = NO_ADDITIONS) -> None:
        self._response = response
        exchange.begin(response.status_code, str(response.headers.get("content-type", "")).encode())
        self._events = exchange.streamed
        is_stream = exchange.is_stream
        raw = response.request.headers.get(RAW_HEADER)
        self.is_raw = raw is not None
        self._splits = is_stream and raw != "stream"
        self._additions = additions
        self._may_hide = is_stream and additions.adds_events
        self._held = b""
        """The beginning of an event, which is handed on with its end where it may have to be hidden."""
        self._has_begun = False
        """Whether somebody reads."""
        self._passed: list[bytes] = []
        """What was handed on and not read yet; of a body that is no stream, all."""
        self._broke: str | None = None
        self._is_read = False
        self._is_awaited = False
        self._is_blind = False
        self._after: list[Callable[[], None]] = []
        iter_bytes, aiter_bytes = response.iter_bytes, response.aiter_bytes
        vars(response).update(
            iter_bytes=partial(self._begin, iter_bytes, self._pass_on),
            aiter_bytes=partial(self._begin, aiter_bytes, self._async_pass_on),
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
        return self._response.is_closed or self._has_begun

    @property
    def is_cut(self) -> bool:
        """Whether the body is a stream of which the end is not joined any more."""
        return self._events is not None and self._events.is_cut

    @property
    def is_to_come(self) -> bool:
        """Whether nobody has begun to read a body that can still be read."""
        return not self._has_begun and not self._response.is_closed

    @property
    def is_over(self) -> bool:
        """Whether the app has all of the body that it will get."""
        return self._response.is_closed or self.failure is not None

    def joined(self) -> dict[str, Value] | None:
        """The body that the events of a stream make, as far as they have passed; None of a body that is no stream.

        None too while nobody has read and somebody still may. What was left before an answer came has an empty one.
        """
        if self._events is None or (not self._has_begun and not self.was_left):
            return None
        body = self._read(self._events).body()
        if not self.was_left:
            return body
        return {name: value or _BEGUN.get(name, value) for name, value in body.items()}

    def json(self) -> bytes | None:
        """That body as JSON."""
        if self._events is None or (not self._has_begun and not self.was_left):
            return None
        return msgspec.json.encode(self.joined()) if self.was_left else self._read(self._events).json()

    @property
    def response_id(self) -> str | None:
        """The id that the events of a stream give the answer."""
        return None if self._events is None else self._read(self._events).response_id

    def content(self) -> bytes:
        """The bytes of a body that is no stream, as far as they have passed."""
        if self._has_begun:
            return b"".join(self._passed)
        # An app that looks at the headers alone closes a response that nobody read.
        return getattr(self._response, "_content", b"") if self._response.is_closed else b""

    def when_over(self, act: Callable[[], None]) -> None:
        """Do something once the body is closed; where it breaks, once that is known."""

        def closed() -> None:
            if self._is_awaited:
                self._after.append(act)
            else:
                act()

        when_closed(self._response, closed)

    def _begin(self, read: Callable[..., Any], pass_on: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as httpx has them
        """Begin to read the body, in the place of httpx's generator, unless that was done before."""
        chunks = read(*args, **kwargs)
        if self._has_begun:
            return chunks
        self._has_begun = True
        _give_back(self._response, _READERS)
        return pass_on(chunks)

    def _pass_on(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        splits, may_hide, passed = self._splits, self._may_hide, self._passed
        self._is_awaited = True
        try:
            for chunk in chunks:
                is_event = splits and chunk.find(b"\n\n") + 2 == len(chunk) and not (self._held or self._after)
                if is_event and not (may_hide and NO_CHOICES.search(chunk)) and len(passed) < _AT_ONCE:
                    passed.append(chunk)
                    self._is_awaited = False
                    yield chunk  # here and not in a method: this runs for every piece of an answer
                    self._is_awaited = True
                else:
                    yield from self._pieces(chunk)
        except BaseException as error:
            self._break_off(error)
            raise
        if rest := self._end():
            yield rest

    async def _async_pass_on(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        splits, may_hide, passed = self._splits, self._may_hide, self._passed
        self._is_awaited = True
        try:
            async for chunk in chunks:
                is_event = splits and chunk.find(b"\n\n") + 2 == len(chunk) and not (self._held or self._after)
                if is_event and not (may_hide and NO_CHOICES.search(chunk)) and len(passed) < _AT_ONCE:
                    passed.append(chunk)
                    self._is_awaited = False
                    yield chunk  # here and not in a method: this runs for every piece of an answer
                    self._is_awaited = True
                else:
                    for piece in self._pieces(chunk):
                        yield piece
        except BaseException as error:
            self._break_off(error)
            raise
        if rest := self._end():
            yield rest

    def _pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Cut what came into the events in which the app gets it, and keep each as it is given."""
        self._is_awaited = False
        if self._after:
            self._go_on()
        if len(self._passed) >= _AT_ONCE and self._events is not None:
            self._read(self._events)
        may_hide = self._may_hide and NO_CHOICES.search(self._held + chunk) is not None
        for piece in self._cut(chunk):
            self._passed.append(piece)
            if not (may_hide and self._is_added(piece)):
                yield piece
        self._is_awaited = True

    def _cut(self, chunk: bytes) -> list[bytes]:
        pieces = split(self._held + chunk) if self._splits or self._may_hide else [chunk]
        if self._may_hide:
            self._held = pieces.pop() if pieces and not pieces[-1].endswith(_ENDS) else b""
        return pieces

    def _break_off(self, error: BaseException) -> None:
        """Note that the body broke, if nothing of it was in the app's hands: else the app closed or dropped it."""
        if self._is_awaited:
            self._is_read = isinstance(error, Exception)
            self._broke = type(error).__name__
            self._held = b""
            self._go_on()

    def _end(self) -> bytes:
        """Note that the body ended as it should, and give what was held back."""
        self._is_read = True
        rest, self._held = self._held, b""
        if rest:
            self._passed.append(rest)
        self._go_on()
        return b"" if self._is_added(rest) else rest

    def _is_added(self, event: bytes) -> bool:
        return self._may_hide and self._additions.is_added(event.partition(_DATA)[2])

    def _go_on(self) -> None:
        """Note that nothing is awaited any more, and do what waited for that."""
        self._is_awaited = False
        while self._after:
            with _READING:
                self._after.pop()()

    def _read(self, events: StreamedAnswer) -> StreamedAnswer:
        """Give the events with all that was handed on; a fault of ours ends the reading."""
        passed = b"".join(self._passed)
        self._passed.clear()
        if passed and not self._is_blind:
            self._is_blind = True
            try:
                events.read(passed)
                self._is_blind = False
            except Exception as fault:  # noqa: BLE001 # the app reads on
                _READING.note(fault)
        return events


def when_closed(response: Response, act: Callable[[], None]) -> None:
    """Do something once a response has been closed, by whoever reads it or at its end."""
    close, aclose = response.close, response.aclose

    def tell() -> None:
        try:
            act()
        except Exception as fault:  # noqa: BLE001 # the app has closed its response
            _TELLING_CLOSED.note(fault)

    def closing() -> None:
        _give_back(response, (*_CLOSERS, *_READERS))
        try:
            close()
        finally:
            tell()

    async def async_closing() -> None:
        _give_back(response, (*_CLOSERS, *_READERS))
        try:
            await aclose()
        finally:
            tell()

    vars(response).update(close=closing, aclose=async_closing)


_READERS: Final = ("iter_bytes", "aiter_bytes")
_CLOSERS: Final = ("close", "aclose")


def _give_back(response: Response, methods: Iterable[str]) -> None:
    """Let a response have its own methods again.

    Ours hold the response, and it holds them: with its connection and all that it read, it would be garbage that only
    Python's collector finds, some hundred calls later.
    """
    for name in methods:
        vars(response).pop(name, None)


_DATA: Final = b"data:"
_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")


_READER: Final = "_iterator"


def ending_when_dropped(init: Method) -> Method:
    """Wrap the initializer of streams, which read through a generator that holds its stream.

    Let it hold a copy instead: then a stream that the app drops is gone at once, and with it the generator, which
    closes the response. Else both wait for Python's garbage collector, and the rollout may end before.
    """

    def initialize(stream: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 # as openai
        init(stream, *args, **kwargs)
        try:
            own = cast(dict[str, Any], vars(stream))
            if _READER in own:
                reading = object.__new__(cast(type[object], stream.__class__))  # a tenth of what `copy.copy` costs
                vars(reading).update({**own, _READER: None})
                own[_READER] = getattr(reading, READ)()
        except Exception as fault:  # noqa: BLE001 # the stream of the app is as it was
            handle_internal_errors.note(fault)

    return initialize
