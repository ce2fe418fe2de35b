"""Grading: tests what a model server can give to rollouts, before any rollout is spent on it.

    dialects          an empty request to each path: 404, 405 and 501 mean that the server lacks it
    token ids         a short answer, whole and streamed, with ids asked for: as many as the usage counts?
    logprobs          those of one first token at two temperatures: equal if they are the policy's own
    exact tokens      vLLM's paths that take and return ids

Invariant: the tests cost a server a few dozen tokens at most. An unclear result is None, never False.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from art_otel import attributes as names
from art_otel.conventions import values
from art_otel.conventions.exchanges import whole_attributes
from art_otel.conventions.values import json_object
from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.exchange.api_dialects import API_DIALECTS, CHAT
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.chat_request import entries_of, mapping_of
from art_otel.exchange.exchange import Exchange, response_body
from art_otel.exchange.token_requests import RequestAdditions, TokenRequests
from art_otel.model_gateway.id_server import OK, IdServer, read
from art_otel.model_gateway.server_abilities import COMPLETION_IDS, ServerAbilities
from art_otel.model_gateway.upstreams import Answer, Upstreams
from art_otel.spans import Value

IdsOf: TypeAlias = Literal["whole", "with holes", "none"]
LogprobsOf: TypeAlias = Literal["raw", "processed", "none"]

_REQUEST: Final[AnswerFields] = {
    "messages": [{"role": "user", "content": "Write two lines about a river, with an emoji and a word in Chinese."}],
    "max_tokens": 24,
    "temperature": 1.0,
}
_ODDS: Final[AnswerFields] = {**_REQUEST, "max_tokens": 1, "logprobs": True, "top_logprobs": 5}
_TEMPERATURES: Final = (1.0, 0.5)
_EQUAL: Final = 0.02
"""Logprobs (in nats) of one token may differ by so much between two requests: a server computes requests in batches,
and the sums of a batch are rounded differently."""

_ENCODE: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerGrade:
    """The results for one server; None where they are unclear.

    - `owner`: the kind of server, as its list of models says: `vllm`, `sglang`, `llamacpp`.
    - `dialects`: whether the server has each dialect.
    - `whole_ids`, `streamed_ids`: the ids of sampled tokens in whole and in streamed Chat Completions.
    - `samples_from_ids`: whether `--tokens exact` works with this server.
    """

    url: str
    model: str | None
    owner: str | None
    dialects: Mapping[WireDialect, bool | None]
    whole_ids: IdsOf | None
    streamed_ids: IdsOf | None
    has_prompt_ids: bool | None
    logprobs: LogprobsOf | None
    samples_from_ids: bool

    def summary(self) -> str:
        """The dialects of the server, as one line."""
        named = ", ".join(API_DIALECTS[dialect].title for dialect, has in self.dialects.items() if has)
        exact = "; samples from ids" if self.samples_from_ids else ""
        return f"{self.url} has {named or 'no dialect without a key'}{exact}"

    def advice(self) -> Sequence[str]:
        """What to change at the server so that it gives more: a line for each lack."""
        said: list[str] = []
        if all(has is None for has in self.dialects.values()):
            said.append("it lets nobody ask without its key: --api-key KEY")
        elif self.model is None:
            said.append("ids and logprobs: it lists no model, so name one with --model M")
        if self.owner == "vllm" and not self.samples_from_ids:
            said.append("exact tokens in every dialect: vllm serve MODEL --enable-scale-out (0.32 or later)")
        if self.owner == "vllm" and self.logprobs == "processed":
            said.append("the policy's own logprobs: vllm serve MODEL --logprobs-mode raw_logprobs")
        if self.owner == "sglang" and self.whole_ids == "none":
            said.append("token ids: SGLang 0.5.23 or later")
        if self.owner == "llamacpp":
            said.append("prompt ids: llama.cpp has none; tokenizer=… of art_otel.batches makes them from the text")
            said.append("token ids: llama.cpp lists no token that ends inside a character; a call with one has no ids")
            said.append("token ids of streams with tools: llama.cpp has none; the gateway asks it for whole answers")
        if self.owner == "llamacpp" and self.dialects.get("chat") is False:
            said.append("tools: llama-server --jinja")
        if self.owner not in ("vllm", "sglang", "llamacpp") and self.whole_ids == "none":
            said.append("token ids: use vLLM, SGLang or llama.cpp; calls of this server only have text")
        return said


async def grade(
    url: str, *, model: str | None = None, api_key: str | None = None, may_sample: bool = True
) -> ServerGrade:
    """Test a server. Raises UsageError for an invalid URL, UpstreamError if the server does not answer.

    Without `model` the first model that the server lists is tested. Without `may_sample` no token is sampled, and ids
    and logprobs stay unknown.
    """
    servers = Upstreams([url])
    try:
        (upstream,) = servers
        headers = [] if api_key is None else [(b"authorization", b"Bearer " + api_key.encode())]
        server, abilities = IdServer(servers, upstream, headers), ServerAbilities(servers, upstream)
        listed = await abilities.first_model(headers)
        model = model or values.text(listed.get("id"))
        dialects: dict[WireDialect, bool | None] = {
            dialect: await abilities.has(api.path.format(model=model or "model"), headers)
            for dialect, api in API_DIALECTS.items()
        }
        # An unclear answer (None) is tried all the same: the test request will show it.
        samples = may_sample and model is not None and dialects["chat"] is not False
        asked = {**_REQUEST, "model": model}
        whole = await _sample(server, asked) if samples else None
        streamed = await _sample(server, {**asked, "stream": True}) if samples else None
        return ServerGrade(
            url=upstream.shown,
            model=model,
            owner=values.text(listed.get("owned_by")),
            dialects=dialects,
            whole_ids=None if whole is None else _ids_of(whole),
            streamed_ids=None if streamed is None else _ids_of(streamed),
            has_prompt_ids=None if whole is None else names.PROMPT_TOKENS in whole_attributes(response_body(whole)),
            logprobs=await _logprobs(server, model) if samples else None,
            samples_from_ids=bool(await abilities.samples_from_ids(headers)),
        )
    finally:
        # The connections must not stay open behind a test.
        servers.close()


def _first(entries: Value) -> Mapping[str, Value]:
    return next((entry for _, entry in entries_of(entries, "")), mapping_of(None))


async def _sample(server: IdServer, request: AnswerFields) -> Exchange | None:
    """An answer with ids, asked for in the gateway's way; None where the server answers with an error."""
    exchange = Exchange("chat", CHAT.path, _ENCODE(request), 0)

    async def send(added: RequestAdditions) -> Answer:
        headers = [(name.encode(), value.encode()) for name, value in added.ask.headers.items()]
        asker = IdServer(server.servers, server.upstream, [*server.headers, *headers])
        return await asker.send(CHAT.path, msgspec.json.decode(added.body(exchange.fields) or exchange.body))

    answered = await TokenRequests(warns=False).begin(server.upstream.url, CHAT.path, exchange.request).ask(send, read)
    exchange.begin(answered.status, answered.headers.get(b"content-type", b""))
    exchange.take(await read(answered))
    return exchange if answered.status == OK else None


def _ids_of(exchange: Exchange) -> IdsOf:
    """The ids of an answer: "whole" if there are as many as the usage counts, "with holes", or "none"."""
    ids = values.text(whole_attributes(response_body(exchange)).get(COMPLETION_IDS))
    if ids is None:
        return "none"
    counted = mapping_of((exchange.answer or {}).get("usage")).get("completion_tokens")
    # The encoded ids begin with their number, so they need not be decoded.
    return "whole" if ids.startswith(f"i4:{counted}:") else "with holes"


async def _logprobs(server: IdServer, model: str | None) -> LogprobsOf | None:
    """Whether the logprobs are the policy's own ("raw"), or were changed by the temperature ("processed").

    raw        temperature 1.0: river -1.2, rain -2.4     0.5: river -1.2, rain -2.4
    processed  temperature 1.0: river -1.2, rain -2.4     0.5: river -0.6, rain -3.0
    """
    odds: list[Mapping[Value, float]] = []
    has_logprobs = False
    for temperature in _TEMPERATURES:
        answered = await server.send(CHAT.path, {**_ODDS, "model": model, "temperature": temperature})
        answer = json_object(await read(answered)) or {}
        choice = _first(answer.get("choices"))
        first_token = _first(mapping_of(choice.get("logprobs")).get("content"))
        has_logprobs = has_logprobs or "logprob" in first_token
        tops = entries_of(first_token.get("top_logprobs"), "")
        odds.append({top.get("token"): top["logprob"] for _, top in tops if "logprob" in top})
    one, other = odds
    both = one.keys() & other.keys()
    if not both:
        return None if has_logprobs else "none"
    return "raw" if all(abs(one[token] - other[token]) <= _EQUAL for token in both) else "processed"
