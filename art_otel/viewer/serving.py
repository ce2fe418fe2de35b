"""Serving: the page and its API, for the browser of this machine; read only, but for labels where they may be written.

    HostCheck ─► ReadOnly ─► CookieToken ─► / and its two files
                                            /api/…  Api.answer, in threads
                                            /api/changes  waits for another generation
                                            /api/labels/…  Api.label, with --labels alone

Invariant: every address is listed here; whatever else is asked for gets 404. Answers are JSON or files of the package;
each names the generation that all of it is of, and none a path of this machine. It listens on loopback alone.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from art_otel.errors import ArtOtelError, UsageError
from art_otel.http import Address, CookieToken, HostCheck, HttpServer, ReadOnly, SecurityHeaders
from art_otel.version import __version__
from art_otel.viewer.addresses import NotFoundError, ReplacedError, decode_group_key, decode_trajectory_key
from art_otel.viewer.group import show_group
from art_otel.viewer.judging import DEFAULTS, PlanOptions
from art_otel.viewer.labels import LABELS_NAME, Change
from art_otel.viewer.listing import (
    asked_options,
    list_page,
    list_rows,
    list_texts,
    neighbors,
    read_address,
    read_number,
)
from art_otel.viewer.rollout import RecordedSpans, raw_rollout, show_rollout, show_rows
from art_otel.viewer.run import read_first, show_metrics, show_plan, show_run
from art_otel.viewer.snapshot import Snapshot, ViewedData
from art_otel.viewer.tokens import Tokenizer, show_tokens
from art_otel.viewer.verified import show_verifications

if TYPE_CHECKING:
    from starlette.types import ASGIApp

Query: TypeAlias = Mapping[str, str]
WAIT_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.5
_LONGEST_LABEL: Final = 100_000
"""Bytes of a request that writes."""
_STATUSES: Final = ((NotFoundError, 404), (ReplacedError, 409), (UsageError, 400))
_EXACT: Final = 1 << 53
_ENCODER: Final = msgspec.json.Encoder()
FOLDER: Final = Path(__file__).parent / "static"

TYPES: Final = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
}
"""Every file there is, with its type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """Answers of the data, with texts and spans where they are change. `live` says that the data may grow."""

    data: ViewedData
    tokenizer: Tokenizer | None = None
    spans: RecordedSpans | None = None
    live: bool = True

    def answer(self, path: str, query: Query) -> dict[str, Any]:
        """The answer of a path below `/api/`.

        Raises NotFoundError, UsageError, ReplacedError and StoreError.
        """
        snapshot = self.data.snapshot
        generation = query.get("generation")
        if generation and generation != snapshot.generation:
            raise ReplacedError("the dataset was replaced")
        return {"generation": snapshot.generation, **self._answer(snapshot, path, query)}

    def label(self, key: str, body: bytes) -> dict[str, Any]:
        """Write what the page says of a rollout. Raises NotFoundError, UsageError and StoreError."""
        snapshot, of = self.data.snapshot, decode_trajectory_key(key)
        row = snapshot.row_of(of)
        try:
            change = msgspec.json.decode(body, type=Change)
        except msgspec.DecodeError as error:
            raise UsageError(f"a label: {error}") from error
        try:
            snapshot.labels.give(of.source, of.rollout_id, of.attempt, change)
        except OSError as error:
            raise UsageError(f"{LABELS_NAME}: cannot be written: {error.strerror}") from error
        return {"generation": snapshot.generation, "row": show_rows(snapshot, [row])[0]}

    def _answer(self, snapshot: Snapshot, path: str, query: Query) -> dict[str, Any]:
        match path.split("/"):
            case ["info"]:
                return self._info(snapshot)
            case ["run"]:
                answer = show_run(snapshot, query)
                problem = answer["problem"]
                return answer | {"problem": problem and self.data.without_paths(problem)}
            case ["run", "read"]:
                return read_first(snapshot, query)
            case ["metrics"]:
                return show_metrics(snapshot)
            case ["trajectories", *rest]:
                return _listed(snapshot, rest, query)
            case ["rollouts", key, *rest]:
                return self._rollout(snapshot, snapshot.row_of(decode_trajectory_key(key)), rest, query)
            case ["groups", key]:
                return show_group(snapshot, decode_group_key(key), PlanOptions.read(query))
            case ["plan"]:
                return show_plan(snapshot, PlanOptions.read(query))
            case ["verify"]:
                return show_verifications(snapshot.sources)
            case _:
                raise NotFoundError("there is nothing at this address")

    def _rollout(self, snapshot: Snapshot, row: int, rest: list[str], query: Query) -> dict[str, Any]:
        match rest:
            case []:
                came_from = read_address(query.get("list", ""))
                options = asked_options(came_from)
                (shown,) = show_rows(snapshot, [row], options)
                group = {"group": shown["groupKey"], "sort": "reward", "order": "desc"}
                beside = neighbors(snapshot, row, group) if shown["groupKey"] else {}
                return {
                    "row": shown,
                    **show_rollout(snapshot, row, options or DEFAULTS, self.tokenizer, self.spans),
                    **neighbors(snapshot, row, came_from),
                    "groupPrevious": beside.get("previous"),
                    "groupNext": beside.get("next"),
                }
            case ["tokens"]:
                return show_tokens(
                    snapshot, row, read_number(query, "first", 0), PlanOptions.read(query), self.tokenizer
                )
            case ["raw"]:
                return raw_rollout(snapshot, row, query.get("part"))
            case _:
                raise NotFoundError("there is nothing at this address")

    def _info(self, snapshot: Snapshot) -> dict[str, Any]:
        names = [source.name for source in snapshot.sources]
        return {
            "version": __version__,
            "name": ", ".join(dict.fromkeys(names)),
            "sources": names,
            "hasTokenizer": self.tokenizer is not None,
            "hasRuns": any(source.run is not None for source in snapshot.sources),
            "hasSpans": self.spans is not None,
            "live": self.live,
            "canLabel": snapshot.labels.writable,
        }


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
            Route("/api/labels/{key}", self._label, methods=["POST"]),
            Route("/api/{path:path}", self._answer),
        ]
        guard = CookieToken(Starlette(routes=routes), "art-otel-view")
        self.token = guard.token
        self.code = guard.code
        writes = "/api/labels/" if api.data.snapshot.labels.writable else None
        self.asgi: ASGIApp = SecurityHeaders(HostCheck(ReadOnly(guard, writes), address))

    async def _file(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/") or "index.html"
        return Response(static_file(name), media_type=TYPES[name], headers={"cache-control": "no-cache"})

    async def _answer(self, request: Request) -> Response:
        path, query = request.path_params["path"], dict(request.query_params)
        return await self._responded(lambda: self._api.answer(path, query))

    async def _label(self, request: Request) -> Response:
        """Write a note, a label or a corrected reward of a rollout, and answer with its row."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _LONGEST_LABEL:
                return Response(status_code=413)
        key = request.path_params["key"]
        return await self._responded(lambda: self._api.label(key, bytes(body)))

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


class Viewer:
    """A server that runs in a thread of its own."""

    def __init__(self, api: Api, address: Address) -> None:
        if not address.is_loopback:
            raise UsageError(f"{address}: the viewer only serves this machine; use SSH to reach it from another")
        self._api = api
        self._application = Application(api, self._listening)
        self._server = HttpServer(self._application.asgi, address)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="art-otel viewer", daemon=True)

    @property
    def url(self) -> str:
        """The address to open, with its token."""
        return f"{self._server.url}/?token={self._application.token}"

    def one_time_url(self) -> str:
        """Give an address that opens the page once, within a minute: others may read the arguments of a browser."""
        return f"{self._server.url}/?code={self._application.code()}"

    def start(self) -> None:
        """Listen. Raises UsageError where the port is taken."""
        self._thread.start()
        try:
            self._run(self._server.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Answer the requests that have come, and stop."""
        self._application.stopping = True
        self._run(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._api.data.close()

    def _listening(self) -> Address:
        return Address.parse(self._server.url.partition("://")[2])

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _listed(snapshot: Snapshot, rest: list[str], query: Query) -> dict[str, Any]:
    match rest:
        case []:
            return list_page(snapshot, query)
        case ["ids"]:
            records = snapshot.outlines.records(list_rows(snapshot, query))
            return {"lines": [record["rollout_id"] for record in records]}
        case ["texts"]:
            return list_texts(snapshot, query)
        case _:
            raise NotFoundError("there is nothing at this address")


def to_json(answer: Mapping[str, Any]) -> bytes:
    """Encode the answer."""
    return _ENCODER.encode(_plain(answer))


def _plain(value: object) -> object:
    """The value as a browser reads it: no half characters, and integers that a float cannot hold as texts."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if value is None or isinstance(value, bool | float):  # what is not finite becomes null by itself
        return value
    if isinstance(value, int):
        return value if abs(value) <= _EXACT else str(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in cast(dict[object, object], value).items()}
    if isinstance(value, list | tuple):
        items = cast(list[Any], value)
        kinds = set(map(type, items))
        # Most of an answer are lists of token ids and their numbers.
        if kinds <= {float, bool, type(None)} or (kinds == {int} and min(items) >= -_EXACT and max(items) <= _EXACT):
            return items
        return [_plain(item) for item in items]
    if isinstance(value, Mapping):
        return _plain(dict(cast(Mapping[str, object], value)))
    return msgspec.to_builtins(value)


@cache
def static_file(name: str) -> bytes:
    """The bytes of a file of TYPES. Raises UsageError where the package was built without it."""
    try:
        return (FOLDER / name).read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"the page's {name} was not built: run `npm ci && npm run build` in art_otel/viewer/ui"
        ) from None
