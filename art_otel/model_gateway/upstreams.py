"""Upstreams: the model servers behind the gateway, and the way of a request to one of them.

Invariant: a rollout stays on its server, where the prefixes of its prompts are cached, as long as that can be reached;
a new one goes to the server with the fewest open requests. Nobody is waited for shorter than the agent waits, but for a
connection. Bodies pass as they are, neither decompressed nor gathered here.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import httpx

from art_otel.errors import UsageError

_CONNECT_SECONDS: Final = 10.0
_TIMEOUTS: Final = {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None}
_KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than the 5 s after which uvicorn, and so vLLM and SGLang, closes a connection that nobody uses."""

_MAX_IDLE: Final = 1024
_AVOIDED_SECONDS: Final = 5.0
"""How long a server that could not be reached gets no new rollouts, if there are others."""

_MAX_ROLLOUTS: Final = 100_000

RawHeaders = Sequence[tuple[bytes, bytes]]


class Upstream:
    """One server. `open` counts its requests that are not answered whole."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise UsageError(f"{url!r} is no address of a model server: write http://HOST:PORT")
        self.url = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()
        self.open = 0
        self.failed_at = -_AVOIDED_SECONDS


class Upstreams:
    """All of them. Raises UsageError where an address is none."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._all = [Upstream(url) for url in urls]
        self._of_rollout: OrderedDict[str, Upstream] = OrderedDict()
        self._transport = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=_MAX_IDLE, keepalive_expiry=_KEEP_ALIVE_SECONDS
            )
        )

    def choose(self, rollout_id: str | None) -> Upstream:
        """The server of a rollout, else the one with the fewest open requests."""
        if len(self._all) == 1:
            return self._all[0]
        stays = None if rollout_id is None else self._of_rollout.get(rollout_id)
        since = time.monotonic() - _AVOIDED_SECONDS
        if stays is not None and stays.failed_at < since:
            return stays
        chosen = min(self._all, key=lambda upstream: (upstream.failed_at >= since, upstream.open))
        if rollout_id is not None:
            self._of_rollout[rollout_id] = chosen
            self._of_rollout.move_to_end(rollout_id)
            if len(self._of_rollout) > _MAX_ROLLOUTS:
                self._of_rollout.popitem(last=False)
        return chosen

    async def send(
        self, upstream: Upstream, method: str, target: str, headers: RawHeaders, body: bytes
    ) -> httpx.Response:
        """Send a request; what it gives has its status and headers, and its `stream` is to come.

        Raises httpx.HTTPError where the server cannot be reached or breaks the connection.
        """
        request = httpx.Request(
            method,
            f"{upstream.url}{target}",
            headers=[*headers],
            content=body,
            extensions={"timeout": _TIMEOUTS},
        )
        try:
            return await self._transport.handle_async_request(request)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            upstream.failed_at = time.monotonic()
            raise

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
