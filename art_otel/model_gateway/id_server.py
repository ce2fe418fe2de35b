"""Id server: vLLM's paths that take and return token ids.

Invariant: each step is one request, with the agent's headers (its API key). If the server refuses a step before
anything is sampled, that raises Refusal, and the call goes another way. Afterwards it raises BrokenOffError, because
the agent may have a part of its answer already.

Source: vLLM 0.32 with `--enable-scale-out` (`entrypoints/scale_out`).
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.assembly import WireDialect
from art_otel.model_gateway.upstreams import Answer, BrokenOffError, RawHeaders, Upstream, UpstreamError

GENERATE: Final = "/inference/v1/generate"
_PARSE: Final = "/v1/chat/completions/derender"
_TOKENIZE: Final = "/tokenize"
_DETOKENIZE: Final = "/detokenize"
OK: Final = 200
_SAID: Final = 300
_PAUSES: Final = (0.1, 0.5)
"""Seconds before the second and the third try to parse what was sampled."""

_REPLACED: Final = frozenset({b"content-type", b"accept-encoding"})
_HEADERS: Final = ((b"content-type", b"application/json"), (b"accept-encoding", b"identity"))
_ENCODE: Final = msgspec.json.Encoder().encode
_OBJECT: Final = msgspec.json.Decoder(AnswerFields)
_OBJECTS: Final = msgspec.json.Decoder(list[AnswerFields])


class Sends(Protocol):
    """Sends requests to servers, as `Upstreams` does."""

    async def send(self, upstream: Upstream, method: str, target: str, headers: RawHeaders, body: bytes) -> Answer:
        """Send a request, and return the answer once its headers are there. Raises UpstreamError."""
        ...


class Refusal(Exception):  # noqa: N818 # not an error: the request goes another way
    """Says why a request cannot be sampled from ids; the agent's own request is sent instead."""


@dataclass(frozen=True, slots=True)
class IdServer:
    """The id paths of one server, for one request of an agent, with that request's headers."""

    servers: Sends
    upstream: Upstream
    headers: RawHeaders

    async def render(self, dialect: WireDialect, request: AnswerFields) -> AnswerFields:
        """The ids and settings that the server would sample this request from. Raises Refusal."""
        unstreamed = {name: value for name, value in request.items() if name not in ("stream", "stream_options")}
        body = await self._before(f"{API_DIALECTS[dialect].path}/render", unstreamed)
        if dialect != "completions":
            return _OBJECT.decode(body)
        rendered = _OBJECTS.decode(body)
        if len(rendered) != 1:
            raise Refusal("several prompts in a request")
        return rendered[0]

    async def generate(self, request: AnswerFields) -> Answer:
        """Let the server sample from ids; returns its answer, whole or a stream. Raises Refusal where it refuses."""
        answered = await self.send(GENERATE, request)
        if answered.status != OK:
            raise Refusal(f"{GENERATE}: {answered.status} {said(await read(answered))}")
        return answered

    async def decode(self, model: str, ids: Sequence[int]) -> str:
        """The text of ids. Raises Refusal."""
        body = await self._before(_DETOKENIZE, {"model": model, "tokens": [*ids]})
        return str(_OBJECT.decode(body)["prompt"])

    async def parse(self, request: AnswerFields) -> AnswerFields:
        """The message that the server's parsers make of ids. Raises BrokenOffError where the server refuses."""
        return await self._after(_PARSE, request)

    async def encode(self, model: str, text: str) -> list[int]:
        """The ids of a text. Raises BrokenOffError where the server refuses."""
        ask = {"model": model, "prompt": text, "add_special_tokens": False}
        return (await self._after(_TOKENIZE, ask))["tokens"]

    async def send(self, path: str, request: AnswerFields) -> Answer:
        """Send a JSON request to a path of the server. Raises UpstreamError."""
        kept = [(name, value) for name, value in self.headers if name not in _REPLACED]
        return await self.servers.send(self.upstream, "POST", path, [*kept, *_HEADERS], _ENCODE(request))

    async def _before(self, path: str, request: AnswerFields) -> bytes:
        status, body = await self._asked(path, request)
        if status != OK:
            raise Refusal(f"{path}: {status} {said(body)}")
        return body

    async def _after(self, path: str, request: AnswerFields) -> AnswerFields:
        """Ask up to three times: a failure here would lose what was sampled already."""
        for pause in _PAUSES:
            with suppress(UpstreamError):
                return await self._parsed(path, request)
            await asyncio.sleep(pause)
        return await self._parsed(path, request)

    async def _parsed(self, path: str, request: AnswerFields) -> AnswerFields:
        status, body = await self._asked(path, request)
        if status != OK:
            raise BrokenOffError(f"{path}: {status} {said(body)}")
        return _OBJECT.decode(body)

    async def _asked(self, path: str, request: AnswerFields) -> tuple[int, bytes]:
        answered = await self.send(path, request)
        return answered.status, await read(answered)


async def read(answered: Answer) -> bytes:
    """Read the whole body of an answer, and close it."""
    try:
        return b"".join([piece async for piece in answered.pieces()])
    finally:
        answered.close()


def said(body: bytes) -> str:
    """The beginning of a body, for messages."""
    return body[:_SAID].decode(errors="replace")
