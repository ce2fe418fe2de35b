"""Guards: ASGI applications around another one, which say who may ask it and what a browser may do with the answers.

Invariant: a refused request does not reach the application. Tokens are compared in constant time, and are written
nowhere but into a cookie, which no script can read and which no request from another site carries.
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
"""With these a page runs only our own scripts and styles, no text becomes a script, and no other site can put the page
into a frame or read its answers."""


class HostCheck:
    """Refuses requests with a Host header of another host, with 400.

    Without it a page of another site could point its own domain name at this machine (DNS rebinding), and read the
    answers. `address` returns the address of the server, once it listens. The Host of a request must be one of its
    names, with its port.
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
        # A request with two Host headers is refused: proxies and servers may read different ones.
        return len(hosts) == 1 and hosts[0].lower() in {str(address._replace(host=name)) for name in names}


class ReadOnly:
    """Refuses all methods but GET and HEAD with 405. A POST is let through to paths that begin with `writes`.

    Such a POST must come from our own page, else it is refused with 403: its `Origin` must be the request's Host, and
    HostCheck has checked that this Host is ours.
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
    """Refuses requests without `Authorization: Bearer TOKEN` with 401; the `open_paths` need no token.

    `advice` returns, for a path, how to send the token: for the text of the error. `when_refused` is called for each.
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
    """Refuses requests without the cookie with 401.

        GET /?token=TOKEN  ─►  303 to / , sets the cookie      so that the token does not stay in the address bar

    To open a browser, `/?code=CODE` is used instead, with a `code()` that works once: other users of the machine can
    read the arguments with which a process is started.
    """

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._name = name
        self._codes: dict[str, float] = {}
        """Unused codes, each with the time at which it expires."""
        self.token = secrets.token_urlsafe(32)

    def code(self) -> str:
        """Make a code that replaces the token once, within a minute."""
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
        # Taken out, so that a code works once.
        expires = self._codes.pop(query.get("code", [""])[0], 0.0)
        return time.monotonic() < expires or self._is_right(query.get("token", [""])[0])

    def _redirect(self, scope: Scope, *, set_cookie: bool) -> RedirectResponse:
        """Redirect to `/`, so that neither token nor code stays in the address."""
        # No cache may keep an answer that sets the cookie.
        response = RedirectResponse("/", status_code=303, headers={"cache-control": "no-store"})
        if set_cookie:
            name = self._cookie_name(Headers(scope=scope))
            # `httponly`: no script reads it; `strict`: no request from another site carries it.
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
        """The cookie's name, with the port in it: browsers share the cookies of a host between all its ports."""
        return f"{self._name}-{headers.get('host', '').rpartition(':')[2]}"


class SecurityHeaders:
    """Puts `HEADERS` on every answer, also on errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)
