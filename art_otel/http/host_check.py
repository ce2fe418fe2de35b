"""HostCheck: requests that name another host get 400, so that a page of another site cannot ask by rebinding its name.

Invariant: a request passes only if its Host header is one of the names of the address that is listened at, with its
port.
"""

from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from art_otel.http.address import Address

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class HostCheck:
    """An ASGI application around another. `address` gives where the server listens, once it does."""

    def __init__(self, app: ASGIApp, address: Callable[[], Address]) -> None:
        self._app = app
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        if scope["type"] != "http" or self._is_ours(Headers(scope=scope).getlist("host")):
            await self._app(scope, receive, send)
            return
        answer = PlainTextResponse("this server has another name and port\n", status_code=400)
        await answer(scope, receive, send)

    def _is_ours(self, hosts: list[str]) -> bool:
        address = self._address()
        names = _LOOPBACK if address.is_loopback else (address.host,)
        return len(hosts) == 1 and hosts[0].lower() in {str(address._replace(host=name)) for name in names}
