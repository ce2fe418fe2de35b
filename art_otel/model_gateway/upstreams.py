"""Upstreams: the model servers behind the gateway, and the way of a request to one of them.

Invariant: a rollout stays on its server, where the prefixes of its prompts are cached, as long as that can be reached;
a new one goes to the server with the fewest open requests, of several to the one that was given the fewest rollouts.
Nobody is waited for shorter than the agent waits, but for a connection. Bodies pass as they are, neither decompressed
nor gathered here.
"""

import ssl
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, cast
from urllib.parse import urlsplit

import httpx

from art_otel.errors import UsageError

_CONNECT_SECONDS: Final = 10.0
_TIMEOUTS: Final = {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None}
_KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than the 5 s after which uvicorn, and so vLLM and SGLang, closes a connection that nobody uses."""

_AVOIDED_SECONDS: Final = 5.0
"""How long a server that could not be reached gets no new rollouts, if there are others."""

_MAX_ROLLOUTS: Final = 100_000

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]


class Upstream:
    """One server. `open` counts its requests that are not answered whole, `rollouts` those that were given to it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise UsageError(f"{url!r} is no address of a model server: write http://HOST:PORT")
        self.url = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()
        self.open = 0
        self.rollouts = 0
        self.failed_at = -_AVOIDED_SECONDS


class Answer:
    """The answer of a server that has begun: its status and headers; its body is read once, and then it is closed."""

    def __init__(self, response: httpx.Response, give_back: Callable[[], Awaitable[None]]) -> None:
        self._response = response
        self._give_back = give_back
        self.status: Final = response.status_code
        self.headers: Final = response.headers

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, as the server sends it."""
        return aiter(cast(httpx.AsyncByteStream, self._response.stream))

    async def close(self) -> None:
        """Leave the body, whether it has ended or not."""
        await self._response.aclose()
        await self._give_back()


class Upstreams:
    """All of them. Raises UsageError where an address is none.

    Each connection is a transport of its own, because a pool of httpx looks at all of its connections for each request.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._all = [Upstream(url) for url in urls]
        self._of_rollout: OrderedDict[str, Upstream] = OrderedDict()
        self._idle: dict[Upstream, deque[tuple[float, httpx.AsyncHTTPTransport]]] = {one: deque() for one in self._all}
        is_secure = any(one.url.startswith("https") for one in self._all)
        # One for all connections, as each takes some milliseconds to make; without https it needs no certificates.
        self._tls = httpx.create_ssl_context() if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def choose(self, rollout_id: str | None) -> Upstream:
        """The server of a rollout, else the one with the fewest open requests."""
        if len(self._all) == 1:
            return self._all[0]
        stays = None if rollout_id is None else self._of_rollout.get(rollout_id)
        since = time.monotonic() - _AVOIDED_SECONDS
        if stays is not None and stays.failed_at < since:
            return stays
        chosen = min(self._all, key=lambda upstream: (upstream.failed_at >= since, upstream.open, upstream.rollouts))
        if rollout_id is not None:
            chosen.rollouts += 1
            self._of_rollout[rollout_id] = chosen
            self._of_rollout.move_to_end(rollout_id)
            if len(self._of_rollout) > _MAX_ROLLOUTS:
                self._of_rollout.popitem(last=False)
        return chosen

    async def send(self, upstream: Upstream, method: str, target: str, headers: RawHeaders, body: bytes) -> Answer:
        """Send a request. Raises httpx.HTTPError where the server cannot be reached or breaks the connection."""
        request = httpx.Request(
            method, f"{upstream.url}{target}", headers=[*headers], content=body, extensions={"timeout": _TIMEOUTS}
        )
        idle = self._idle[upstream]
        transport = idle.pop()[1] if idle else self._transport()
        try:
            response = await transport.handle_async_request(request)
        except BaseException as error:
            if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
                upstream.failed_at = time.monotonic()
            await transport.aclose()
            raise
        return Answer(response, partial(self._give_back, upstream, transport))

    async def close(self) -> None:
        """Close the connections."""
        for idle in self._idle.values():
            while idle:
                await idle.pop()[1].aclose()

    async def _give_back(self, upstream: Upstream, transport: httpx.AsyncHTTPTransport) -> None:
        """Keep a connection for the next request, and close those that nobody used for long."""
        now, idle = time.monotonic(), self._idle[upstream]
        idle.append((now, transport))
        while idle[0][0] < now - _KEEP_ALIVE_SECONDS:
            await idle.popleft()[1].aclose()

    def _transport(self) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, keepalive_expiry=_KEEP_ALIVE_SECONDS)
        return httpx.AsyncHTTPTransport(verify=self._tls, limits=limits)
