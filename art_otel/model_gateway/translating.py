"""Translating: which requests go to their server as Chat Completions, because it has no other way, or none with ids.

    the server lacks the dialect (404, 405, 501)              translated
    it has the dialect, and samples it from ids (`exact`)      as it is
    it has the dialect, and its Chat Completions give ids      translated, unless Chat cannot say the request, or the
                                                               policy does not learn from the call
    everything else                                            as it is

Invariant: a server is asked at most once in some minutes what it has: each path with an empty request, which samples
nothing, and Chat Completions for one token with its id. What it does not say clearly changes nothing.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from art_otel import attributes as names
from art_otel.conventions.values import json_object
from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.attributes import answer_attributes
from art_otel.exchange.chat_request import UntranslatableError
from art_otel.exchange.exchange import Exchange
from art_otel.exchange.gemini import is_array
from art_otel.exchange.translation import CHAT_PATH, OK, Translation, is_translatable, translated
from art_otel.model_gateway.connections import RawHeaders, UpstreamError
from art_otel.model_gateway.id_server import PATHS, IdServer, Samplers, Sends, read
from art_otel.model_gateway.own_answers import OwnAnswer
from art_otel.model_gateway.upstreams import Upstream

logger = logging.getLogger(__name__)

Translate: TypeAlias = Literal["auto", "never"]
"""Whether requests may go to a server in another dialect."""

LACKING: Final = frozenset({404, 405, 501})
"""How a server says that it has no such path."""

_TAKING: Final = frozenset({200, 400, 422})
"""How a server says that it has the path, of a request with nothing in it."""

_MAX_KNOWN: Final = 1000
_FORGET_SECONDS: Final = 600.0
_UNSURE_SECONDS: Final = 60.0
_PROBE_SECONDS: Final = 30.0
_ONE_TOKEN: Final[AnswerFields] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 1,
    "logprobs": True,
    "return_token_ids": True,
}
_IDS: Final = f"{names.COMPLETION_TOKENS_PREFIX}0"
_TOKENIZE: Final = "/tokenize"
_COUNTS: Final[Mapping[str, WireDialect]] = {"/messages/count_tokens": "messages", ":countTokens": "gemini"}
"""How the paths end that count the tokens of a prompt."""

_BEARER: Final = b"Bearer "
_KEYS: Final = (b"x-api-key", b"x-goog-api-key")
_OF_DIALECT: Final = (*_KEYS, b"anthropic-version", b"anthropic-beta", b"x-goog-api-client")


class Translating:
    """Decides for each request, and remembers of each server what it has.

    `samplers` says which servers sample from ids, None where none is to. With `wants_ids` a dialect without ids is as
    good as none.
    """

    def __init__(self, servers: Sends, samplers: Samplers | None, *, wants_ids: bool) -> None:
        self._servers = servers
        self._samplers = samplers
        self._wants_ids = wants_ids
        self._known: dict[tuple[str, str], tuple[bool, float]] = {}
        self._probing = asyncio.Lock()
        """Agents that begin together wait for one probe."""

    async def translate(
        self, exchange: Exchange, upstream: Upstream, headers: RawHeaders, query: str, *, is_trained: bool
    ) -> Translation | UntranslatableError | None:
        """The translation of a request, or why there is none though its server lacks the dialect; None: as it is.

        A call from which the policy does not learn needs no ids.
        """
        if not is_translatable(exchange.dialect) or not exchange.request:
            return None
        server = IdServer(self._servers, upstream, chat_headers(headers, query))
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                is_lacking = await self._lacks(server, exchange)
                if not is_lacking and not (is_trained and await self._has_better_chat(server, exchange)):
                    return None
        except (UpstreamError, TimeoutError):  # the request itself will say it
            return None
        made = translated(exchange.dialect, exchange.request, is_array=is_array(exchange.path, query))
        return None if isinstance(made, UntranslatableError) and not is_lacking else made

    async def count(self, path: str, body: bytes, upstream: Upstream, headers: RawHeaders) -> OwnAnswer | None:
        """The tokens of a prompt, counted by `/tokenize` of vLLM, where a server lacks the dialect's own count."""
        dialect: WireDialect | None = next((name for end, name in _COUNTS.items() if path.endswith(end)), None)
        if dialect is None:
            return None
        request = json_object(body) or {}
        request = request.get("generateContentRequest") or request
        server = IdServer(self._servers, upstream, chat_headers(headers))
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                if await self._has(server, path, dialect):
                    return None
                made = translated(dialect, {"model": path.rpartition("/")[2].partition(":")[0], **request})
                if isinstance(made, UntranslatableError):
                    return None
                chat = json_object(made.body) or {}
                asked = {name: chat[name] for name in ("model", "messages", "tools") if name in chat}
                answered = await server.send(_TOKENIZE, asked)
                counted = (json_object(await read(answered)) or {}).get("count")
        except (UpstreamError, TimeoutError):
            return None
        name = "totalTokens" if dialect == "gemini" else "input_tokens"
        is_known = answered.status == OK and isinstance(counted, int)
        return OwnAnswer(OK, "application/json", msgspec.json.encode({name: counted})) if is_known else None

    async def _lacks(self, server: IdServer, exchange: Exchange) -> bool:
        """Whether a server has Chat Completions and not the dialect of a request."""
        if await self._has(server, exchange.path, exchange.dialect):
            return False
        return await self._has(server, CHAT_PATH, "chat")

    async def _has(self, server: IdServer, path: str, dialect: str) -> bool:
        """Whether a server has a path, which is asked with an empty request."""
        key = (server.upstream.url, path)
        async with self._probing:
            if (known := self._remembered(key)) is not None:
                return known
            answered = await server.send(path, {})
            await read(answered)
            if answered.status in LACKING and dialect != "chat":
                logger.warning(
                    "art-otel: %s has no %s (%d): such requests go there as Chat Completions, if it has those",
                    server.upstream.shown,
                    path,
                    answered.status,
                )
            return self._remember(key, answered.status, answer=answered.status not in LACKING)

    async def _has_better_chat(self, server: IdServer, exchange: Exchange) -> bool:
        """Whether ids come with Chat Completions, and not with the dialect of a request."""
        if not self._wants_ids:
            return False
        samplers = self._samplers if exchange.dialect in PATHS else None
        if samplers is not None and await samplers.can(server.upstream, server.headers):
            return False
        model = exchange.request.get("model")
        key = (server.upstream.url, f"ids of {model}")
        async with self._probing:
            if (known := self._remembered(key)) is not None:
                return known
            answered = await server.send(CHAT_PATH, {"model": model, **_ONE_TOKEN})
            body = json_object(await read(answered)) or {}
            has_ids = answered.status == OK and _IDS in answer_attributes(body)
            return self._remember(key, answered.status, answer=has_ids)

    def _remember(self, key: tuple[str, str], status: int, *, answer: bool) -> bool:
        """Remember what a server answered: for long what is sure, else for a minute, as of a key that it refuses."""
        is_sure = status in LACKING or status in _TAKING
        if len(self._known) >= _MAX_KNOWN:  # models and paths are named by agents
            self._known.clear()
        self._known[key] = (answer, time.monotonic() + (_FORGET_SECONDS if is_sure else _UNSURE_SECONDS))
        return answer

    def _remembered(self, key: tuple[str, str]) -> bool | None:
        known, until = self._known.get(key, (None, 0.0))
        return None if time.monotonic() > until else known


def chat_headers(headers: RawHeaders, query: str = "") -> list[tuple[bytes, bytes]]:
    """The headers of a request that goes as Chat Completions: the key stands where these have it.

    x-api-key: KEY, x-goog-api-key: KEY, ?key=KEY      authorization: Bearer KEY
    """
    kept = [(name, value) for name, value in headers if name not in _OF_DIALECT]
    given = [value for name, value in headers if name in _KEYS]
    given += [pair[4:].encode() for pair in query.split("&") if pair.startswith("key=")]
    if given and not any(name == b"authorization" for name, _ in kept):
        kept.append((b"authorization", _BEARER + given[0]))
    return kept


def chat_exchange(exchange: Exchange, translation: Translation) -> Exchange:
    """A request as its server sees it: what is recorded is what the model read and sampled."""
    made = Exchange("chat", CHAT_PATH, translation.body, exchange.start_ns)
    made.translation = translation
    return made
