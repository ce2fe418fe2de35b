"""Rollout paths: HTTP requests by which a trainer or an environment ends a rollout, or gives it a reward.

    POST /rollout/ID/end      {"reward": 1, "status": "ok", "metadata": {…}}
    POST /rollout/ID/reward   {"reward": 0.5, "name": "style", "response_id": "chatcmpl-…"}

    200                       {"rollout_id": "ID", "attempt": 1, "calls": 3}

Invariant: the answer 200 means that the spool has it. `calls` is how many calls of the attempt went through this
gateway. After any other answer, or none, the client may send the same request again.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope

from art_otel.errors import UsageError
from art_otel.model_gateway.addresses import END, PREFIX, REWARD, RequestTarget, read_target
from art_otel.model_gateway.own_answers import error_response
from art_otel.model_gateway.rollouts import GatewayRollout, GivenReward, RolloutEnd, Rollouts, Write

_Told = TypeVar("_Told", RolloutEnd, GivenReward)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutPaths:
    """The routes of these paths, for the gateway's `rollouts`.

    `read` reads the body of a request; `write` and `synced` write to the spool. `is_of_app` says whether a rollout runs
    in the gateway's own process. `is_elsewhere` gives the request to another worker if that has the rollout.
    """

    rollouts: Rollouts
    read: Callable[[Scope, Receive], AbstractAsyncContextManager[bytes]]
    write: Write
    synced: Callable[[], Awaitable[bool]]
    is_of_app: Callable[[str], bool]
    is_elsewhere: Callable[[Scope, bytes, str], Awaitable[bool]] | None

    @property
    def routes(self) -> list[Route]:
        """The routes of these paths."""
        ways = {END: self._end, REWARD: self._reward}
        return [
            Route(f"{PREFIX}{{rollout_id:path}}{end}", way, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
            for end, way in ways.items()
        ]

    async def _end(self, request: Request) -> Response:
        def tell(target: RequestTarget, end: RolloutEnd) -> GatewayRollout | None:
            return self.rollouts.end(target.rollout_id or "", end, target.settings, self.write)

        return await self._answer(request, RolloutEnd, tell)

    async def _reward(self, request: Request) -> Response:
        def tell(target: RequestTarget, reward: GivenReward) -> GatewayRollout | None:
            return self.rollouts.reward(target.rollout_id or "", reward, target.settings, self.write)

        return await self._answer(request, GivenReward, tell)

    async def _answer(
        self, request: Request, kind: type[_Told], tell: Callable[[RequestTarget, _Told], GatewayRollout | None]
    ) -> Response:
        """Read the body of a request as `kind`, write it to the rollout by `tell`, and answer."""
        if request.method != "POST":
            response = error_response(405, f"{request.method} {request.url.path}: send it with POST")
            response.headers["allow"] = "POST"
            return response
        try:
            target = read_target(request.scope["raw_path"].decode("ascii"), request.url.query)
            async with self.read(request.scope, request.receive) as body:
                key = target.rollout_id or ""
                if self.is_elsewhere is not None and await self.is_elsewhere(request.scope, body, key):
                    return Response()  # is not sent: the other process has the connection, and answers
                told = msgspec.json.decode(body or b"{}", type=kind)
        except (UsageError, UnicodeDecodeError, msgspec.DecodeError) as error:
            fields = ", ".join(kind.__struct_fields__) if isinstance(error, msgspec.ValidationError) else ""
            there = f"; the fields are {fields}" if fields else ""
            if isinstance(error, msgspec.DecodeError) and not fields:
                there = '; send an object of JSON, such as {"reward": 1}'
            return error_response(400, f"POST {request.url.path}: {error}{there}")
        if self.is_of_app(target.rollout_id or ""):  # a reward here would be of another rollout
            ends = "this rollout ends when its function returns; give rewards in the function, with art_otel.reward"
            return error_response(409, f"POST {request.url.path}: {ends}")
        rollout = tell(target, told)
        if rollout is None or not await self.synced():
            return error_response(503, "this cannot be written now, because the disk may be full; send it again")
        return JSONResponse(
            {"rollout_id": rollout.rollout_id, "attempt": rollout.number, "calls": rollout.calls.started}
        )
