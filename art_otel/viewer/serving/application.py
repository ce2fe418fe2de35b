"""Application: the page and its API over HTTP, to read only.

    HostCheck ─► ReadOnly ─► CookieToken ─► / and its two files
                                            /api/…  Api.answer, in threads
                                            /api/changes  waits for another generation

Invariant: every address is listed here; whatever else is asked for gets 404. Answers are JSON or files of the package.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from art_otel.errors import ArtOtelError, UsageError
from art_otel.http import Address, CookieToken, HostCheck, ReadOnly, SecurityHeaders
from art_otel.viewer.problems import NotFoundError, ReplacedError
from art_otel.viewer.serving.api import Api
from art_otel.viewer.serving.plain import to_json
from art_otel.viewer.serving.static_files import TYPES, static_file

if TYPE_CHECKING:
    from starlette.types import ASGIApp

WAIT_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.5
_STATUSES: Final = ((NotFoundError, 404), (ReplacedError, 409), (UsageError, 400))


class Application:
    """The ASGI application `asgi`, the `token` that opens it, and `code`, which gives one that does so once.

    `stopping` ends answers that wait.
    """

    def __init__(self, api: Api, address: Callable[[], Address]) -> None:
        self._api = api
        self.stopping = False
        routes = [
            Route("/", self._file),
            *(Route(f"/{name}", self._file) for name in TYPES if name != "index.html"),
            Route("/api/changes", self._changes),
            Route("/api/{path:path}", self._answer),
        ]
        guard = CookieToken(Starlette(routes=routes), "art-otel-view")
        self.token = guard.token
        self.code = guard.code
        self.asgi: ASGIApp = SecurityHeaders(HostCheck(ReadOnly(guard), address))

    async def _file(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/") or "index.html"
        return Response(static_file(name), media_type=TYPES[name], headers={"cache-control": "no-cache"})

    async def _answer(self, request: Request) -> Response:
        path, query = request.path_params["path"], dict(request.query_params)
        runs = tuple(request.query_params.getlist("run"))
        return await self._responded(lambda: self._api.answer(path, query, runs))

    async def _changes(self, request: Request) -> Response:
        generation, deadline = request.query_params.get("generation", ""), time.monotonic() + WAIT_SECONDS
        while True:
            response, now = await self._generation()
            if now != generation or self.stopping or time.monotonic() >= deadline:
                return response
            await asyncio.sleep(_LOOK_SECONDS)

    async def _generation(self) -> tuple[Response, str | None]:
        seen: list[str] = []

        def look() -> dict[str, Any]:
            seen.append(self._api.data.snapshot.generation)
            return {"generation": seen[0]}

        return await self._responded(look), seen[0] if seen else None

    async def _responded(self, work: Callable[[], dict[str, Any]]) -> Response:
        """Answer with what the work returns, or with its error, as JSON."""
        status = 200
        try:
            answer = await run_in_threadpool(work)
        except ArtOtelError as error:
            status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
            answer = {"error": self._api.data.without_paths(str(error))}
            if status == 409:
                answer["generation"] = await run_in_threadpool(lambda: self._api.data.snapshot.generation)
        content = await run_in_threadpool(to_json, answer)
        return Response(content, status, media_type="application/json", headers={"cache-control": "no-store"})
