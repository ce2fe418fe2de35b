"""Client: the trainer's side, which asks a receiver for finished rollouts. It imports nothing of a server.

    connect ─► RemoteSession: questions over HTTP ─► ReceivedRollouts: what a trainer iterates over

Invariant: an acknowledged rollout is noted on the receiver's disk; all others are delivered again. If the receiver is
restarted, or out of reach for a while, the client begins a new session and sends its acknowledgments there.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Self, Unpack

import httpx
import msgspec

from art_otel.errors import UsageError
from art_otel.live.delivery import Acknowledgment, DeliveredRollouts, DeliveredTrajectory, Question
from art_otel.receiver.protocol import (
    Lease,
    ReceiverSelection,
    ReceiverSession,
    SelectionOptions,
    SessionRequest,
    check_consumer,
    decode_answer,
)

logger = logging.getLogger(__name__)

_CONNECT: Final = 10.0
_TIMEOUT: Final = httpx.Timeout(60.0, connect=_CONNECT)
_SILENCE: Final = 45.0
"""Seconds without a byte from the receiver after which the connection counts as broken. It sends one every 10 s."""
_PAUSE: Final = 0.5
"""Seconds before the next try to reach the receiver."""
_MOST_BROKEN_OFF: Final = 3
"""So many connections in a row that break off mean that the server speaks no HTTP. Fewer may be a receiver that is
being restarted."""
_GONE: Final = 410
_TRY_AGAIN: Final = (429, 503)


class ReceivedRollouts(DeliveredRollouts):
    """Finished rollouts, each once, as soon as they have ended. `url` is the address of the receiver.

        async for trajectory in rollouts:
            ...
        async for group in rollouts.groups(size=8, timeout=60):
            ...

    The loops wait for new rollouts until you leave them.
    """

    def __init__(self, url: str, session: ReceiverSession, selection: ReceiverSelection) -> None:
        super().__init__(session)
        self.url = url
        self._receiver = session
        session.selection = selection

    def select(self, **selection: Unpack[SelectionOptions]) -> None:
        """Change the selection from now on, such as after an update of the policy. Options as of `connect`."""
        self._receiver.selection = ReceiverSelection(**selection)


@asynccontextmanager
async def connect(
    url: str = "http://127.0.0.1:4318",
    *,
    token: str | None = None,
    certificate: str | Path | None = None,
    consumer: str = "trainer",
    wait: float | None = 60.0,
    **selection: Unpack[SelectionOptions],
) -> AsyncGenerator[ReceivedRollouts]:
    """Get finished rollouts from a running `art-otel serve`.

        async with art_otel.connect("http://127.0.0.1:4318") as rollouts:
            async for trajectory in rollouts:
                ...

    - `consumer` is a name. Each name gets every rollout once. Programs with the same name share the rollouts.
    - Asking for the next rollout acknowledges the one before. Leaving the block without an exception does so too. If a
      program dies, the rollouts that it did not acknowledge are given again.
    - Select rollouts by `split`, the `model` of any of their calls, the `policy_version` of their first call, at least
      `min_policy_version`, or an end at most `max_age` seconds ago. Other rollouts stay for other programs.
    - `certificate` is a PEM file to trust. `wait` is how many seconds to wait for the receiver to start, None forever.

    Raises UsageError if no receiver answers in this time, or if it refuses.
    """
    session = RemoteSession(url, consumer, token, None if certificate is None else str(certificate))
    async with ReceivedRollouts(url, await session.open(wait), ReceiverSelection(**selection)) as rollouts:
        yield rollouts


class RemoteSession:
    """A session of a consumer with the receiver at `url`.

    One connection stays open as long as the session: by it the receiver knows that this process lives, also while a
    training step takes an hour. Raises UsageError for an invalid name, address or certificate.
    """

    def __init__(self, url: str, consumer: str, token: str | None, certificate: str | None) -> None:
        check_consumer(consumer)
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"connect({url!r}): write the address with http:// or https://, as in 'http://{url}'")
        self._url = url
        self._path = f"/v1/rollouts/{consumer}"
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        is_tls = certificate is not None or url.startswith("https://")
        # Plain HTTP gets an empty context: reading the system's certificates takes 0.1 s.
        verify = _trusting(certificate) if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=_TIMEOUT, verify=verify)
        self.selection = ReceiverSelection()
        self._holding: asyncio.Task[None] | None = None
        self._id: asyncio.Future[str] | None = None

    async def open(self, wait: float | None) -> Self:
        """Begin the session, within `wait` seconds (None: for ever).

        Raises UsageError if no receiver answers in time, or if it refuses.
        """
        deadline = time.monotonic() + (float("inf") if wait is None else wait)
        is_told = False
        broken_off = 0
        try:
            while True:
                try:
                    await self._session()
                except httpx.TransportError as error:
                    why = _explained(error, self._url)
                    broken_off = broken_off + 1 if _is_broken_off(error) else 0
                    # A wrong certificate, or a server of another protocol, does not change by waiting.
                    may_come_up = broken_off < _MOST_BROKEN_OFF and not isinstance(_cause_of(error), ssl.SSLError)
                    if not may_come_up or time.monotonic() >= deadline:
                        raise UsageError(f"{self._url}: {why}") from error
                    if not is_told:
                        logger.warning("art-otel: waiting for the receiver at %s: %s", self._url, why)
                    is_told = True
                    await asyncio.sleep(_PAUSE)
                else:
                    return self
        except BaseException:
            await self._leave()
            await self._client.aclose()
            raise

    async def take(self, question: Question) -> list[DeliveredTrajectory]:
        """Answer a question of the loop (see `DeliverySession`). Tries again until the receiver answers."""
        failures = 0
        while True:
            try:
                # None: the session has ended. The same question is asked in a new one.
                answer = await self._ask(question)
                if answer is not None:
                    return [lease.unpack() for lease in answer]
            except httpx.TransportError as error:
                failures += 1
                if failures & (failures - 1) == 0:  # at 1, 2, 4, 8, …
                    logger.warning("art-otel: %s: %s; trying again", self._url, _explained(error, self._url))
                await asyncio.sleep(_PAUSE)

    async def close(self, handled: Sequence[Acknowledgment]) -> None:
        """Acknowledge what was handled, and end the session.

        If the receiver cannot be reached, it delivers these rollouts again, and the log says so.
        """
        try:
            if handled:
                last = Question(handled=handled, count=0)
                async with asyncio.timeout(_CONNECT):
                    await self.take(last)
        except (TimeoutError, UsageError) as error:
            why = str(error) or f"the receiver did not answer within {_CONNECT:.0f} seconds"
            message = "art-otel: %s: %d rollouts could not be acknowledged, so they will be delivered again: %s"
            logger.warning(message, self._url, len(handled), why)
        finally:
            await self._leave()
            await self._client.aclose()

    async def _ask(self, question: Question) -> list[Lease] | None:
        """Return the receiver's answer; None if it does not know the session any more, as after a restart."""
        ask = SessionRequest(
            session=await self._session(),
            handled=list(question.handled),
            holds=list(question.holds),
            selection=self.selection,
            count=question.count,
            wait=question.wait,
            whole_groups=question.whole_groups,
        )
        response = await self._client.post(self._path, content=msgspec.json.encode(ask))
        if response.status_code == _GONE:
            await self._leave()
            return None
        _check(response)
        return decode_answer(response.content)

    async def _session(self) -> str:
        """Return the id of the session; begin a new session where there is none."""
        if self._holding is None or self._holding.done() or self._id is None:
            self._id = asyncio.get_running_loop().create_future()
            self._holding = asyncio.create_task(self._hold(self._id))
        return await asyncio.shield(self._id)

    async def _hold(self, session: "asyncio.Future[str]") -> None:
        """Hold the connection that keeps the session alive."""
        timeout = httpx.Timeout(_SILENCE, connect=_CONNECT)
        try:
            async with self._client.stream("POST", f"{self._path}/session", timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                _check(response)
                async for line in response.aiter_lines():
                    if line and not session.done():
                        session.set_result(line)
            if not session.done():
                session.set_exception(httpx.RemoteProtocolError("the answer ended before the session began"))
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


class _SessionBusyError(httpx.TransportError):
    """The receiver answered that it cannot take a question now, for example because its disk is full."""


def _check(response: httpx.Response) -> None:
    """Raise _SessionBusyError for an answer after which to try again, UsageError for any other that is no success."""
    if response.is_success:
        return
    text = response.text.strip()
    if response.status_code in _TRY_AGAIN:
        raise _SessionBusyError(f"it answers {response.status_code}: {text}")
    if response.status_code == 404:
        raise UsageError(f"{response.url}: 404: there is no art-otel receiver at this address")
    raise UsageError(f"{response.url}: {response.status_code}: {text}")


def _trusting(certificate: str | None) -> ssl.SSLContext:
    """A TLS context that trusts one certificate, or (None) those of the system, whose reading takes 0.1 s."""
    try:
        return ssl.create_default_context(cafile=certificate)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"connect(certificate={certificate!r}): give a PEM file: {error}") from error


def _is_broken_off(error: httpx.TransportError) -> bool:
    """Whether a server accepted the connection and broke it off: one that is being stopped, or that speaks no HTTP."""
    return not isinstance(error, (httpx.ConnectError, httpx.TimeoutException, _SessionBusyError))


def _explained(error: httpx.TransportError, url: str) -> str:
    """What went wrong in words for the user, and what to write instead."""
    cause = _cause_of(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({cause.verify_message}): give connect(…, certificate='ca.pem')"
    if isinstance(cause, ssl.SSLError):
        return f"the server does not speak TLS there ({cause.reason}): write http://, or the port of its HTTPS"
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
        instead = " or TLS (https://)" if url.startswith("http://") else ""
        return (
            f"the server does not speak HTTP there, maybe gRPC{instead}: write the address that `serve` printed for"
            " OTLP/HTTP"
        )
    if isinstance(error, _SessionBusyError):
        return str(error)
    return f"no receiver answers ({error or type(error).__name__})"


def _cause_of(error: BaseException) -> BaseException:
    """The first exception of the chain: httpx wraps it."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return error
