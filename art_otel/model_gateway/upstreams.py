"""Upstreams: the model servers behind the gateway, and the way of a request to one of them.

Invariant: a rollout stays on its server, where the prefixes of its prompts are cached, as long as that can be reached;
a new one goes to the server with the fewest open requests, of several to the one that was given the fewest rollouts.
A server may take as long to answer as the agent waits; only connecting has a limit of its own.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from art_otel.errors import UsageError
from art_otel.model_gateway.connections import Answer, BrokenOffError, Connections, RawHeaders, UnreachableError
from art_otel.spans import Value

logger = logging.getLogger(__name__)

_AVOIDED_SECONDS: Final = 5.0
"""How long a server that could not be reached gets no new rollouts, if there are others."""

_MAX_ROLLOUTS: Final = 100_000


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
            raise UsageError(f"{url!r} is not the address of a model server: write http://HOST:PORT")
        self.url = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()
        try:
            self.connections = Connections(self.url)
        except ValueError as error:
            raise UsageError(f"{url!r} is not the address of a model server: {error}") from None
        self.open = 0
        self.rollouts = 0
        self.failed_at = -_AVOIDED_SECONDS
        self.is_out = False
        scheme, _, rest = self.url.partition("://")
        self.shown = f"{scheme}://{rest.rpartition('@')[2]}"


class Upstreams:
    """All of them, one at least.

    Raises UsageError where an address is none.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise UsageError("--upstream is missing: give the model server's URL, such as http://HOST:PORT")
        self._all = [Upstream(url) for url in urls]
        self._of_rollout: OrderedDict[str, Upstream] = OrderedDict()

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
        try:
            answer = await upstream.connections.ask(method, target, headers, body)
        except UnreachableError as error:
            self._miss(upstream, error)
            raise
        if upstream.is_out:
            upstream.is_out = False
            logger.warning("art-otel: the model server at %s answers again", upstream.shown)
        return answer

    def _miss(self, upstream: Upstream, error: UnreachableError) -> None:
        """A server cannot be reached: new rollouts go to others, and the log says it once an outage."""
        upstream.failed_at = time.monotonic()
        if not upstream.is_out:
            upstream.is_out = True
            logger.warning(
                "art-otel: the model server at %s cannot be reached, so agents get status 502: %s. Start it, or give "
                "another --upstream",
                upstream.shown,
                error,
            )

    def close(self) -> None:
        """Close the connections."""
        for upstream in self._all:
            upstream.connections.close()
