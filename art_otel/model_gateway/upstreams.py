"""Upstreams: the model servers behind the gateway, and the way of a request to one of them.

Invariant: a rollout stays on its server, where the prefixes of its prompts are cached, as long as that can be reached;
a new one goes to the server with the fewest open requests, of several to the one that was given the fewest rollouts.
Nobody is waited for shorter than the agent waits, but for a connection. Bodies pass as they are, neither decompressed
nor gathered here.
"""

import io
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from art_otel.errors import UsageError
from art_otel.spans import Value

logger = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 10.0
_KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than the 5 s after which uvicorn, and so vLLM and SGLang, closes a connection that nobody uses."""

_AVOIDED_SECONDS: Final = 5.0
"""How long a server that could not be reached gets no new rollouts, if there are others."""

_LARGE: Final = 1 << 20
"""A larger body goes in pieces: aiohttp warns of those that it would write at once."""

_MAX_ROLLOUTS: Final = 100_000

_MAX_HEADER: Final = 1 << 20
_UNASKED: Final = ("user-agent", "accept", "accept-encoding", "content-type")
"""Headers that aiohttp adds where an agent sends none."""

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]


class UpstreamError(Exception):
    """A server gave no whole answer. Its text says why."""


class UnreachableError(UpstreamError):
    """No connection was made."""


class BrokenOffError(UpstreamError):
    """The connection ended before the answer did, or what came is no HTTP."""


class FailedError(BrokenOffError):
    """The server said itself that it failed. `said` are the fields of its error."""

    def __init__(self, said: Mapping[str, Value]) -> None:
        super().__init__(str(said.get("message") or said))
        self.said = said


class Upstream:
    """One server. `open` counts its requests that are not answered whole, `rollouts` those that were given to it.

    `is_out` says that it could not be reached the last time. `shown` is its address without user and password.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise UsageError(f"{url!r} is no address of a model server: write http://HOST:PORT")
        self.url = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()
        self.open = 0
        self.rollouts = 0
        self.failed_at = -_AVOIDED_SECONDS
        self.is_out = False
        scheme, _, rest = self.url.partition("://")
        self.shown = f"{scheme}://{rest.rpartition('@')[2]}"


class Answer:
    """The answer of a server that has begun: its status and headers; its body is read once, and then it is closed."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status: Final = response.status
        self.headers: Final[Mapping[str, str]] = response.headers
        self.raw_headers: Final[RawHeaders] = response.raw_headers

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as the server sends it. Raises BrokenOffError."""
        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except aiohttp.ClientError as error:
            raise BrokenOffError(_words(error)) from error

    def failed(self, _: UpstreamError) -> bytes:
        """What the agent has to get where the body broke off: nothing, its connection is cut as this one was."""
        return b""

    def close(self) -> None:
        """Leave the body. Where it has not ended the connection is closed, and the server sees it."""
        self._response.close()


class Upstreams:
    """All of them, one at least. Its connections are those of the loop it runs in.

    Raises UsageError where an address is none.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise UsageError("a gateway stands before a model server: name one, as http://HOST:PORT")
        self._all = [Upstream(url) for url in urls]
        self._of_rollout: OrderedDict[str, Upstream] = OrderedDict()
        self._session: aiohttp.ClientSession | None = None

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._all)

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
        """Send a request. Raises UpstreamError where the server cannot be reached or breaks the connection."""
        session = self._session or self._connect()
        try:
            response = await session.request(
                method,
                URL(f"{upstream.url}{target}", encoded=True),
                headers=CIMultiDict((name.decode("latin-1"), _text(value)) for name, value in headers),
                data=io.BytesIO(body) if len(body) > _LARGE else body or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self._miss(upstream, error)
            raise UnreachableError(_words(error)) from error
        except (aiohttp.ClientError, ValueError) as error:  # ValueError: what no HTTP can say, as a path with a space
            raise BrokenOffError(_words(error)) from error
        if upstream.is_out:
            upstream.is_out = False
            logger.warning("art-otel: the model server at %s answers again", upstream.shown)
        return Answer(response)

    def _miss(self, upstream: Upstream, error: Exception) -> None:
        """A server cannot be reached: new rollouts go to others, and the log says it once an outage."""
        upstream.failed_at = time.monotonic()
        if not upstream.is_out:
            upstream.is_out = True
            logger.warning(
                "art-otel: the model server at %s cannot be reached, and agents get 502: %s. Start it, or give another"
                " --upstream",
                upstream.shown,
                _words(error),
            )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _connect(self) -> aiohttp.ClientSession:
        """Begin to keep connections; cookies, redirects and compressed bodies are the agent's to read."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_UNASKED,
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
        )
        return self._session


def _text(value: bytes) -> str:
    """A header's value as text that aiohttp writes as the same bytes."""
    return value.decode("utf-8", "surrogateescape")


def _words(error: Exception) -> str:
    """What went wrong. aiohttp's own words speak of TLS also where an address is http://."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        return str(error.os_error)
    return str(error) or type(error).__name__
