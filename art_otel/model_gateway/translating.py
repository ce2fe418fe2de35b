"""Translating: decides which requests go to their server as Chat Completions: it lacks the dialect, or ids in it.

    the server lacks the dialect (404, 405, 501)                 translated
    it has the dialect, and samples it from ids (`exact`)        not translated
    it has the dialect, and only its Chat Completions give ids   translated, unless Chat Completions cannot express the
                                                                 request, or the call is untrained
    everything else                                              not translated
    a stream with tools, which has no ids (llama.cpp)            translated, also Chat Completions, and asked for as a
                                                                 whole answer: all its events come at once

Invariant: `ServerAbilities` say what a server has; an unclear result changes nothing.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

import msgspec

from art_otel.conventions import values
from art_otel.conventions.values import json_object
from art_otel.exchange.api_dialects import API_DIALECTS, CHAT, is_array
from art_otel.exchange.chat_request import UntranslatableError
from art_otel.exchange.exchange import Exchange
from art_otel.exchange.translation import OK, Translation, translated
from art_otel.model_gateway.id_server import IdServer, Sends, read
from art_otel.model_gateway.own_answers import OwnAnswer
from art_otel.model_gateway.server_abilities import ServerAbilities
from art_otel.model_gateway.upstreams import RawHeaders, Upstream, UpstreamError

logger = logging.getLogger(__name__)

_PROBE_SECONDS: Final = 30.0
_TOKENIZE: Final = "/tokenize"
_MODELS: Final = "models/"
"""The prefix of a model's name in a body of Gemini's."""

_BEARER: Final = b"Bearer "
_KEYS: Final = tuple(name for api in API_DIALECTS.values() for name in api.headers[:1])
_OF_DIALECT: Final = frozenset(name for api in API_DIALECTS.values() for name in api.headers)


class Translating:
    """Decides for each request whether to translate it, and translates it.

    `abilities` has those of each server, by its URL. Unless `tokens` is "off", a dialect without ids counts as lacking.
    """

    def __init__(self, servers: Sends, abilities: Mapping[str, ServerAbilities], tokens: str) -> None:
        self._servers = servers
        self._abilities = abilities
        self._wants_ids = tokens != "off"
        self._is_exact = tokens in ("auto", "exact")
        self._said: set[tuple[str, str]] = set()

    async def translate(
        self, exchange: Exchange, upstream: Upstream, headers: RawHeaders, query: str, *, is_trained: bool
    ) -> Translation | UntranslatableError | None:
        """The translation of a request; None if the request goes to the server as it is.

        Returns the UntranslatableError if the server lacks the dialect and Chat Completions cannot express the request.
        A call that is not trained needs no ids, so it is translated only if the server lacks its dialect.
        """
        is_chat = exchange.dialect == CHAT.name
        if API_DIALECTS[exchange.dialect].chat_request is None or not exchange.request:
            return None
        abilities, asked_with = self._abilities[upstream.url], chat_headers(headers, query)
        try:
            is_lacking = not is_chat and await self._lacks(abilities, exchange, asked_with)
            if is_chat:  # only llama.cpp needs this; testing any other server might cost money
                is_better = is_trained and self._wants_ids and await abilities.is_llama(asked_with)
            else:
                is_better = is_trained and await self._has_better_chat(abilities, exchange, asked_with)
            if not (is_lacking or is_better):
                return None
            is_held = is_trained and await self._has_ids_if_held(abilities, exchange, asked_with)
        except UpstreamError:  # a server that cannot be reached: the request itself will say so
            return None
        if is_chat and not is_held:
            return None
        made = translated(exchange.dialect, exchange.request, is_array=is_array(exchange.path, query), is_held=is_held)
        return None if isinstance(made, UntranslatableError) and not is_lacking else made

    async def count(self, path: str, body: bytes, upstream: Upstream, headers: RawHeaders) -> OwnAnswer | None:
        """The answer to a request that counts the tokens of a prompt, by vLLM's `/tokenize`.

        None if the request is another one, or if the server can count in this dialect itself.
        """
        api = next((api for api in API_DIALECTS.values() if api.counts and path.endswith(api.counts.path_end)), None)
        if api is None or api.counts is None:
            return None
        fields = json_object(body) or {}
        request = values.mapping(fields.get("generateContentRequest")) or fields
        model = str(request.get("model") or unquote(path.rpartition("/")[2].partition(":")[0]))
        request = {**request, "model": model.removeprefix(_MODELS)}
        server = IdServer(self._servers, upstream, chat_headers(headers))
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                if await self._abilities[upstream.url].has(path, server.headers) is not False:
                    return None
                made = translated(api.name, request)
                if isinstance(made, UntranslatableError):
                    return None
                chat = json_object(made.body) or {}
                asked = {name: chat[name] for name in ("model", "messages", "tools") if name in chat}
                answered = await server.send(_TOKENIZE, asked)
                counted = (json_object(await read(answered)) or {}).get("count")
        except (UpstreamError, TimeoutError):
            return None
        is_known = answered.status == OK and isinstance(counted, int)
        return OwnAnswer(OK, "application/json", msgspec.json.encode({api.counts.field: counted})) if is_known else None

    async def _lacks(self, abilities: ServerAbilities, exchange: Exchange, headers: RawHeaders) -> bool:
        """Whether a server lacks the dialect of a request, and has Chat Completions."""
        if await abilities.has(exchange.path, headers) is not False:
            return False
        # Without Chat Completions a translation would fail as well.
        if await abilities.has(CHAT.path, headers) is False:
            return False
        said = (abilities.upstream.shown, API_DIALECTS[exchange.dialect].title)
        if said not in self._said:
            self._said.add(said)
            logger.warning("art-otel: %s has no %s: such requests go there as Chat Completions", *said)
        return True

    async def _has_ids_if_held(self, abilities: ServerAbilities, exchange: Exchange, headers: RawHeaders) -> bool:
        """Whether a stream with tools was asked for, which has no ids on this server, while a whole answer has them."""
        if not (self._wants_ids and exchange.streams_tools):
            return False
        model = exchange.settings.get("model")
        if self._is_exact and await abilities.samples_from_ids(headers):
            return False
        return bool(await abilities.chat_has_ids(model, headers)) and not await abilities.streams_ids(model, headers)

    async def _has_better_chat(self, abilities: ServerAbilities, exchange: Exchange, headers: RawHeaders) -> bool:
        """Whether the server gives ids with Chat Completions, and not with the dialect of the request."""
        if not self._wants_ids:
            return False
        is_rendered = API_DIALECTS[exchange.dialect].is_rendered
        if is_rendered and self._is_exact and await abilities.samples_from_ids(headers):
            return False
        return bool(await abilities.chat_has_ids(exchange.request.get("model"), headers))


def chat_headers(headers: RawHeaders, query: str = "") -> list[tuple[bytes, bytes]]:
    """The headers of a translated request: the API key moves to the header of Chat Completions.

    x-api-key: KEY   or   x-goog-api-key: KEY   or   ?key=KEY      ─►      authorization: Bearer KEY
    """
    kept = [(name, value) for name, value in headers if name not in _OF_DIALECT]
    given = [value for name, value in headers if name in _KEYS]
    given += [unquote_to_bytes(pair[4:]) for pair in query.split("&") if pair.startswith("key=")]
    if given and not any(name == b"authorization" for name, _ in kept):
        kept.append((b"authorization", _BEARER + given[0]))
    return kept


def chat_exchange(exchange: Exchange, translation: Translation) -> Exchange:
    """The exchange with the server for a translated request. It is recorded, since the model reads and samples it."""
    made = Exchange("chat", CHAT.path, translation.body, exchange.start_ns)
    made.translation = translation
    return made
