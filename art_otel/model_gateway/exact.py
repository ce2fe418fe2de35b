"""Exact tokens: samples a call from token ids, so that every id is known, whatever the dialect of the agent.

    render     the server turns the request into ids, by its chat template
    splice     the ids of earlier answers are replaced by those that were sampled, if the text is the same
    generate   the server samples from these ids, and returns ids
    derender   the server's own parsers turn the ids into text, reasoning and tool calls

Invariant: only the server tokenizes. If it refuses one of these steps before it samples, or answers in an unknown form,
the agent's own request is sent instead, and the span says why.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from art_otel import attributes as names
from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields, RequestFacts
from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.exchange import Exchange
from art_otel.model_gateway.addresses import RequestAddress
from art_otel.model_gateway.exact_answers import ExactAnswer
from art_otel.model_gateway.id_server import IdServer, Refusal, Sends
from art_otel.model_gateway.own_answers import OwnAnswer
from art_otel.model_gateway.sampled_choices import SampledCall, placeholders_of
from art_otel.model_gateway.server_abilities import ServerAbilities
from art_otel.model_gateway.splice import DecodeIds, GatewayTurn, Splice, as_ids, splice
from art_otel.model_gateway.upstreams import Answer, RawHeaders, Upstream
from art_otel.spans import Value

AnyAnswer: TypeAlias = Answer | ExactAnswer | OwnAnswer

_MAX_IDS: Final = 16_000_000
"""How many ids of earlier turns are remembered, of 4 bytes each; their template forms take about as much again."""

_MAX_DECODED: Final = 32 << 20
"""How much is remembered of decoded texts: bytes of the ids plus characters of the texts."""

_LOGPROBS: Final = "message.output_text.logprobs"
_NOT_SAMPLED_ONCE: Final = frozenset(["web_search_preview", "code_interpreter", "container", "mcp"])
"""Tools that vLLM may run itself. It then samples several times for one call, which `generate` cannot do."""

_NOT_SAMPLED: Final = (
    *("echo", "use_beam_search", "background", "previous_response_id"),
    *("return_tokens_as_token_ids", "logprob_token_ids", "enable_response_messages"),  # what generate does not say
)
"""Fields that have no effect where the gateway samples from ids: a request with one goes to the server as it is."""

_LEFT_OUT: Final[AnswerFields] = {"max_tokens": 16}
"""Render leaves out the values that are vLLM's defaults (`SamplingParams`). But generate takes a missing `max_tokens`
for no limit, so it is put back."""

_TURN: Final = 250
"""The memory of a turn without its ids, counted in ids."""


@dataclass(frozen=True, slots=True)
class NotExact:
    """Why a call was not sampled from ids, although its server can do that."""

    reason: str

    @property
    def outcome(self) -> str:
        """The value of `art.prompt` on the span of the call."""
        return "passed_through"

    def attributes(self) -> dict[str, Value]:
        """The attributes for the span of the call."""
        return {names.PROMPT: self.outcome, names.PROMPT_REASON: self.reason}


class ExactTokens:
    """Samples calls from ids, on servers that can do it. `abilities` has those of each server, by its URL.

    `keep_reasoning`: prompts keep the reasoning of earlier turns, also where the chat template removes it.
    """

    def __init__(
        self, servers: Sends, abilities: Mapping[str, ServerAbilities], *, keep_reasoning: bool = False
    ) -> None:
        self._abilities = abilities
        self._servers = servers
        self._keep_reasoning = keep_reasoning
        self._turns = SampledTurns()
        self._texts = DecodedTexts()

    async def ask(
        self, exchange: Exchange, upstream: Upstream, headers: RawHeaders, address: RequestAddress
    ) -> ExactAnswer | None:
        """Sample the request of an exchange from ids; None if the agent's own request must be sent instead."""
        request = exchange.request
        if not request:
            return None
        rollout = address.rollout_id or (address.parent.trace_id if address.parent is not None else "")
        try:
            _check(exchange.path, exchange.dialect, request)
            if exchange.dialect == "responses" and request.get("store", True):  # true where a client does not say it
                await _check_store(self._abilities[upstream.url], request.get("model"), headers)
            server = IdServer(self._servers, upstream, headers)
            answer = await self._answer(server, exchange.dialect, request, rollout)
        except Refusal as refused:
            exchange.sampled = NotExact(str(refused))
            return None
        except (KeyError, TypeError, ValueError) as error:  # a server of another version; ValueError has JSON's errors
            exchange.sampled = NotExact(f"the server's answer has an unexpected form: {type(error).__name__}: {error}")
            return None
        exchange.sampled = answer.sampled
        return answer

    async def _answer(self, server: IdServer, dialect: WireDialect, request: AnswerFields, rollout: str) -> ExactAnswer:
        """Render, splice and generate. Raises Refusal where the server refuses a step."""
        rendered = await server.render(dialect, request)
        # Models differ in their vocabularies: the ids of one must not get into the prompts of another.
        rollout = f"{rollout}\0{rendered.get('model')}"
        spliced = await self._splice(server, rendered, rollout)
        placeholders = placeholders_of(rendered.get("features"))
        sampling: AnswerFields = {**_LEFT_OUT, **rendered["sampling_params"]}
        logprobs = sampling.get("logprobs")
        # 0 asks for the logprob of each sampled token, and for no others.
        sampling["logprobs"] = 0 if logprobs is None else logprobs
        is_stream = bool(request.get("stream"))
        ask = {
            **rendered,
            "token_ids": [*spliced.prompt],
            "sampling_params": sampling,
            "output_mode": "text",
            "stream": is_stream,
            "stream_options": {"include_usage": True} if is_stream else None,
        }
        answered = await server.generate(ask)

        def remember(sampled: SampledCall) -> None:
            for turn in sampled.turns():
                self._turns.add(rollout, turn)

        try:
            facts = RequestFacts(
                answer_id=str(rendered.get("request_id")),
                created=int(time.time()),
                model=str(rendered.get("model")),
                dialect=dialect,
                request=request,
                sampling=sampling,
                prompt_ids=spliced.prompt,
                since_0_33="parse_context" in rendered,  # a field that came with it
            )
            return ExactAnswer(server, facts, answered, SampledCall(spliced, placeholders), remember)
        except BaseException:  # the answer will not be read, so the server must stop sampling
            answered.close()
            raise

    async def _splice(self, server: IdServer, rendered: AnswerFields, rollout: str) -> Splice:
        model = str(rendered.get("model"))

        async def text(ids: Sequence[int]) -> str:
            return await self._texts.of(model, ids, lambda ids: server.decode(model, ids))

        # The features of images name their places in the prompt; a splice would move them.
        turns = () if rendered.get("features") else self._turns.of(rollout)
        return await splice(as_ids(rendered["token_ids"]), turns, text, keep_reasoning=self._keep_reasoning)


@dataclass(slots=True)
class _OfRollout:
    first: list[GatewayTurn] = field(default_factory=list[GatewayTurn])
    ids: int = 0


class SampledTurns:
    """The sampled turns of rollouts, by a key for each rollout, for the prompts that will continue them.

    With too many ids in all, the rollout whose last turn is oldest is forgotten as a whole. Its next prompt has the ids
    of the template, and the trajectory then reports the drift.
    """

    def __init__(self, max_ids: int = _MAX_IDS) -> None:
        self._max_ids = max_ids
        self._ids = 0
        self._rollouts: OrderedDict[str, _OfRollout] = OrderedDict()

    def of(self, rollout: str) -> Sequence[GatewayTurn]:
        """The turns of a rollout that continue no other turn; the others are their `children`."""
        known = self._rollouts.get(rollout)
        return () if known is None else known.first

    def add(self, rollout: str, turn: GatewayTurn) -> None:
        """Remember a turn, below the turn that it continues."""
        known = self._rollouts.setdefault(rollout, _OfRollout())
        self._rollouts.move_to_end(rollout)
        (known.first if turn.parent is None else turn.parent.children).append(turn)
        size = len(turn.head) + len(turn.joint) + _TURN
        known.ids += size
        self._ids += size
        while self._ids > self._max_ids and self._rollouts:
            _, forgotten = self._rollouts.popitem(last=False)
            self._ids -= forgotten.ids


class DecodedTexts:
    """The texts of ids, each decoded by a server once. Each later prompt of a rollout asks for the same ones again.

    With too many of them, those that were not asked for the longest time are forgotten.
    """

    def __init__(self, max_size: int = _MAX_DECODED) -> None:
        self._max_size = max_size
        self._size = 0
        self._texts: OrderedDict[tuple[str, bytes], str] = OrderedDict()

    async def of(self, model: str, ids: Sequence[int], decode: DecodeIds) -> str:
        """The text of ids of a model, by `decode` where it is not remembered."""
        key = (model, as_ids(ids).tobytes())
        text = self._texts.get(key)
        if text is None:
            text = await decode(ids)
            if key not in self._texts:  # else two asked at once, and the other one has counted it
                self._size += _size(key, text)
            self._texts[key] = text
        self._texts.move_to_end(key)
        while self._size > self._max_size:
            self._size -= _size(*self._texts.popitem(last=False))
        return text


def _size(key: tuple[str, bytes], text: str) -> int:
    return len(key[1]) + len(text)


async def _check_store(abilities: ServerAbilities, model: Value, headers: RawHeaders) -> None:
    """Raises Refusal where a server stores responses, or may do so.

    A client may fetch a stored response by its id later, and the server would not know one that the gateway has made.
    """
    if await abilities.stores_responses(model, headers):
        raise Refusal("store")


def _check(path: str, dialect: WireDialect, body: AnswerFields) -> None:
    """Raises Refusal for a request whose own fields show that it cannot be sampled from ids."""
    if not path.endswith(API_DIALECTS[dialect].path):
        raise Refusal(f"path {path}")
    reasons = _of_responses(body) if dialect == "responses" else _of_completions(body)
    for reason in (*(name for name in _NOT_SAMPLED if body.get(name)), *reasons):
        raise Refusal(reason)


def _of_completions(body: AnswerFields) -> Iterator[str]:
    if body.get("prompt_logprobs") is not None:  # 0 asks for them too
        yield "prompt_logprobs"
    if body.get("stream_options") and not body.get("stream"):
        yield "stream_options without stream"  # invalid: the agent shall get the server's own error for it
    if isinstance(body.get("prompt"), list) and any(not isinstance(one, int) for one in body["prompt"]):
        yield "several prompts in a request"


def _of_responses(body: AnswerFields) -> Iterator[str]:
    if _LOGPROBS in (values.items(body.get("include")) or ()):  # the other things to include are none of a model
        yield f"include {_LOGPROBS}"
    for tool in values.items(body.get("tools")) or ():
        if (kind := (values.mapping(tool) or {}).get("type")) in _NOT_SAMPLED_ONCE:
            yield f"a tool of type {kind}"
