"""Stream: the body of one response, read on its way to the app.

    httpx's iter_bytes ─► ResponseTee ─► the app
                              └─► a copy of every piece ─► Exchange: the answer as far as it came

Invariant: the app gets the same bytes from the same methods, and every exception unchanged. The tee reads only when the
app reads, so at any moment it knows exactly what the app was given. Kept from the app are only events that are there
because art-otel asked for something that the app did not, such as the usage. A fault of ours ends our copy, never the
app's stream. A stream that breaks keeps everything that came before.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, cast

from art_otel.exchange.exchange import EventSplitter, Exchange, data_of, split
from art_otel.exchange.failures import CallFailure
from art_otel.exchange.token_requests import NO_ADDITIONS, NO_CHOICES, RequestAdditions
from art_otel.tracing.internal_errors import InternalErrorHandler, handle_internal_errors
from art_otel.tracing.openai.client import RAW_HEADER, READ, Method, Response

_READING: Final = InternalErrorHandler("a stream could not be read; its call misses the rest of it")
_TELLING_CLOSED: Final = InternalErrorHandler("a call did not notice that its response was closed")
_AT_ONCE: Final = 256
"""So many pieces pass before they are parsed: parsing many at once costs less than one at a time."""


class ResponseTee:
    """A copy of the body of `response`, taken while the app reads it: the answer of `exchange`, which has begun.

    Its generators replace `iter_bytes` and `aiter_bytes` of this one response: every way to read a body in httpx goes
    through one of the two. Events that are there only because of the `additions` are not given to the app. `is_raw` is
    True where the app asked for the response object (`with_raw_response`), before its body is read.
    """

    def __init__(self, response: Response, exchange: Exchange, additions: RequestAdditions = NO_ADDITIONS) -> None:
        self._response = response
        self._exchange = exchange
        is_stream = exchange.is_stream
        raw = response.request.headers.get(RAW_HEADER)
        self.is_raw = raw is not None
        self._splits = is_stream and raw != "stream"
        self._additions = additions
        self._may_hide = is_stream and additions.adds_events
        self._splitter = EventSplitter()
        """Has the beginning of an event whose end is to come: only a whole event shows whether it must be hidden."""
        self._has_begun = False
        """Whether the app has begun to read the body."""
        self._passed: list[bytes] = []
        """Pieces that the app has and the exchange has not."""
        self._is_read = False
        """Whether the body came to its end, or to an error that an app can catch as Exception."""
        self._is_awaited = False
        """Whether the next piece is being waited for: then an exception is the server's, else it is the app's."""
        self._is_blind = False
        """Whether a fault of ours has ended the parsing."""
        self._after: list[Callable[[], None]] = []
        """What `when_over` deferred until it is known whether the body broke."""
        iter_bytes, aiter_bytes = response.iter_bytes, response.aiter_bytes
        vars(response).update(
            iter_bytes=partial(self._begin, iter_bytes, self._pass_on),
            aiter_bytes=partial(self._begin, aiter_bytes, self._async_pass_on),
        )

    @property
    def was_left(self) -> bool:
        """Whether the body is a stream that was closed before its end without an error, or by one like CancelledError.

        An instrumentor that catches only Exception does not notice that such a stream is over.
        """
        if self._exchange.streamed is None or not self._response.is_closed or self._is_read:
            return False
        self.copy()
        return not (self._exchange.streamed.is_done or self._exchange.streamed.failure)

    @property
    def is_closed_by_app(self) -> bool:
        """Whether the app stopped reading a stream before its end; ask it when the span of the call ends.

        The app closed the stream, or dropped its last reference. In the second case the response may still be open, so
        a stream whose reading has begun and whose span ends counts as closed, too.
        """
        # While a piece is awaited, the stream may be breaking right now, and its exception has not arrived here yet.
        if self._exchange.streamed is None or self._is_read or self._is_awaited:
            return False
        self.copy()
        if self._exchange.streamed.is_done or self._exchange.streamed.failure or self._exchange.failure:
            return False
        return self._response.is_closed or self._has_begun

    @property
    def is_to_come(self) -> bool:
        """Whether the body can still be read and the app has not begun to read it."""
        return not self._has_begun and not self._response.is_closed

    @property
    def is_over(self) -> bool:
        """Whether the app has all of the body that it will get."""
        if self._response.is_closed or self._exchange.failure is not None:
            return True
        self.copy()
        return self._exchange.streamed is not None and self._exchange.streamed.failure is not None

    def copy(self) -> None:
        """Give the exchange the pieces that the app got since the last time; a fault of ours ends the copy."""
        if not self._passed:
            return
        passed = self._passed.copy()
        self._passed.clear()  # and not a new list: the generator adds to this one
        if not self._is_blind:
            self._is_blind = True
            try:
                self._exchange.read(passed)
                self._is_blind = False
            except Exception as fault:  # noqa: BLE001 # the app reads on
                _READING.note(fault)

    def when_over(self, act: Callable[[], None]) -> None:
        """Call `act` once the body is closed; if the body breaks, once the exception is known.

        httpx closes the response before the exception reaches our generator. Without the delay the call would be
        recorded as one that the app left.
        """
        response = self._response
        close, aclose = response.close, response.aclose

        def tell() -> None:
            if self._is_awaited:
                self._after.append(act)
                return
            try:
                act()
            except Exception as fault:  # noqa: BLE001 # the app's own `close` must not raise for us
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

    def _begin(self, read: Callable[..., Any], pass_on: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as httpx has them
        """Stand in for httpx's generator: the first reader is copied, a later one gets httpx's own generator."""
        chunks = read(*args, **kwargs)
        if self._has_begun:
            return chunks
        self._has_begun = True
        _give_back(self._response, _READERS)
        return pass_on(chunks)

    def _pass_on(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        splits, may_hide, passed, splitter = self._splits, self._may_hide, self._passed, self._splitter
        self._is_awaited = True
        try:
            for chunk in chunks:
                is_event = splits and chunk.find(b"\n\n") == len(chunk) - 2 >= 0 and not (splitter.begun or self._after)
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
        splits, may_hide, passed, splitter = self._splits, self._may_hide, self._passed, self._splitter
        self._is_awaited = True
        try:
            async for chunk in chunks:
                is_event = splits and chunk.find(b"\n\n") == len(chunk) - 2 >= 0 and not (splitter.begun or self._after)
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
        """Split a chunk into events, and give them one by one, so that `_passed` holds exactly what the app took.

        A chunk of two events after which the app stops at the first one would else be recorded as both.
        """
        self._is_awaited = False
        if self._after:
            self._go_on()
        if len(self._passed) >= _AT_ONCE:
            self.copy()
        if self._may_hide:
            for event in self._splitter.take(chunk):
                self._passed.append(event.text)
                if not self._additions.is_added(event.data):
                    yield event.text
        else:
            for piece in split(chunk) if self._splits else [chunk]:
                self._passed.append(piece)
                yield piece
        self._is_awaited = True

    def _break_off(self, error: BaseException) -> None:
        """Note what broke the body, if it happened while the next piece was awaited.

        An exception at a `yield` is the app's: it closed or dropped the stream, which is no failure of the server.
        """
        if self._is_awaited:
            self._is_read = isinstance(error, Exception)
            self._exchange.failure = CallFailure(type(error).__name__)
            self._splitter.begun = b""
            self._go_on()

    def _end(self) -> bytes:
        """Note that the body came to its end, and return the held rest for the app; b"" where it is hidden usage."""
        self._is_read = True
        rest, self._splitter.begun = self._splitter.begun, b""
        if rest:
            self._passed.append(rest)
        self._go_on()
        return b"" if rest and self._additions.is_added(data_of(rest)) else rest

    def _go_on(self) -> None:
        """Note that no piece is awaited any more, and call what `when_over` has deferred."""
        self._is_awaited = False
        while self._after:
            with _READING:
                self._after.pop()()


_READERS: Final = ("iter_bytes", "aiter_bytes")
_CLOSERS: Final = ("close", "aclose")


def _give_back(response: Response, methods: Iterable[str]) -> None:
    """Remove our methods from a response, so that its class's own are in effect again.

    Ours refer to the response and the response refers to them. Such a cycle is freed only by Python's garbage
    collector, some hundred calls later, and holds the connection and the whole body until then.
    """
    for name in methods:
        vars(response).pop(name, None)


_READER: Final = "_iterator"


def ending_when_dropped(init: Method) -> Method:
    """Wrap `__init__` of openai's streams, so that a stream which the app drops is closed at once.

        before:  stream ─► generator ─► stream    a cycle: freed by the garbage collector, maybe after the rollout ended
        after:   stream ─► generator ─► a copy    no cycle: freed with the last reference, which closes the response

    openai's streams read the body by a generator that refers to its stream.
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
