"""Server abilities: what one model server can do, found out by test requests when a request needs to know.

    has                 an empty request to a path: 404, 405 and 501 mean that the server lacks the path
    samples_from_ids    an empty request to vLLM's path that takes and returns ids; a 403 names the option it lacks
    chat_has_ids        one token by Chat Completions, with its id asked for
    streams_ids         one token of a stream with tools, for which llama.cpp refuses logprobs
    is_llama            the owner of the model that the server lists first; nothing is sampled
    stores_responses    a request that vLLM can only answer with a store of responses, for a response that is not there

Invariant: each question is asked once for all agents: while it is open, all wait for the same answer, and if all of
them hang up it is cancelled. Ids that came once are never tested again. What a server lacks, and which paths it has, is
asked again after ten minutes: another server may have taken the address. An unclear or late answer is None, and asked
again after a minute or with the next request.

Source: vLLM 0.32 and 0.33 with `--enable-scale-out`
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Final, NamedTuple, TypeAlias

from art_otel import attributes as names
from art_otel.conventions import values
from art_otel.conventions.exchanges import answer_attributes
from art_otel.conventions.values import json_object
from art_otel.errors import UsageError
from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.exchange.api_dialects import API_DIALECTS, CHAT
from art_otel.exchange.chat_request import entries_of
from art_otel.model_gateway.id_server import GENERATE, OK, IdServer, Refusal, Sends, read, said
from art_otel.model_gateway.upstreams import RawHeaders, Upstream, UpstreamError
from art_otel.spans import Value

logger = logging.getLogger(__name__)

LACKING: Final = frozenset({404, 405, 501})
"""The statuses by which a server says that it has no such path."""

_MISSING: Final = frozenset({400, 422})
"""The statuses by which a server says that it has the path, and that the empty request lacks fields."""

_FORBIDDEN: Final = frozenset({401, 403})
_UNKNOWN: Final = frozenset({*_FORBIDDEN, 408, 429})
_NOT_IMPLEMENTED: Final = 501
"""Statuses above this one, such as 503, say nothing about the path."""

_FOREVER: Final = math.inf
_MINUTES: Final = 600.0
_ONE_MINUTE: Final = 60.0
_NOT_AT_ALL: Final = 0.0
_PATIENCE: Final = 30.0
"""Seconds that a server may take to answer a test. A busy server is not tested again by every request."""

_MAX_KNOWN: Final = 1000
_TRIES: Final = 4
_ONE_TOKEN: Final[AnswerFields] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 1,
    "logprobs": True,
    "return_token_ids": True,
}
_MODELS: Final = "/v1/models"
_TOOL: Final[AnswerFields] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
COMPLETION_IDS: Final = f"{names.COMPLETION_TOKENS_PREFIX}0"
_NO_RESPONSE: Final = "resp_none"
_STORE_SETTING: Final = b"VLLM_ENABLE_RESPONSES_API_STORE"
_SCALE_OUT: Final = b"--enable-scale-out"
"""The option that vLLM names in its 403 for the path if it was started without this option."""


class _Said(NamedTuple):
    """The answer of a server (None: unclear), and for how many seconds it is believed."""

    answer: bool | None
    seconds: float


_Ask: TypeAlias = Callable[[], Coroutine[None, None, _Said]]


class ServerAbilities:
    """What one server can do; `servers` sends the requests.

    All methods raise UpstreamError where the server cannot be reached.
    """

    def __init__(self, servers: Sends, upstream: Upstream) -> None:
        self.upstream: Final = upstream
        self._servers = servers
        self._known: dict[str, tuple[bool | None, float]] = {}
        self._asking: dict[str, asyncio.Task[_Said]] = {}
        self._waiting: Counter[str] = Counter()
        self._is_said = False
        self._has_ids_in_logprobs: set[str] = set()
        self.lacks_ids_until = _NOT_AT_ALL
        """Until this time (of the monotonic clock) it is known that the server does not sample from ids."""

    async def has(self, path: str, headers: RawHeaders = ()) -> bool | None:
        """Whether the server has a path; None where that is unclear."""

        async def ask() -> _Said:
            answered = await self._server(headers).send(path, {})
            await read(answered)
            if answered.status in _UNKNOWN or answered.status > _NOT_IMPLEMENTED:
                return _Said(answer=None, seconds=_ONE_MINUTE)
            return _Said(answer=answered.status not in LACKING, seconds=_MINUTES)

        return await self._once(path, ask)

    async def samples_from_ids(self, headers: RawHeaders = ()) -> bool | None:
        """Whether the server samples from token ids, for exact tokens; None where that is unclear."""

        async def ask() -> _Said:
            answered = await self._server(headers).send(GENERATE, {})
            body = await read(answered)
            if answered.status in _MISSING and b"token_ids" in body:
                return _Said(answer=True, seconds=_FOREVER)
            is_unclear = answered.status not in LACKING and (answered.status in _UNKNOWN or answered.status >= 500)
            if is_unclear and _SCALE_OUT not in body:
                return _Said(answer=None, seconds=_NOT_AT_ALL)
            if not self._is_said:
                self._is_said = True
                shown = self.upstream.shown
                logger.warning(
                    "art-otel: %s cannot sample from token ids, so calls pass through (%d)", shown, answered.status
                )
            self.lacks_ids_until = time.monotonic() + _MINUTES
            return _Said(answer=False, seconds=_MINUTES)

        return await self._once(GENERATE, ask)

    async def first_model(self, headers: RawHeaders) -> Mapping[str, Value]:
        """The entry of the model that the server lists first; {} where it lists none."""
        answered = await self._servers.send(self.upstream, "GET", _MODELS, headers, b"")
        listed = values.items((json_object(await read(answered)) or {}).get("data"))
        return (values.mapping(listed[0]) if listed else None) or {}

    async def is_llama(self, headers: RawHeaders) -> bool:
        """Whether the server is llama.cpp."""

        async def ask() -> _Said:
            return _Said(answer=(await self.first_model(headers)).get("owned_by") == "llamacpp", seconds=_MINUTES)

        return bool(await self._once("owner", ask))

    async def chat_has_ids(self, model: Value, headers: RawHeaders) -> bool | None:
        """Whether Chat Completions of this model return token ids if asked; None where that is unclear."""

        async def ask(tries: int = _TRIES) -> _Said:
            answered = await self._server(headers).send(CHAT.path, {**_ONE_TOKEN, "model": model})
            body = json_object(await read(answered)) or {}
            if answered.status == OK:
                has_ids = COMPLETION_IDS in answer_attributes(body)
                if not has_ids and tries > 1 and await self.is_llama(headers):
                    # It lists no token that ends inside a character, as the first token of an emoji does.
                    return await ask(tries - 1)
                if has_ids and not any("token_ids" in choice for _, choice in entries_of(body.get("choices"), "")):
                    self._has_ids_in_logprobs.add(str(model))
                return _Said(answer=has_ids, seconds=_FOREVER if has_ids else _MINUTES)
            if answered.status in LACKING or answered.status in _MISSING:
                return _Said(answer=False, seconds=_MINUTES)
            # A busy server is asked again by the next call, which has no ids until then; who may not ask, later.
            return _Said(answer=None, seconds=_ONE_MINUTE if answered.status in _FORBIDDEN else _NOT_AT_ALL)

        return await self._once(f"ids of {model}", ask)

    async def streams_ids(self, model: Value, headers: RawHeaders) -> bool:
        """Whether streams with tools have ids, too, on a server whose whole answers have ids.

        llama.cpp has its ids in the logprobs, which it refuses for such streams. Other servers are not tested.
        """

        async def ask() -> _Said:
            asked = {**_ONE_TOKEN, "model": model, "stream": True, "tools": [_TOOL]}
            answered = await self._server(headers).send(CHAT.path, asked)
            is_refused = b"tools" in await read(answered) and answered.status in _MISSING
            return _Said(answer=not is_refused, seconds=_MINUTES)

        return str(model) not in self._has_ids_in_logprobs or bool(await self._once(f"stream of {model}", ask))

    async def stores_responses(self, model: Value, headers: RawHeaders) -> bool:
        """Whether the server stores responses, so that clients may fetch one by its id.

        vLLM without a store refuses requests that need one, and ignores the field `store`. A server with a store must
        sample its responses itself. Raises Refusal where the answer is unclear.
        """
        unclear = ""

        async def ask() -> _Said:
            nonlocal unclear
            asked = {"model": model, "input": "", "background": True, "previous_response_id": _NO_RESPONSE}
            answered = await self._server(headers).send(API_DIALECTS["responses"].path, asked)
            body = await read(answered)
            if answered.status in _MISSING and _STORE_SETTING in body:
                return _Said(answer=False, seconds=_FOREVER)
            if answered.status in LACKING and _NO_RESPONSE.encode() in body:
                return _Said(answer=True, seconds=_FOREVER)
            unclear = f"{answered.status} {said(body)}"
            return _Said(answer=None, seconds=_NOT_AT_ALL)

        stores = await self._once("store", ask)
        if stores is None:
            raise Refusal(f"store: {unclear}")
        return stores

    async def check_exact(self) -> None:
        """For `--tokens exact`: raise UsageError if the server does not sample from ids, or cannot be reached."""
        try:
            samples = await self.samples_from_ids()
        except UpstreamError as error:
            raise UsageError(f"--tokens exact: {self.upstream.shown} cannot be reached: {error}") from error
        if samples is False:
            raise UsageError(
                f"--tokens exact: {self.upstream.shown} cannot sample from token ids: start vLLM 0.32 or later with"
                " --enable-scale-out, or use --tokens auto"
            )

    def _server(self, headers: RawHeaders) -> IdServer:
        return IdServer(self._servers, self.upstream, headers)

    async def _once(self, what: str, ask: _Ask) -> bool | None:
        """The answer to the question `what`: the remembered one, or a new one where that is too old."""
        answer, until = self._known.get(what, (None, _NOT_AT_ALL))
        if time.monotonic() < until:
            return answer
        asking = self._asking.get(what)
        if asking is None:
            asking = self._asking[what] = asyncio.create_task(_in_time(ask))
        self._waiting[what] += 1
        try:
            # An agent that hangs up must not cancel the question for the others.
            answer, seconds = await asyncio.shield(asking)
        finally:
            self._waiting[what] -= 1
            if self._waiting[what] == 0:
                del self._asking[what], self._waiting[what]
                asking.cancel()
        if len(self._known) >= _MAX_KNOWN:  # the names of models come from agents, so there may be any number
            self._known.clear()
        # Each waiter writes the same answer.
        self._known[what] = (answer, time.monotonic() + seconds)
        return answer


async def _in_time(ask: _Ask) -> _Said:
    """The answer to a question, or None if it takes longer than `_PATIENCE`."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await ask()
    except TimeoutError:
        return _Said(answer=None, seconds=_ONE_MINUTE)
