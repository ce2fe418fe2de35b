"""Rollout paths: what a trainer or an environment says of a rollout, by HTTP: its end, and rewards.

    POST /rollout/ID/end      {"reward": 1, "status": "ok", "metadata": {…}}
    POST /rollout/ID/reward   {"reward": 0.5, "name": "style", "response_id": "chatcmpl-…"}

Invariant: 200 says that it is written. Whoever got another answer may say it again.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from art_otel.errors import UsageError
from art_otel.model_gateway.addresses import PREFIX, RequestTarget, read_target
from art_otel.model_gateway.responding import error_response
from art_otel.model_gateway.rollouts import GivenReward, RolloutEnd, Rollouts, Write

_END: Final = "/end"
_REWARD: Final = "/reward"
_Told = TypeVar("_Told", RolloutEnd, GivenReward)


def is_of_rollout(path: str) -> bool:
    """Whether a path is one of these."""
    return path.startswith(PREFIX) and path.endswith((_END, _REWARD))


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutPaths:
    """Answers what is said of `rollouts`. `read` gives the body of a request.

    `is_of_app` says which of them run in the gateway's own process.
    """

    rollouts: Rollouts
    read: Callable[[Request], AbstractAsyncContextManager[bytes]]
    write: Write
    synced: Callable[[], Awaitable[bool]]
    is_of_app: Callable[[str], bool]

    @property
    def routes(self) -> list[Route]:
        """The routes of these paths."""
        ways = {_END: self._end, _REWARD: self._reward}
        return [Route(f"{PREFIX}{{rollout_id:path}}{end}", way, methods=["POST"]) for end, way in ways.items()]

    async def _end(self, request: Request) -> Response:
        def tell(target: RequestTarget, end: RolloutEnd) -> bool:
            return self.rollouts.end(target.rollout_id or "", end, target.settings, self.write)

        return await self._answer(request, RolloutEnd, tell)

    async def _reward(self, request: Request) -> Response:
        def tell(target: RequestTarget, reward: GivenReward) -> bool:
            return self.rollouts.reward(target.rollout_id or "", reward, self.write)

        return await self._answer(request, GivenReward, tell)

    async def _answer(
        self, request: Request, kind: type[_Told], tell: Callable[[RequestTarget, _Told], bool]
    ) -> Response:
        """Read what is said of a rollout, write it, and answer."""
        try:
            target = read_target(request.scope["raw_path"].decode("ascii"), request.url.query)
            async with self.read(request) as body:
                told = msgspec.json.decode(body or b"{}", type=kind)
        except (UsageError, UnicodeDecodeError, msgspec.DecodeError) as error:
            return error_response(400, f"POST {request.url.path}: {error}")
        if self.is_of_app(target.rollout_id or ""):  # a reward here would be of another rollout
            ends = "this rollout ends when its function returns; give rewards there, with art_otel.reward"
            return error_response(409, f"POST {request.url.path}: {ends}")
        if not (tell(target, told) and await self.synced()):
            return error_response(503, "this cannot be written now: the disk may be full; send it again")
        return JSONResponse({"rollout_id": target.rollout_id})
