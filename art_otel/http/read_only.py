"""ReadOnly: requests that are neither GET nor HEAD get 405, whatever they ask for."""

from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_METHODS: Final = ("GET", "HEAD")


class ReadOnly:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        if scope["type"] != "http" or scope["method"] in _METHODS:
            await self._app(scope, receive, send)
            return
        answer = PlainTextResponse("this server only shows\n", status_code=405, headers={"allow": ", ".join(_METHODS)})
        await answer(scope, receive, send)
