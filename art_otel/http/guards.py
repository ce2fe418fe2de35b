"""Guards: who may ask a server, and what a browser may do with its answers. Each is an ASGI application around another.

Invariant: what a guard refuses reaches nothing behind it. Tokens are compared in constant time, and are written nowhere
but into a cookie, which no script reads and no other site's request carries.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from art_otel.http.server import Address, WhenRefused

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_READ_METHODS: Final = ("GET", "HEAD")
_SCHEME: Final = "bearer "
_CODE_SECONDS: Final = 60.0
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " require-trusted-types-for 'script'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
"""Own scripts and styles alone, no text becomes a script, nobody frames the page or reads its answers."""


class HostCheck:
    """Refuses requests that name another host with 400: a page of another site cannot ask by rebinding its name.

    `address` gives where the server listens, once it does. The Host of a request has to be one of its names, with its
    port.
    """

    def __init__(self, app: ASGIApp, address: Callable[[], Address]) -> None:
        self._app = app
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or self._is_ours(Headers(scope=scope).getlist("host")):
            await self._app(scope, receive, send)
            return
        answer = PlainTextResponse("this server has a different name and port\n", status_code=400)
        await answer(scope, receive, send)

    def _is_ours(self, hosts: list[str]) -> bool:
        address = self._address()
        names = _LOOPBACK if address.is_loopback else (address.host,)
        return len(hosts) == 1 and hosts[0].lower() in {str(address._replace(host=name)) for name in names}


class ReadOnly:
    """Refuses requests that are neither GET nor HEAD with 405, but for a POST to an address that begins with `writes`.

    Such a POST is refused with 403 unless our own page asks: its `Origin` has to be the Host of the request, which
    HostCheck has seen to be ours.
    """

    def __init__(self, app: ASGIApp, writes: str | None = None) -> None:
        self._app = app
        self._writes = writes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] in _READ_METHODS:
            await self._app(scope, receive, send)
            return
        if self._writes is not None and scope["method"] == "POST" and scope["path"].startswith(self._writes):
            headers = Headers(scope=scope)
            if headers.getlist("origin") == [f"{scope['scheme']}://{headers.get('host', '')}"]:
                await self._app(scope, receive, send)
            else:
                await PlainTextResponse("only the page itself may write\n", status_code=403)(scope, receive, send)
            return
        headers = {"allow": ", ".join(_READ_METHODS)}
        await PlainTextResponse("this server is read-only\n", status_code=405, headers=headers)(scope, receive, send)


class TokenCheck:
    """Refuses requests without `Authorization: Bearer TOKEN` with 401, but for the `open_paths`.

    `advice` says, for a path, how its clients send the token.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        *,
        advice: Callable[[str], str],
        when_refused: WhenRefused,
        open_paths: frozenset[str] = frozenset({"/healthz"}),
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._advice = advice
        self._when_refused = when_refused
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["path"] in self._open_paths or self._has_token(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        has_other = "authorization" in Headers(scope=scope)
        why = f"this server requires {'another' if has_other else 'a'} token: {self._advice(scope['path'])}"
        self._when_refused(scope["path"], 401, why)
        answer = PlainTextResponse(f"{why}\n", status_code=401, headers={"www-authenticate": "Bearer"})
        await answer(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        header = headers.get("authorization", "")
        is_bearer = header[: len(_SCHEME)].lower() == _SCHEME
        return is_bearer and hmac.compare_digest(header[len(_SCHEME) :].strip().encode(), self._token)


class CookieToken:
    """Refuses with 401 whoever has not the cookie. `/?token=…` sets it and leads to `/`, so no address holds the token.

    A browser is opened with a `code()` in the token's place, because others may read the arguments of its process.
    """

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._name = name
        self._codes: dict[str, float] = {}
        """Codes that were not used, and when they expire."""
        self.token = secrets.token_urlsafe(32)

    def code(self) -> str:
        """Give a code that stands for the token once, within a minute."""
        code = secrets.token_urlsafe(32)
        self._codes[code] = time.monotonic() + _CODE_SECONDS
        return code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        query = parse_qs(scope["query_string"].decode("latin-1"))
        is_entry = scope["path"] == "/" and not query.keys().isdisjoint(("token", "code"))
        has_token = is_entry and self._opens(query)
        if not has_token and not self._is_right(self._cookie(Headers(scope=scope))):
            application = PlainTextResponse("open the address that `art-otel view` printed\n", status_code=401)
        elif is_entry:
            application = self._redirect(scope, set_cookie=has_token)
        else:
            application = self._app
        await application(scope, receive, send)

    def _opens(self, query: dict[str, list[str]]) -> bool:
        expires = self._codes.pop(query.get("code", [""])[0], 0.0)
        return time.monotonic() < expires or self._is_right(query.get("token", [""])[0])

    def _redirect(self, scope: Scope, *, set_cookie: bool) -> RedirectResponse:
        """Go where neither token nor code is in the address."""
        response = RedirectResponse("/", status_code=303, headers={"cache-control": "no-store"})
        if set_cookie:
            name = self._cookie_name(Headers(scope=scope))
            response.set_cookie(name, self.token, httponly=True, samesite="strict", path="/")
        return response

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def _cookie(self, headers: Headers) -> str:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return ""
        name = self._cookie_name(headers)
        return cookies[name].value if name in cookies else ""

    def _cookie_name(self, headers: Headers) -> str:
        """With the port: browsers share the cookies of a host between its ports."""
        return f"{self._name}-{headers.get('host', '').rpartition(':')[2]}"


class SecurityHeaders:
    """Puts `HEADERS` on every answer, errors too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)
