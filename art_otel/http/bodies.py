"""Bodies: the bodies of requests, read within limits.

Invariant: all bodies together hold no more memory than their budget; a body that is too large, too slow or comes while
the budget is used up gets its status, before all of it was read.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request

from art_otel.http.server import CONNECTION


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

    def read(self, request: Request) -> "HeldBody":
        """Give the body, and count it as held inside the block. Raises HTTPException with 408, 413 or 429."""
        return HeldBody(self, request)

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

    def __init__(self, bodies: Bodies, request: Request) -> None:
        self._bodies = bodies
        self._request = request
        self._held = 0

    async def __aenter__(self) -> bytes:
        """Read the body."""
        limits = self._bodies.limits
        length = self._request.headers.get("content-length")
        if length is not None and int(length) > limits.body_bytes:
            raise _too_large(limits.body_bytes)
        connection = self._request.scope.get("extensions", {}).get(CONNECTION, {}).get("connection")
        is_here = connection is not None and connection.has_whole_request  # as most are: there is nothing to wait for
        try:
            if is_here:
                return await self._read(limits)
            async with asyncio.timeout(limits.seconds):
                return await self._read(limits)
        except TimeoutError:
            self._release()
            raise HTTPException(408, "the body did not arrive in time") from None
        except BaseException:
            self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        """Hold it no more."""
        self._release()

    async def _read(self, limits: BodyLimits) -> bytes:
        parts: list[bytes] = []
        while True:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise HTTPException(400, "the body ends too early")
            part = message.get("body", b"")
            self._held += len(part)
            self._bodies.held_bytes += len(part)
            if self._held > limits.body_bytes:
                raise _too_large(limits.body_bytes)
            if self._bodies.held_bytes > limits.all_bytes:
                raise _overloaded()
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _release(self) -> None:
        self._bodies.held_bytes -= self._held
        self._held = 0


def _too_large(body_bytes: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {body_bytes} bytes; send smaller requests, or raise --max-body")


def _overloaded() -> HTTPException:
    return HTTPException(429, "more data arrives than can be written; try again later")
