"""TimedProtocol: uvicorn's HTTP/1.1 connection, with a timer for the headers of a request.

Invariant: a connection on which a request has begun has its headers within `HEADER_SECONDS`, or gets 408 and is closed.
One that is idle between two requests is left to uvicorn's own timer.
"""

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS: Final = 10.0

_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    """A connection of uvicorn with this timer; the methods are those of asyncio.Protocol."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Read on; the timer runs while no request is whole enough to be answered."""
        super().data_received(data)
        if self.cycle and not self.cycle.response_complete:
            self._stop()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_SLOW)
            self.transport.close()
