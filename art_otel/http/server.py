"""HttpServer: an ASGI application served by uvicorn inside a loop that another program part runs.

Invariant: when `start` returns it listens; when `stop` returns every request that had come was answered. A connection
on which a request has begun has its headers within `HEADER_SECONDS`, or gets 408 and is closed; one that is idle
between two requests is left to uvicorn's own timer. Bodies are bounded (`Bodies`), and a server that is for programs
alone refuses web pages (`WebPageCheck`); `guards` has what servers of pages refuse.
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
        """Whether only this machine reaches it."""
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
    """Serves `app` at `address`, over TLS where its files are given.

    `listening` are the sockets to listen on that other processes share, none for a server that only gets connections
    by `adopt_soon`.
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
                interface="asgi3",  # which uvicorn guesses of coroutine functions alone
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
        """Listen. Raises UsageError where the address cannot be used or a certificate cannot be read."""
        if self._sockets is None:
            self._sockets = [listen_at(self.address)]
        try:
            self._server.config.load()
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot serve at {self.address}: {error}") from error
        port = self._sockets[0].getsockname()[1] if self._sockets else self.address.port
        self.url = f"{'https' if self._server.config.is_ssl else 'http'}://{self.address._replace(port=port)}"
        self._task = asyncio.create_task(self._server._serve([*self._sockets]))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # serve() takes the process's signals
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        if self._task.done():
            await self._task
        self._started.set()

    async def stop(self) -> None:
        """Answer what has come, and end."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        for each in self._sockets or ():
            each.close()

    def adopt_soon(self, connection: socket.socket, received: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Serve, in the loop of this server, a connection that another process accepted and read `received` of.

        Any thread may call it. A connection that comes before the server has started waits for that.
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
    """A connection of uvicorn with this timer, and a limit of its headers; the methods are a Protocol's."""

    _timer: asyncio.TimerHandle | None = None
    _begun_bytes: int | None = None
    """Bytes of a request whose headers are not whole."""

    is_left = False
    """Whether the other side has gone, or `end` was called and the connection is closed."""

    received = b""
    """What another process read of the connection."""

    _when_left: Callable[[], object] | None = None

    def when_left(self, act: Callable[[], object] | None) -> None:
        """Do something once the connection is closed, at once where it is; with None, nothing any more."""
        self._when_left = act
        if act is not None and self.is_left:
            act()

    async def end(self) -> None:
        """End the connection in the middle of an answer, without a word in a log.

        What was written before still goes to the other side, if that reads it within a second.
        """
        closed = self.loop.create_future()
        self.when_left(partial(closed.set_result, None))
        self.transport.close()
        await asyncio.wait((closed,), timeout=_END_SECONDS)
        self.transport.abort()
        await closed

    async def detach(self, scope: Scope) -> socket.socket:
        """Leave the connection of a request open, and give its socket: this process reads and writes it no more."""
        scope["extensions"][CONNECTION]["answering"].cycle.disconnected = True  # nothing answers it here
        self.transport.pause_reading()
        kept = socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))
        closed = self.loop.create_future()
        self.when_left(partial(closed.set_result, None))
        self.transport.abort()
        await closed
        return kept

    @property
    def has_more(self) -> bool:
        """Whether something was read behind the request that is being answered."""
        return bool(self.pipeline) or self._begun_bytes is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        """Wait for the first request."""
        super().connection_made(cast(asyncio.Transport, _HeadWithBody(transport, self.loop)))
        self._wait()
        if self.received:
            self.data_received(self.received)

    def data_received(self, data: bytes) -> None:
        """Read on; the timer runs while no request is whole enough to be answered."""
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
        """Begin to count the headers."""
        super().on_message_begin()
        self._begun_bytes = 0

    def on_headers_complete(self) -> None:
        """Count no more, and hand out the connection."""
        self._begun_bytes = None
        super().on_headers_complete()
        self.scope["extensions"] = {CONNECTION: {"answering": Answering(self, self.cycle)}}

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
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
    """The answer to one request, for who writes it without ASGI's messages: a piece costs a third of what they cost.

    `connection` is that of the request, `cycle` uvicorn's state of it.
    """

    __slots__ = ("connection", "cycle")

    def __init__(self, connection: TimedProtocol, cycle: RequestResponseCycle) -> None:
        self.connection = connection
        self.cycle = cycle

    def body_if_whole(self) -> bytes | None:
        """The body of the request, if all of it has come, as it mostly has; else None, and `receive` waits for it."""
        cycle = self.cycle
        if cycle.more_body or cycle.disconnected:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        # uvicorn reads no more behind 64 KB until they are taken, and so would not see that the other side leaves.
        cycle.flow.resume_reading()
        return body

    async def begin(self, status: int, headers: RawHeaders) -> None:
        """Write the head of an answer, which goes on with `send`."""
        await self.cycle.send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, piece: bytes) -> None:
        """Write a piece of its body, as soon as the other side has read enough of those before."""
        cycle = self.cycle
        if not cycle.chunked_encoding or cycle.flow.write_paused:
            await cycle.send({"type": "http.response.body", "body": piece, "more_body": True})
        elif piece and not cycle.disconnected:
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def end(self, piece: bytes = b"") -> None:
        """Write the last piece."""
        await self.cycle.send({"type": "http.response.body", "body": piece, "more_body": False})

    async def send_whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Write an answer that has a body, whose length `headers` do not say."""
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
    """A transport that writes the head of an answer together with its body, where that follows at once.

    uvicorn writes them apart, and each write is a call of the system, and a packet that wakes the other side.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write a body behind its head; keep a head until there is a body, or the loop goes on without one."""
        head, self._head = self._head, b""
        if head or not (data.startswith(_STATUS_LINE) and data.endswith(_END_OF_HEAD)):
            self._transport.write(head + data)
            return
        self._head = data
        self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Write what is kept, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # whatever a transport has
        return getattr(self._transport, name)


def new_loop() -> asyncio.AbstractEventLoop:
    """Give a loop for a server: that of libuv where there is one, which writes once where asyncio writes thrice."""
    try:
        import uvloop  # noqa: PLC0415 # not on Windows
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def listen_at(address: Address) -> socket.socket:
    """Listen at an address. Raises UsageError where it cannot be used."""
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
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
    """`body_bytes` of one body as it is sent, `all_bytes` of all that are held at once, `seconds` until it is there."""

    body_bytes: int = 64 << 20
    all_bytes: int = 256 << 20
    seconds: float = 60.0


class Bodies:
    """The bodies that are held at the moment."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self.held_bytes = 0

    def read(self, scope: Scope, receive: Receive) -> "HeldBody":
        """Give a request's body, counted as held inside the block. Raises HTTPException with 408, 413 or 429."""
        return HeldBody(self, scope, receive)

    @contextmanager
    def hold(self, body: bytes) -> Generator[None]:
        """Count a body that came another way as held inside the block. Raises HTTPException with 429."""
        self.held_bytes += len(body)
        try:
            if self.held_bytes > self.limits.all_bytes:
                raise _overloaded()
            yield
        finally:
            self.held_bytes -= len(body)


class HeldBody:
    """A body that counts as held by `bodies` inside the block; see `Bodies.read`. A generator costs twice as much."""

    def __init__(self, bodies: Bodies, scope: Scope, receive: Receive) -> None:
        self._bodies = bodies
        self._scope = scope
        self._receive = receive
        self._held = 0

    async def __aenter__(self) -> bytes:
        """Read the body."""
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
        """Hold it no more."""
        self._release()

    def _check_length(self) -> None:
        """Refuse at once what is going to be too large."""
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
"""Told the path of a refused request, its status, and why it was refused."""

_SHOWN: Final = 100
"""Characters of a Host header that an answer repeats."""


class WebPageCheck:
    """Refuses with 403 what a web page asks, for servers that no page is meant to ask and that want no token.

    Browsers say with `Origin` or `Sec-Fetch-Site` that a page asks. Of a page that rebinds its own name to this machine
    they may say neither, but then the Host is that name: at a loopback address it has to be a name of this machine. Its
    port may be another one, that of a tunnel.
    """

    def __init__(self, app: ASGIApp, address: Address, when_refused: WhenRefused) -> None:
        self._app = app
        self._is_loopback = address.is_loopback
        self._when_refused = when_refused

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request. What is not refused has no coroutine around it: each piece of an answer would pass it."""
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
