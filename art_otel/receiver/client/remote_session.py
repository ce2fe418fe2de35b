"""RemoteSession: a session of a receiver in another process, over HTTP.

Invariant: an open connection says that this process lives, also while it does nothing else. A receiver that is
restarted, or out of reach for a while, costs nothing: a new session begins, and says what was handled.
"""

import asyncio
import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

import httpx
import msgspec

from art_otel.errors import UsageError
from art_otel.receiver.protocol.parcel import Ask, Parcel, decode_answer
from art_otel.receiver.protocol.receipt import Receipt
from art_otel.receiver.protocol.selection import Selection
from art_otel.receiver.protocol.session import Question

logger = logging.getLogger(__name__)

_CONNECT: Final = 10.0
_TIMEOUT: Final = httpx.Timeout(60.0, connect=_CONNECT)
_SILENCE: Final = 45.0
"""Seconds without a sign of the receiver after which the connection counts as broken."""
_PAUSE: Final = 0.5
_GONE: Final = 410
_TRY_AGAIN: Final = (429, 503)
_ANY: Final = Selection()


class RemoteSession:
    """A session of the consumer `consumer` with the receiver at `url`."""

    def __init__(self, url: str, consumer: str, token: str | None, certificate: str | None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        verify = True if certificate is None else ssl.create_default_context(cafile=certificate)
        self._path = f"/v1/rollouts/{consumer}"
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=_TIMEOUT, verify=verify)
        self._holding: asyncio.Task[None] | None = None
        self._id: asyncio.Future[str] | None = None

    async def open(self) -> Self:
        """Begin. Raises UsageError where there is no receiver, or it refuses."""
        try:
            await self._session()
        except httpx.HTTPError as error:
            await self._client.aclose()
            raise UsageError(f"{self._client.base_url}: no receiver answers: {error}") from error
        except UsageError:
            await self._client.aclose()
            raise
        return self

    async def take(self, question: Question) -> list[Parcel]:
        """As Session. It tries until the receiver answers."""
        failures = 0
        while True:
            try:
                answer = await self._ask(question)
                if answer is not None:
                    return answer
            except httpx.TransportError as error:
                failures += 1
                if failures & (failures - 1) == 0:  # at 1, 2, 4, 8, …
                    logger.warning("art-otel: %s does not answer, trying again: %s", self._client.base_url, error)
                await asyncio.sleep(_PAUSE)

    async def close(self, handled: Sequence[Receipt]) -> None:
        """As Session. What the receiver does not hear of is handed out again."""
        try:
            if handled:
                last = Question(handled=handled, holds=(), selection=_ANY, count=0, wait=0.0)
                async with asyncio.timeout(_CONNECT):
                    await self.take(last)
        except (TimeoutError, UsageError) as error:
            logger.warning("art-otel: %d rollouts could not be acknowledged: %s", len(handled), error)
        finally:
            await self._leave()
            await self._client.aclose()

    async def _ask(self, question: Question) -> list[Parcel] | None:
        """The answer; None where the session had ended."""
        ask = Ask(
            session=await self._session(),
            handled=list(question.handled),
            holds=list(question.holds),
            selection=question.selection,
            count=question.count,
            wait=question.wait,
        )
        response = await self._client.post(self._path, content=msgspec.json.encode(ask))
        if response.status_code == _GONE:
            await self._leave()
            return None
        _check(response)
        return decode_answer(response.content)

    async def _session(self) -> str:
        """The id of the session; a new one where there is none."""
        if self._holding is None or self._holding.done() or self._id is None:
            self._id = asyncio.get_running_loop().create_future()
            self._holding = asyncio.create_task(self._hold(self._id))
        return await asyncio.shield(self._id)

    async def _hold(self, session: "asyncio.Future[str]") -> None:
        """Hold the connection that keeps the session alive."""
        timeout = httpx.Timeout(_SILENCE, connect=_CONNECT)
        try:
            async with self._client.stream("GET", f"{self._path}/session", timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                _check(response)
                async for line in response.aiter_lines():
                    if line and not session.done():
                        session.set_result(line)
        except (httpx.HTTPError, UsageError) as error:
            if not session.done():
                session.set_exception(error)
        finally:
            session.cancel()

    async def _leave(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            with suppress(asyncio.CancelledError):
                await self._holding
            self._holding = None


def _check(response: httpx.Response) -> None:
    """Raise TransportError for what can be tried again, as where the receiver's disk is full, else UsageError."""
    if response.status_code in _TRY_AGAIN:
        raise httpx.TransportError(f"{response.status_code} {response.text.strip()}")
    if not response.is_success:
        raise UsageError(f"{response.url}: {response.status_code} {response.text.strip()}")
