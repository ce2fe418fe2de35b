"""Rollouts over HTTP: the routes that `art_otel.connect` uses.

    GET  /v1/rollouts/CONSUMER/session   stays open as long as the session lives; its first line is the session's id
    POST /v1/rollouts/CONSUMER           an `Ask` as JSON; the answer holds receipts and trajectories

Invariant: a session ends with its connection, whatever became of its process; then what it had is given to the next.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from art_otel.errors import UsageError
from art_otel.http import Bodies
from art_otel.receiver.delivery.local_session import LocalSession
from art_otel.receiver.protocol.parcel import Ask, encode_answer
from art_otel.receiver.protocol.session import Question, SessionEndedError

_PING_EVERY: Final = 10.0
_MAX_WAIT: Final = 30.0
_MAX_COUNT: Final = 256


class RolloutRoutes:
    """`open_session` begins a session of a consumer."""

    def __init__(self, open_session: Callable[[str], LocalSession], bodies: Bodies) -> None:
        self._open_session = open_session
        self._bodies = bodies
        self._sessions: dict[str, LocalSession] = {}
        self._stopping = asyncio.Event()
        self.routes = [
            Route("/v1/rollouts/{consumer}/session", self._hold, methods=["GET"]),
            Route("/v1/rollouts/{consumer}", self._take, methods=["POST"]),
        ]

    async def stop(self) -> None:
        """End the sessions: their processes begin others at the next server."""
        self._stopping.set()

    async def _hold(self, request: Request) -> Response:
        try:
            session = self._open_session(request.path_params["consumer"])
        except UsageError as error:
            return Response(str(error), 400)
        except OSError as error:
            return Response(f"what is acknowledged cannot be written: {error}", 503)
        return StreamingResponse(self._pings(session), media_type="text/plain")

    async def _pings(self, session: LocalSession) -> AsyncIterator[str]:
        self._sessions[session.id] = session
        try:
            yield f"{session.id}\n"
            while not self._stopping.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _PING_EVERY)
                yield "\n"
        finally:
            del self._sessions[session.id]
            await session.close()

    async def _take(self, request: Request) -> Response:
        try:
            async with self._bodies.read(request) as body:
                ask = msgspec.json.decode(body, type=Ask)
        except msgspec.DecodeError as error:
            return Response(f"not a question: {error}", 400)
        session = self._sessions.get(ask.session)
        if session is None:
            return Response("the session has ended; begin a new one", 410)
        question = Question(
            handled=ask.handled,
            holds=ask.holds,
            selection=ask.selection,
            count=min(ask.count, _MAX_COUNT),
            wait=min(ask.wait, _MAX_WAIT),
        )
        try:
            parcels = await session.take(question)
        except SessionEndedError:
            return Response("the session has ended; begin a new one", 410)
        except OSError as error:
            return Response(f"what is acknowledged cannot be written: {error}", 503)
        return Response(encode_answer(parcels), media_type="application/msgpack")
