"""Upstreams: the model servers behind the gateway, and an HTTP client for them.

Invariant: a rollout stays on one server, whose cache has the prefixes of its prompts, as long as that server can be
reached. A new rollout goes to the server with the fewest open requests; of several such to the one with the fewest
rollouts. So does each request that names no rollout, and each of a traced app, of which only the trace is known. A
server may take as long to answer as the agent waits; only connecting has a timeout.
"""

import asyncio
import logging
import ssl
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final, cast
from urllib.parse import unquote, urlsplit

import httptools

from art_otel.errors import UsageError
from art_otel.http import RawHeaders
from art_otel.spans import Value

CONNECT_SECONDS: Final = 10.0
_KEEP_ALIVE_SECONDS: Final = 4.0
"""An idle connection is used for less than 5 s: then uvicorn closes it, and so do vLLM and SGLang."""

_MAX_UNREAD: Final = 1 << 20
"""If so many bytes of an answer wait for a slow agent, the gateway stops reading from the server."""

_MAX_HEADERS: Final = 1 << 20
_CONTINUE: Final = 200
"""Statuses below 200, such as 100 Continue, announce that the answer itself comes later."""

_WITHOUT_BODY: Final = (204, 304)


class UpstreamError(Exception):
    """A server gave no whole answer. The text of the error says why."""


class UnreachableError(UpstreamError):
    """No connection to the server could be made."""


class BrokenOffError(UpstreamError):
    """The connection ended before the answer did, or the bytes that came are no HTTP."""


class _SecondAnswerError(Exception):
    """A server answered one request twice."""


class _TooManyHeadersError(Exception):
    """The headers of an answer are longer than any real ones."""


class Answer(AsyncIterator[bytes]):
    """The answer of a server, whose status and headers have come. Read its body once, by `pieces`, and then `close` it.

    `raw_headers` are as the server wrote them. In `headers` the names are lower case, and the last of several counts.
    """

    def __init__(
        self, connection: "_Connection", status: int, raw_headers: RawHeaders, headers: Mapping[bytes, bytes]
    ) -> None:
        self._connection: _Connection | None = connection
        self.status: Final = status
        self.raw_headers: Final = raw_headers
        self.headers: Final = headers

    def pieces(self) -> AsyncIterator[bytes]:
        """Iterate over the body as the server sends it. Raises BrokenOffError."""
        return self  # not a generator, which would cost more than the reading itself

    async def __anext__(self) -> bytes:
        piece = None if self._connection is None else await self._connection.read()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def failed(self, _: UpstreamError) -> bytes:
        """The bytes that tell the agent that the body broke off: none, the agent's connection is broken off, too."""
        return b""

    def close(self) -> None:
        """Stop reading the body. If it has not ended, the connection is closed, so that the server stops sampling.

        A second call does nothing: by then the connection may serve another agent.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()


class Connections:
    """Keep-alive connections to the server at a URL, for use in one event loop."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._is_tls = parts.scheme == "https"
        self._context: ssl.SSLContext | None = None
        self._port = parts.port or (443 if self._is_tls else 80)
        self._path = parts.path.rstrip("/").encode()
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        host = parts.netloc.rpartition("@")[2].encode()
        self._own_headers = b"host: %b\r\n" % host
        self._replaced: frozenset[bytes] = frozenset({b"host", b"content-length"})
        if parts.username is not None:
            named = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._own_headers += b"authorization: Basic %b\r\n" % b64encode(named.encode())
            self._replaced |= {b"authorization"}

    async def ask(self, method: str, target: str, headers: RawHeaders, body: bytes) -> Answer:
        """Send a request, and return the answer once its headers are there. Raises UpstreamError."""
        lines = [b"%b %b%b HTTP/1.1\r\n" % (method.encode(), self._path, target.encode()), self._own_headers]
        lines += [b"%b: %b\r\n" % header for header in headers if header[0].lower() not in self._replaced]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(b"content-length: %d\r\n" % len(body))
        request, has_body = b"".join((*lines, b"\r\n", body)), method != "HEAD"
        if (idle := self._take()) is not None:
            try:
                return await idle.ask(request, has_body=has_body)
            except BrokenOffError:
                # A connection that the server closed while it was idle. llama.cpp does so after a stream, although it
                # says keep-alive. Nothing was answered, so the request may go out again on a new connection.
                if not idle.is_unanswered:
                    raise
        return await (await self._connect()).ask(request, has_body=has_body)

    async def post(self, target: str, headers: RawHeaders, body: bytes, *, seconds: float) -> int:
        """Send a body, and return the status of the answer. Raises UpstreamError, and TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds):
            answer = await self.ask("POST", target, headers, body)
            try:
                async for _ in answer.pieces():
                    pass
            finally:
                answer.close()
            return answer.status

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._open):
            connection.abort()

    def _take(self) -> "_Connection | None":
        """An idle connection that is too young for the server to close it just now; None where there is none."""
        now = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.idle_since < _KEEP_ALIVE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> "_Connection":
        if self._is_tls and self._context is None:
            self._context = ssl.create_default_context()  # made only when needed: it takes some 20 ms
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._idle, self._open), self._host, self._port, ssl=self._context
                )
        except TimeoutError:
            raise UnreachableError(f"no connection within {CONNECT_SECONDS:.0f} s") from None
        except (OSError, ValueError) as error:  # ValueError: a host that is no name
            raise UnreachableError(str(error) or type(error).__name__) from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection to a server.

    It is in the list `idle` between requests, and in the set `connections` as long as it is open. `is_unanswered` says
    that no byte has come since its last request.
    """

    def __init__(self, idle: list["_Connection"], connections: set["_Connection"]) -> None:
        self.idle_since = 0.0
        self._idle = idle
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._error: BrokenOffError | None = None
        self._has_body = True
        self._reset()

    def _reset(self) -> None:
        self._is_asked = False
        self.is_unanswered = True
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._status: int | None = None
        self._ends_with_connection = False
        self._is_kept = False
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._is_paused = False
        self._is_whole = False

    @property
    def is_open(self) -> bool:
        """Whether a request may be written to the connection."""
        return self._transport is not None and not self._transport.is_closing() and self._error is None

    async def ask(self, request: bytes, *, has_body: bool) -> Answer:
        """Write a request, and wait for the headers of its answer. Raises BrokenOffError."""
        self._is_asked = True
        self._has_body = has_body
        assert self._transport is not None  # noqa: S101 # it was connected before it was given
        self._transport.write(request)
        try:
            while self._status is None:
                await self._news()
        except BaseException:  # also CancelledError, when the agent hangs up: the answer will not be read
            self.abort()
            raise
        return Answer(self, self._status, self._raw_headers, self._headers)

    async def read(self) -> bytes | None:
        """Wait for more of the body, and return all that has come; None at its end. Raises BrokenOffError."""
        while not self._unread and not self._is_whole:
            await self._news()
        if not self._unread:
            return None
        piece = self._unread[0] if len(self._unread) == 1 else b"".join(self._unread)
        self._unread, self._unread_bytes = [], 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    def leave(self) -> None:
        """End the use of the connection: it becomes idle if its answer has ended, else it is closed."""
        if not (self._is_whole and self._is_kept and self.is_open) or self._is_paused:
            self.abort()
        elif self not in self._idle:
            self._reset()
            self.idle_since = time.monotonic()
            self._idle.append(self)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _news(self) -> "asyncio.Future[None]":
        """A future that is done as soon as anything comes. Raises BrokenOffError if nothing will come any more."""
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is made (called by asyncio)."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has other base classes
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes that came. Bytes without a request would be taken for the next answer: then close."""
        if not self._is_asked:
            self.abort()
            return
        self.is_unanswered = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break_off(f"this is not an HTTP response: {error or type(error).__name__}")
            self.abort()
        self._tell()

    def on_message_begin(self) -> None:
        """An answer begins (called by the parser). A second answer to one request makes the connection useless."""
        if self._status is not None:
            self._is_kept = False
            raise _SecondAnswerError

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended. A body without a length (HTTP/1.0) is whole by that."""
        self._connections.discard(self)
        if self in self._idle:
            self._idle.remove(self)
        if self._ends_with_connection and exc is None:
            self._is_whole = True
        self._break_off("the server closed the connection" if exc is None else str(exc) or type(exc).__name__)
        self._tell()

    def _break_off(self, why: str) -> None:
        if self._error is None:
            self._error = BrokenOffError(why)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Trailers, which come after the body, are dropped: no agent uses them."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MAX_HEADERS:
            raise _TooManyHeadersError
        if self._status is None:
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The headers are complete. After an interim answer (100 Continue) the real one follows."""
        status = self._parser.get_status_code()
        if status < _CONTINUE:
            self._raw_headers = []
            return
        self._headers = headers = {name.lower(): value for name, value in self._raw_headers}
        is_framed = b"content-length" in headers or headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked")
        self._ends_with_connection = not is_framed and self._has_body and status not in _WITHOUT_BODY
        self._is_kept = self._has_body and self._parser.should_keep_alive()  # to HEAD the parser waits for a body
        self._status = status
        self._is_whole = not self._has_body

    def on_body(self, body: bytes) -> None:
        """A piece of the body came."""
        if not self._has_body:
            return
        self._unread.append(body)
        self._unread_bytes += len(body)
        if self._unread_bytes > _MAX_UNREAD and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The body is whole."""
        if self._status is not None and not self._ends_with_connection:
            self._is_whole = True


logger = logging.getLogger(__name__)

_AVOIDED_SECONDS: Final = 5.0
"""For so many seconds a server that could not be reached gets no rollouts, if there are other servers."""

_MAX_ROLLOUTS: Final = 100_000


class FailedError(BrokenOffError):
    """The server itself reported an error in the middle of an answer. `said` has the fields of that error."""

    def __init__(self, said: Mapping[str, Value]) -> None:
        super().__init__(str(said.get("message") or said))
        self.said = said


class Upstream:
    """One model server.

    `open` counts the requests in progress, `rollouts` the rollouts that were assigned to the server. `is_out` says that
    the server could not be reached the last time. `shown` is its URL for logs, without user and password.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise UsageError(f"{url!r} is not the address of a model server: write http://HOST:PORT")
        self.url = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()
        try:
            self.connections = Connections(self.url)
        except ValueError as error:
            raise UsageError(f"{url!r} is not the address of a model server: {error}") from None
        self.open = 0
        self.rollouts = 0
        self.failed_at = -_AVOIDED_SECONDS
        self.is_out = False
        scheme, _, rest = self.url.partition("://")
        self.shown = f"{scheme}://{rest.rpartition('@')[2]}"


class Upstreams:
    """All model servers of a gateway. Raises UsageError for an invalid URL, or for no URL at all."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise UsageError("--upstream is missing: give the model server's URL, such as http://HOST:PORT")
        self._all = [Upstream(url) for url in urls]
        self._of_rollout: OrderedDict[str, Upstream] = OrderedDict()

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._all)

    def choose(self, rollout_id: str | None) -> Upstream:
        """The server for a request: that of its rollout, else the least busy one (see the module)."""
        if len(self._all) == 1:
            return self._all[0]
        stays = None if rollout_id is None else self._of_rollout.get(rollout_id)
        since = time.monotonic() - _AVOIDED_SECONDS
        if stays is not None and stays.failed_at < since:
            return stays
        chosen = min(self._all, key=lambda upstream: (upstream.failed_at >= since, upstream.open, upstream.rollouts))
        if rollout_id is not None:
            chosen.rollouts += 1
            self._of_rollout[rollout_id] = chosen
            self._of_rollout.move_to_end(rollout_id)
            if len(self._of_rollout) > _MAX_ROLLOUTS:
                self._of_rollout.popitem(last=False)
        return chosen

    async def send(self, upstream: Upstream, method: str, target: str, headers: RawHeaders, body: bytes) -> Answer:
        """Send a request. Raises UpstreamError where the server cannot be reached or breaks the connection."""
        try:
            answer = await upstream.connections.ask(method, target, headers, body)
        except UnreachableError as error:
            self._miss(upstream, error)
            raise
        if upstream.is_out:
            upstream.is_out = False
            logger.warning("art-otel: the model server at %s answers again", upstream.shown)
        return answer

    def _miss(self, upstream: Upstream, error: UnreachableError) -> None:
        """Note that a server cannot be reached. The log says so once for each outage."""
        upstream.failed_at = time.monotonic()
        if not upstream.is_out:
            upstream.is_out = True
            logger.warning(
                "art-otel: the model server at %s cannot be reached, so agents get status 502: %s. Start it, or give "
                "another --upstream",
                upstream.shown,
                error,
            )

    def close(self) -> None:
        """Close all connections to all servers."""
        for upstream in self._all:
            upstream.connections.close()
