"""Id server: the paths of vLLM that take and give token ids, and whether a server has them.

Invariant: each step is one request, with the agent's headers. What a server refuses before anything is sampled is a
Refusal; afterwards it is an error of the connection, because the agent has a part of its answer.

Source: vLLM 0.32 with `--enable-scale-out` (`entrypoints/scale_out`).
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from art_otel.errors import UsageError
from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.exchange.assembly import WireDialect
from art_otel.model_gateway.connections import Answer, BrokenOffError, RawHeaders, UpstreamError
from art_otel.model_gateway.upstreams import Upstream
from art_otel.spans import Value

logger = logging.getLogger(__name__)

PATHS: Final[Mapping[WireDialect, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
_GENERATE: Final = "/inference/v1/generate"
_PARSE: Final = "/v1/chat/completions/derender"
_TOKENIZE: Final = "/tokenize"
_DETOKENIZE: Final = "/detokenize"
_OK: Final = 200
_MISSING: Final = frozenset({400, 422})
"""How a server that can says that nothing was given to it."""

_NOT_FOUND: Final = 404
_NO_RESPONSE: Final = "resp_none"
_STORE_SETTING: Final = b"VLLM_ENABLE_RESPONSES_API_STORE"

_SAY_NOTHING: Final = frozenset({401, 403, 408, 429, 500, 502, 503, 504})
_SAID: Final = 300
_PAUSES: Final = (0.1, 0.5)
"""Seconds before what was sampled is parsed again."""

_FORGET_SECONDS: Final = 600.0
"""After these a server that could not is asked again: it may be another one behind the same address."""

_REPLACED: Final = frozenset({b"content-type", b"accept-encoding"})
_HEADERS: Final = ((b"content-type", b"application/json"), (b"accept-encoding", b"identity"))
_ENCODE: Final = msgspec.json.Encoder().encode
_OBJECT: Final = msgspec.json.Decoder(AnswerFields)
_OBJECTS: Final = msgspec.json.Decoder(list[AnswerFields])


class Sends(Protocol):
    """The way to servers."""

    async def send(self, upstream: Upstream, method: str, target: str, headers: RawHeaders, body: bytes) -> Answer:
        """Send a request."""
        ...


class Refusal(Exception):  # noqa: N818 # not an error: the request goes another way
    """Why a request is not sampled from ids; it goes to the server as it is."""


class Samplers:
    """Which servers sample from ids, each asked once, and again some minutes after it could not.

    And which of them store responses, so that their clients may ask for one by its id.
    """

    def __init__(self, servers: Sends) -> None:
        self._servers = servers
        self._can: set[str] = set()
        self._could_not: dict[str, float] = {}
        self._stores: dict[str, bool] = {}

    async def can(self, upstream: Upstream, headers: RawHeaders = ()) -> bool:
        """Ask a server, unless it is known. Raises UpstreamError where it cannot be reached."""
        now, asked_at = time.monotonic(), self._could_not.get(upstream.url)
        if upstream.url in self._can:
            return True
        if asked_at is not None and now < asked_at + _FORGET_SECONDS:
            return False
        answered = await IdServer(self._servers, upstream, headers).send(_GENERATE, {})
        body = await read(answered)
        can = answered.status in _MISSING and b"token_ids" in body
        if can:
            self._can.add(upstream.url)
        elif answered.status not in _SAY_NOTHING:
            is_news = upstream.url not in self._could_not  # the first calls of several agents ask at once
            self._could_not[upstream.url] = now
            if is_news:
                logger.warning(
                    "art-otel: %s does not sample from ids: passthrough (%d)", upstream.shown, answered.status
                )
        return can

    async def check_store(self, upstream: Upstream, headers: RawHeaders, model: Value) -> None:
        """Ask a server whether it keeps responses to store. Raises Refusal where it does, or does not say so.

        It is asked for what it can do only with a store, about a response that is not there. vLLM without one refuses
        that, and ignores `store`; what another keeps must be sampled by itself, or nobody can ask for it by its id.
        """
        if upstream.url not in self._stores:
            asked = {"model": model, "input": "", "background": True, "previous_response_id": _NO_RESPONSE}
            answered = await IdServer(self._servers, upstream, headers).send(PATHS["responses"], asked)
            body = await read(answered)
            if answered.status in _MISSING and _STORE_SETTING in body:
                self._stores[upstream.url] = False
            elif answered.status == _NOT_FOUND and _NO_RESPONSE.encode() in body:
                self._stores[upstream.url] = True
            else:
                raise Refusal(f"store: {answered.status} {said(body)}")
        if self._stores[upstream.url]:
            raise Refusal("store")

    async def check(self, upstream: Upstream) -> None:
        """Ask a server at the start. Raises UsageError where it does not sample from ids, or does not answer."""
        try:
            can = await self.can(upstream) or upstream.url not in self._could_not
        except UpstreamError as error:
            raise UsageError(f"--tokens exact: {upstream.shown} cannot be reached: {error}") from error
        if not can:
            raise UsageError(
                f"--tokens exact: {upstream.shown} does not sample from ids: start vLLM 0.32 or later with"
                " --enable-scale-out, or use --tokens auto"
            )


@dataclass(frozen=True, slots=True)
class IdServer:
    """One server, for one request of an agent, with its headers."""

    servers: Sends
    upstream: Upstream
    headers: RawHeaders

    async def render(self, dialect: WireDialect, request: AnswerFields) -> AnswerFields:
        """What the server would sample from."""
        unstreamed = {name: value for name, value in request.items() if name not in ("stream", "stream_options")}
        body = await self._before(f"{PATHS[dialect]}/render", unstreamed)
        if dialect != "completions":
            return _OBJECT.decode(body)
        rendered = _OBJECTS.decode(body)
        if len(rendered) != 1:
            raise Refusal("several prompts in a request")
        return rendered[0]

    async def generate(self, request: AnswerFields) -> Answer:
        """Let the server sample from ids. Raises Refusal where it does not."""
        answered = await self.send(_GENERATE, request)
        if answered.status != _OK:
            raise Refusal(f"{_GENERATE}: {answered.status} {said(await read(answered))}")
        return answered

    async def decode(self, model: str, ids: Sequence[int]) -> str:
        """The text of ids."""
        body = await self._before(_DETOKENIZE, {"model": model, "tokens": [*ids]})
        return str(_OBJECT.decode(body)["prompt"])

    async def parse(self, request: AnswerFields) -> AnswerFields:
        """What the server's parsers make of ids. Raises BrokenOffError where it refuses."""
        return await self._after(_PARSE, request)

    async def encode(self, model: str, text: str) -> list[int]:
        """The ids of a text. Raises BrokenOffError where the server refuses."""
        ask = {"model": model, "prompt": text, "add_special_tokens": False}
        return (await self._after(_TOKENIZE, ask))["tokens"]

    async def send(self, path: str, request: AnswerFields) -> Answer:
        """Send a request of ours."""
        kept = [(name, value) for name, value in self.headers if name not in _REPLACED]
        return await self.servers.send(self.upstream, "POST", path, [*kept, *_HEADERS], _ENCODE(request))

    async def _before(self, path: str, request: AnswerFields) -> bytes:
        status, body = await self._asked(path, request)
        if status != _OK:
            raise Refusal(f"{path}: {status} {said(body)}")
        return body

    async def _after(self, path: str, request: AnswerFields) -> AnswerFields:
        """Ask again where that fails, because what was sampled would be lost."""
        for pause in _PAUSES:
            with suppress(UpstreamError):
                return await self._parsed(path, request)
            await asyncio.sleep(pause)
        return await self._parsed(path, request)

    async def _parsed(self, path: str, request: AnswerFields) -> AnswerFields:
        status, body = await self._asked(path, request)
        if status != _OK:
            raise BrokenOffError(f"{path}: {status} {said(body)}")
        return _OBJECT.decode(body)

    async def _asked(self, path: str, request: AnswerFields) -> tuple[int, bytes]:
        answered = await self.send(path, request)
        return answered.status, await read(answered)


async def read(answered: Answer) -> bytes:
    """The body of an answer, which is closed then."""
    try:
        return b"".join([piece async for piece in answered.pieces()])
    finally:
        answered.close()


def said(body: bytes) -> str:
    """The beginning of what a server says."""
    return body[:_SAID].decode(errors="replace")
