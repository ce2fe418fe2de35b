"""HttpServer: an ASGI application served by uvicorn inside a loop that somebody else runs.

Invariant: when `start` returns it listens; when `stop` returns every request that had come was answered.
"""

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from art_otel.errors import UsageError
from art_otel.http.address import Address
from art_otel.http.timed_protocol import TimedProtocol

_MAX_HEADER_BYTES: Final = 64 << 10
_MAX_CONNECTIONS: Final = 4096
_BACKLOG: Final = 1024
_KEEP_ALIVE_SECONDS: Final = 75
_STOP_SECONDS: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """The certificate chain and the private key, as PEM files."""

    certificate: Path
    key: Path


class HttpServer:
    """Serves `app` at `address`, over TLS where its files are given."""

    def __init__(self, app: ASGIApp, address: Address, tls: Tls | None = None) -> None:
        self.address = address
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=TimedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=_MAX_CONNECTIONS,
                h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_STOP_SECONDS,
                ssl_certfile=None if tls is None else str(tls.certificate),
                ssl_keyfile=None if tls is None else str(tls.key),
            )
        )
        self.url = ""

    async def start(self) -> None:
        """Listen. Raises UsageError where the address cannot be used or a certificate cannot be read."""
        try:
            self._socket = _listening(self.address)
            self._server.config.load()
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot serve at {self.address}: {error}") from error
        bound = Address(self.address.host, self._socket.getsockname()[1])
        self.url = f"{'https' if self._server.config.is_ssl else 'http'}://{bound}"
        self._task = asyncio.create_task(self._server._serve([self._socket]))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # serve() takes the process's signals
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Answer what has come, and end."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        if self._socket is not None:
            self._socket.close()


def _listening(address: Address) -> socket.socket:
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
    return listening
