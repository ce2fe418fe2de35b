"""Bodies: the bodies of requests, read within limits.

Invariant: all bodies together hold no more memory than their budget; a body that is too large, too slow or comes while
the budget is used up gets its status, before all of it was read.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request


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

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncGenerator[bytes]:
        """Give the body, and count it as held inside the block. Raises HTTPException with 408, 413 or 429."""
        held = 0
        parts: list[bytes] = []
        try:
            if int(request.headers.get("content-length", 0)) > self.limits.body_bytes:
                raise self._too_large()
            async with asyncio.timeout(self.limits.seconds):
                async for part in request.stream():
                    held += len(part)
                    self.held_bytes += len(part)
                    if held > self.limits.body_bytes:
                        raise self._too_large()
                    if self.held_bytes > self.limits.all_bytes:
                        raise _overloaded()
                    parts.append(part)
            yield b"".join(parts)
        except TimeoutError:
            raise HTTPException(408, "the body did not arrive in time") from None
        except ClientDisconnect:
            raise HTTPException(400, "the body is cut") from None
        finally:
            self.held_bytes -= held

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

    def _too_large(self) -> HTTPException:
        return HTTPException(
            413, f"the body is larger than {self.limits.body_bytes} bytes; send less at once, or raise --max-body"
        )


def _overloaded() -> HTTPException:
    return HTTPException(429, "more is being sent than can be written; try again later")
