"""CookieToken: the token of a printed address becomes a cookie, so that no address of the page holds it.

Invariant: without the token every request gets 401; the token is compared in constant time, and stands in no answer but
the cookie, which no script reads and no other site's request carries.
"""

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_PARAMETER: Final = "token"


class CookieToken:
    """An ASGI application around another. `/?token=…` sets the cookie and leads to `/`."""

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._name = name
        self.token = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        if scope["type"] != "http" or self._is_right(self._cookie(Headers(scope=scope))):
            application = self._leave if scope["type"] == "http" and self._query(scope) else self._app
        elif scope["path"] == "/" and self._is_right(self._query(scope)):
            application = self._leave
        else:
            application = PlainTextResponse("open the address that `art-otel view` printed\n", status_code=401)
        await application(scope, receive, send)

    async def _leave(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set the cookie where the token is right, and go where no token is in the address."""
        response = RedirectResponse("/", status_code=303, headers={"cache-control": "no-store"})
        if self._is_right(self._query(scope)):
            response.set_cookie(self._cookie_name(scope), self.token, httponly=True, samesite="strict", path="/")
        await response(scope, receive, send)

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def _query(self, scope: Scope) -> str:
        return parse_qs(scope["query_string"].decode("latin-1")).get(_PARAMETER, [""])[0]

    def _cookie(self, headers: Headers) -> str:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return ""
        name = f"{self._name}-{headers.get('host', '').rpartition(':')[2]}"
        return cookies[name].value if name in cookies else ""

    def _cookie_name(self, scope: Scope) -> str:
        """With the port: browsers share the cookies of a host between its ports."""
        return f"{self._name}-{Headers(scope=scope).get('host', '').rpartition(':')[2]}"
