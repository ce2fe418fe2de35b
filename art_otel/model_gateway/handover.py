"""Handover: gives an agent's connection, with the request that came on it, to another process of the gateway.

    worker 1: accepts, reads a request for a rollout of worker 0 ── socket, request ──► worker 0: answers it,
                                                                                        and reads the next ones

Invariant: one process has the connection, never both: the sender does not read or write it any more. No byte is lost:
what was read of the request goes along, and what follows is read by the new process.

Agents keep their connections open, so only the first request of a connection costs a handover.
"""

import asyncio
import logging
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from art_otel.http import CONNECTION, Answering, Bodies
from art_otel.model_gateway.own_answers import error_response

logger = logging.getLogger(__name__)

_SECONDS: Final = 10.0
"""Seconds that the other process may take to accept a connection."""

_CHUNK: Final = 1 << 16
_LENGTH: Final = 8
_BACKLOG: Final = 1024
_CHANGED: Final = frozenset([b"content-length", b"transfer-encoding", b"expect"])
"""Headers that describe how the body was sent. The whole body is sent on with its length instead."""


def open_inbox(path: Path) -> socket.socket:
    """Make the socket at which a process takes connections over.

    The parent keeps it open when the process dies, so that connections wait for the next process.
    """
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    inbox.bind(str(path))
    inbox.listen(_BACKLOG)
    return inbox


async def hand_over(scope: Scope, body: bytes, inbox: Path) -> None:
    """Give the connection of a request to the process behind an inbox. If that does not accept, it is closed."""
    answering: Answering = scope["extensions"][CONNECTION]["answering"]
    connection = answering.connection
    request = _encode(scope, body, is_last=connection.has_more)
    with await connection.detach(scope) as kept:
        if len(request) <= _CHUNK:
            with suppress(OSError):  # the inbox is full: try again in a thread, which may block
                _send(inbox, kept, request, seconds=0.0)
                return
        try:
            await asyncio.to_thread(_send, inbox, kept, request, seconds=_SECONDS)
        except OSError as error:
            logger.warning("art-otel: a connection of an agent could not be handed to another process: %s", error)


async def read_and_hand_over(bodies: Bodies, inbox: Path, scope: Scope, receive: Receive, send: Send) -> None:
    """Read a request, and give its connection with it to the process behind an inbox; answer it if it is too long."""
    try:
        async with bodies.read(scope, receive) as body:
            await hand_over(scope, body, inbox)
    except HTTPException as refused:
        await error_response(refused.status_code, refused.detail)(scope, receive, send)


def _encode(scope: Scope, body: bytes, *, is_last: bool) -> bytes:
    """The bytes of a request, with the length of its body.

    `is_last` adds `connection: close`: part of a second request was read already and cannot go along. Its client sends
    that one again on a new connection.
    """
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    headers = [header for header in scope["headers"] if header[0] not in _CHANGED]
    if is_last:
        headers = [*(header for header in headers if header[0] != b"connection"), (b"connection", b"close")]
    lines = [
        b"%b %b%b HTTP/%b\r\n" % (scope["method"].encode(), scope["raw_path"], query, scope["http_version"].encode()),
        *(b"%b: %b\r\n" % header for header in headers),
        b"content-length: %d\r\n\r\n" % len(body),
        body,
    ]
    return b"".join(lines)


def _send(inbox: Path, connection: socket.socket, request: bytes, *, seconds: float) -> None:
    """Send a connection and its request, behind the request's length. If not all of it arrives, it is not accepted.

    A request of one chunk fits into the buffer of a new socket, so it is sent without waiting. Raises OSError.
    """
    request = len(request).to_bytes(_LENGTH) + request
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sending:
        sending.settimeout(seconds)
        sending.connect(str(inbox))
        sent = socket.send_fds(sending, [request[:_CHUNK]], [connection.fileno()])
        sending.sendall(memoryview(request)[sent:])


class Inbox:
    """Takes connections over, in a thread of its own, and calls `adopt(connection, request bytes)` for each."""

    def __init__(self, inbox: socket.socket, adopt: Callable[[socket.socket, bytes], None]) -> None:
        self._inbox = inbox
        self._adopt = adopt
        self._wakes, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="art-otel inbox", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop. Connections that wait are taken by the next process with this inbox."""
        self._wake.close()
        self._thread.join()
        self._wakes.close()
        self._inbox.close()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._inbox, self._wakes], [], [])
            if self._wakes in ready:
                return
            try:
                sending, _ = self._inbox.accept()
                with sending:
                    sending.settimeout(_SECONDS)
                    self._adopt(*_receive(sending))
            except OSError as error:
                logger.warning("art-otel: a connection of an agent could not be taken over: %s", error)


def _receive(sending: socket.socket) -> tuple[socket.socket, bytes]:
    first, descriptors, _, _ = socket.recv_fds(sending, _CHUNK, 1)
    if not descriptors:
        raise OSError("who gave it has ended")
    connection = socket.socket(fileno=descriptors[0])
    try:
        parts = [first]
        while part := sending.recv(_CHUNK):
            parts.append(part)
        request = b"".join(parts)
        if len(request) - _LENGTH == int.from_bytes(request[:_LENGTH]):
            return connection, request[_LENGTH:]
    except BaseException:
        connection.close()
        raise
    connection.close()
    raise OSError("who gave it has ended")
