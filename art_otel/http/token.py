"""TokenCheck: requests without the shared token get 401.

Invariant: a token is compared in constant time, and is never written anywhere.
"""

import hmac
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_SCHEME: Final = "bearer "


class TokenCheck:
    """An ASGI application around another. A request says `Authorization: Bearer TOKEN`, but for the `open_paths`."""

    def __init__(self, app: ASGIApp, token: str, open_paths: frozenset[str] = frozenset({"/healthz"})) -> None:
        self._app = app
        self._token = token.encode()
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        if scope["type"] != "http" or scope["path"] in self._open_paths or self._has_token(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        answer = PlainTextResponse(
            "this server wants a token: send the header 'Authorization: Bearer TOKEN'"
            " (OTEL_EXPORTER_OTLP_HEADERS='authorization=Bearer%20TOKEN')\n",
            status_code=401,
            headers={"www-authenticate": "Bearer"},
        )
        await answer(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        header = headers.get("authorization", "")
        is_bearer = header[: len(_SCHEME)].lower() == _SCHEME
        return is_bearer and hmac.compare_digest(header[len(_SCHEME) :].strip().encode(), self._token)
