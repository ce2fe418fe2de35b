"""HttpServer: serves an ASGI application by uvicorn, inside an event loop that belongs to the caller.

Invariant: after `start` the server listens; after `stop` every request that had come was answered. Once a request has
begun, its headers must arrive within `HEADER_SECONDS`, else the connection gets 408 and is closed; between two requests
uvicorn's own timer counts. Bodies are bounded (`Bodies`). A server for programs refuses web pages (`WebPageCheck`);
the guards of a server for pages are in `guards`.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias, cast

import uvicorn
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from art_otel.errors import UsageError

_STATUS_LINE: Final = b"HTTP/1.1 "
_END_OF_HEAD: Final = b"\r\n\r\n"
_CLOSE: Final = (b"connection", b"close")
_MAX_PORT = 65535
HEADER_SECONDS: Final = 10.0

CONNECTION: Final = "art_otel.connection"
"""The ASGI extension whose `answering` is the request's Answering."""

_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_MAX_HEADER_BYTES: Final = 64 << 10
_MAX_CONNECTIONS: Final = 4096
_BACKLOG: Final = 1024
_KEEP_ALIVE_SECONDS: Final = 75
_STOP_SECONDS: Final = 5
_END_SECONDS: Final = 1.0


class Address(NamedTuple):
    """A host and a port; port 0 lets the system choose one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `HOST:PORT`, as `127.0.0.1:4318` or `[::1]:4318`. Raises UsageError for anything else."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > _MAX_PORT:
            raise UsageError(f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:4318")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """The certificate chain and the private key, as PEM files."""

    certificate: Path
    key: Path


class HttpServer:
    """Serves `app` at `address`, over TLS where its files are given. `url` is the address after `start`.

    `listening`: sockets that other processes listen on, too, in the place of an own one; empty for a server that gets
    its connections only by `adopt_soon`.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: Address,
        tls: Tls | None = None,
        listening: Sequence[socket.socket] | None = None,
    ) -> None:
        self.address = address
        self._sockets = listening
        self._task: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                interface="asgi3",  # uvicorn recognizes ASGI 3 only in coroutine functions
                http=TimedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_STOP_SECONDS,
                ssl_certfile=None if tls is None else str(tls.certificate),
                ssl_keyfile=None if tls is None else str(tls.key),
            )
        )
        self.url = ""

    async def start(self) -> None:
        """Start listening. Raises UsageError where the address cannot be used, or a certificate cannot be read."""
        if self._sockets is None:
            self._sockets = [listen_at(self.address)]
        try:
            self._server.config.load()
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot serve at {self.address}: {error}") from error
        port = self._sockets[0].getsockname()[1] if self._sockets else self.address.port
        self.url = f"{'https' if self._server.config.is_ssl else 'http'}://{self.address._replace(port=port)}"
        self._task = asyncio.create_task(self._server._serve([*self._sockets]))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # serve() takes the process's signals
        # uvicorn sets a flag when it listens, and has no event to wait for.
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        if self._task.done():
            await self._task
        self._started.set()

    async def stop(self) -> None:
        """Answer the requests that have come, and stop listening."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        for each in self._sockets or ():
            each.close()

    def adopt_soon(self, connection: socket.socket, received: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Serve a connection that another process accepted; `received` is what that process has read of it.

        `loop` is the loop of this server. A connection that comes before the server has started waits for that. Any
        thread may call this.
        """

        def protocol() -> TimedProtocol:
            made = TimedProtocol(self._server.config, self._server.server_state, {}, loop)
            made.received = received
            return made

        async def adopt() -> None:
            await self._started.wait()
            await loop.connect_accepted_socket(protocol, connection)

        asyncio.run_coroutine_threadsafe(adopt(), loop)


RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]


class TimedProtocol(HttpToolsProtocol):
    """A connection of uvicorn, with a timer and a size limit for the headers of a request."""

    _timer: asyncio.TimerHandle | None = None
    _begun_bytes: int | None = None
    """The bytes so far of a request whose headers are not complete; None between requests and in bodies."""

    is_left = False
    """Whether the connection is closed, by the other side or by `end`."""

    received = b""
    """The bytes that another process read of the connection before it was handed over."""

    _when_left: Callable[[], object] | None = None

    def when_left(self, act: Callable[[], object] | None) -> None:
        """Call `act` once the connection is closed; at once if it is. None takes back an earlier `act`."""
        self._when_left = act
        if act is not None and self.is_left:
            act()

    async def end(self) -> None:
        """Close the connection in the middle of an answer, without a message in the log.

        Bytes that were written before are still sent, if the other side reads them within a second.
        """
        closed = self.loop.create_future()
        self.when_left(partial(closed.set_result, None))
        self.transport.close()
        await asyncio.wait((closed,), timeout=_END_SECONDS)
        self.transport.abort()
        await closed

    async def detach(self, scope: Scope) -> socket.socket:
        """Take the open socket of a request's connection away from this server, and return it."""
        scope["extensions"][CONNECTION]["answering"].cycle.disconnected = True  # so that uvicorn writes no answer
        self.transport.pause_reading()
        # A copy of the descriptor stays open when asyncio closes its own.
        kept = socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))
        closed = self.loop.create_future()
        self.when_left(partial(closed.set_result, None))
        self.transport.abort()
        await closed
        return kept

    @property
    def has_more(self) -> bool:
        """Whether bytes were read behind the request that is being answered: the client has sent another one."""
        return bool(self.pipeline) or self._begun_bytes is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        """Start the timer for the first request, and read the bytes that another process has read."""
        super().connection_made(cast(asyncio.Transport, _HeadWithBody(transport, self.loop)))
        self._wait()
        if self.received:
            self.data_received(self.received)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes. The timer runs while no request is being answered; too many header bytes are refused."""
        super().data_received(data)
        if self.cycle and not self.cycle.response_complete:
            self._stop()
        else:
            self._wait()
        if self._begun_bytes is not None:
            self._begun_bytes += len(data)
            if self._begun_bytes > _MAX_HEADER_BYTES:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Begin to count the bytes of the headers."""
        super().on_message_begin()
        self._begun_bytes = 0

    def on_headers_complete(self) -> None:
        """Stop counting, and put the connection into the request's scope."""
        self._begun_bytes = None
        super().on_headers_complete()
        self.scope["extensions"] = {CONNECTION: {"answering": Answering(self, self.cycle)}}

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and call the `act` of `when_left`."""
        self._stop()
        super().connection_lost(exc)
        self.is_left = True
        if self._when_left is not None:
            self._when_left()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._refuse, _TOO_SLOW)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


class Answering:
    """Writes the answer to one request without ASGI's messages: so a piece of a stream costs a third of the time.

    `connection` is the request's connection, `cycle` uvicorn's state of the request.
    """

    __slots__ = ("connection", "cycle")

    def __init__(self, connection: TimedProtocol, cycle: RequestResponseCycle) -> None:
        self.connection = connection
        self.cycle = cycle

    def body_if_whole(self) -> bytes | None:
        """The body of the request, if all of it has come, as in most cases; else None: use `receive` to wait for it."""
        cycle = self.cycle
        if cycle.more_body or cycle.disconnected:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        # uvicorn stops reading after 64 KB until they are taken, and would not notice that the client hangs up.
        cycle.flow.resume_reading()
        return body

    async def begin(self, status: int, headers: RawHeaders) -> None:
        """Write the head of an answer; its body follows by `send` and `end`."""
        await self.cycle.send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, piece: bytes) -> None:
        """Write a piece of the body; waits if the client is slow to read the earlier ones."""
        cycle = self.cycle
        if not cycle.chunked_encoding or cycle.flow.write_paused:
            await cycle.send({"type": "http.response.body", "body": piece, "more_body": True})
        elif piece and not cycle.disconnected:
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def end(self, piece: bytes = b"") -> None:
        """Write the last piece of the body."""
        await self.cycle.send({"type": "http.response.body", "body": piece, "more_body": False})

    async def send_whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Write a whole answer at once. Its `headers` must not have a content-length, which is added."""
        cycle = self.cycle
        if cycle.disconnected:
            return
        lines = [b"%b: %b\r\n" % header for header in (*cycle.default_headers, *headers)]
        is_last = not cycle.keep_alive or _CLOSE in cycle.scope["headers"]  # older releases of uvicorn look there
        if is_last:
            lines.append(b"connection: close\r\n")
        length = b"content-length: %d" % len(body)
        cycle.transport.write(b"".join((STATUS_LINE[status], *lines, length, _END_OF_HEAD, body)))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if is_last:
            cycle.transport.close()
        cycle.on_response()


class _HeadWithBody:
    """A transport that joins the head of an answer with the first bytes of its body, if these follow at once.

    uvicorn writes the two separately. Each write is a system call, and a packet that wakes the client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write the data, behind a head that waits.

        A head waits until body bytes come, or until the next turn of the event loop.
        """
        head, self._head = self._head, b""
        if head or not (data.startswith(_STATUS_LINE) and data.endswith(_END_OF_HEAD)):
            self._transport.write(head + data)
            return
        self._head = data
        # The head of an answer whose body comes later goes out in the next turn of the loop.
        self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Write a head that waits, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # whatever a transport has
        return getattr(self._transport, name)


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop for a server: uvloop where it is installed, which needs a third of asyncio's writes."""
    try:
        import uvloop  # noqa: PLC0415 # not on Windows
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def listen_at(address: Address) -> socket.socket:
    """A socket that listens at an address. Raises UsageError where the address cannot be used."""
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            # Without it a restarted server cannot listen while old connections of the port are still closing.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(socket_address)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot serve at {address}: {error}") from error
    return listening


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyLimits:
    """Limits for the bodies of requests.

    `body_bytes` of one body as it is sent (compressed), `all_bytes` of all bodies that are in memory at once, and
    `seconds` until a body has arrived.
    """

    body_bytes: int = 64 << 20
    all_bytes: int = 256 << 20
    seconds: float = 60.0


class Bodies:
    """Reads the bodies of requests, and counts how many bytes are in memory at the moment."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self.held_bytes = 0

    def read(self, scope: Scope, receive: Receive) -> "HeldBody":
        """`async with bodies.read(…) as body:` reads a body, which counts as held inside the block.

        Raises HTTPException with 408 (too slow), 413 (too large) or 429 (too many at once).
        """
        return HeldBody(self, scope, receive)

    @contextmanager
    def hold(self, body: bytes) -> Generator[None]:
        """Count a body that came by another way (gRPC) as held inside the block. Raises HTTPException with 429."""
        self.held_bytes += len(body)
        try:
            if self.held_bytes > self.limits.all_bytes:
                raise _overloaded()
            yield
        finally:
            self.held_bytes -= len(body)


class HeldBody:
    """The context manager of `Bodies.read`; a class, because a generator takes twice the time."""

    def __init__(self, bodies: Bodies, scope: Scope, receive: Receive) -> None:
        self._bodies = bodies
        self._scope = scope
        self._receive = receive
        self._held = 0

    async def __aenter__(self) -> bytes:
        answering: Answering | None = self._scope.get("extensions", {}).get(CONNECTION, {}).get("answering")
        body = None if answering is None else answering.body_if_whole()
        try:
            if body is not None:
                self._hold(body)
                return body
            self._check_length()
            async with asyncio.timeout(self._bodies.limits.seconds):
                return await self._read()
        except TimeoutError:
            self._release()
            raise HTTPException(408, "the body did not arrive in time") from None
        except BaseException:
            self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _check_length(self) -> None:
        """Refuse a body at once if its content-length is too large, before it is read."""
        limit = self._bodies.limits.body_bytes
        length = next((value for name, value in self._scope["headers"] if name == b"content-length"), None)
        if length is not None and int(length) > limit:
            raise _too_large(limit)

    async def _read(self) -> bytes:
        parts: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise HTTPException(400, "the body ends too early")
            part = message.get("body", b"")
            self._hold(part)
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _hold(self, part: bytes) -> None:
        limits = self._bodies.limits
        self._held += len(part)
        self._bodies.held_bytes += len(part)
        if self._held > limits.body_bytes:
            raise _too_large(limits.body_bytes)
        if self._bodies.held_bytes > limits.all_bytes:
            raise _overloaded()

    def _release(self) -> None:
        self._bodies.held_bytes -= self._held
        self._held = 0


def _too_large(body_bytes: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {body_bytes} bytes; send smaller requests, or raise --max-body")


def _overloaded() -> HTTPException:
    return HTTPException(429, "more data arrives than can be written; try again later")


WhenRefused: TypeAlias = Callable[[str, int, str], None]
"""Called with the path of a refused request, the status, and the reason."""

_SHOWN: Final = 100
"""Characters of a Host header that an answer repeats."""


class WebPageCheck:
    """Refuses requests of web pages with 403, for servers without a token that are meant for programs only.

    Browsers send `Origin` or `Sec-Fetch-Site` with the requests of a page. A page that has pointed its own domain name
    at this machine (DNS rebinding) may send neither; but then that name is in the Host header. So at a loopback address
    the Host must be a name of this machine. Its port may differ, for tunnels.
    """

    def __init__(self, app: ASGIApp, address: Address, when_refused: WhenRefused) -> None:
        self._app = app
        self._is_loopback = address.is_loopback
        self._when_refused = when_refused

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Refuse a request, or return the application's own coroutine.

        Another coroutine around it would cost time for each piece of an answer.
        """
        why = self._refusal(scope["headers"]) if scope["type"] == "http" else None
        if why is None:
            return self._app(scope, receive, send)
        self._when_refused(scope["path"], 403, why)
        return PlainTextResponse(f"{why}\n", status_code=403)(scope, receive, send)

    def _refusal(self, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        hosts: list[str] = []
        for name, value in headers:
            if name == b"origin" or (name == b"sec-fetch-site" and value != b"none"):
                return "web pages may not use this server; a program in a browser must send a token"
            if name == b"host":
                hosts.append(value.decode("latin-1"))
        other = next((host for host in hosts or [""] if not _names_loopback(host)), None) if self._is_loopback else None
        if other is None:
            return None
        return (
            f"this server only answers this machine, under its own names, but the request named {other[:_SHOWN]!r}; "
            "for containers and other machines, let it listen on another address with a token"
        )


@lru_cache(maxsize=256)
def _names_loopback(host: str) -> bool:
    """Whether a Host header, with or without a port, is a name of this machine."""
    name, colon, port = host.rpartition(":")
    name = name if colon and port.isdecimal() else host
    return name.lower() == "localhost" or Address(name.removeprefix("[").removesuffix("]"), 0).is_loopback
