"""Token requests: what servers are asked for beside completions, so that they say token ids and logprobs.

A stream is asked for its usage too, against which its ids are counted; whole answers have it. Whoever asked gets the
answer to its own request: what was added is taken out again, and all other fields pass in the bytes in which they came.

Invariant: a server that refuses a request with these fields is asked for less, in the end for nothing. For some minutes
requests like this one, of a `TokenRequestTarget`, are then asked as was accepted. A refusal that names none of the
fields may have been of the request alone: it is remembered when the next request is refused as well.

Source of the fields: https://docs.vllm.ai (`return_token_ids`, `enable_response_messages`), OpenAI's `logprobs`; of the
headers and the refusal: SGLang 0.5.23 (`entrypoints/openai/serving_chat.py`). docs/spec/recorders.md has the table of
servers.
"""

import logging
import re
import time
from collections.abc import Mapping
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from art_otel.conventions.bodies.chunks import TextChunk
from art_otel.conventions.bodies.tokens import RESPONSE_MESSAGES
from art_otel.conventions.values import RAW_FIELDS, UNREADABLE, RawFields
from art_otel.exchange.api_dialects import API_DIALECTS, NOTHING, TokenRequest, dialect_of

logger = logging.getLogger(__name__)

REFUSALS: Final = (400, 422)
"""Statuses of servers that know a field not, or not with the others."""

_REMEMBERED: Final = 600.0
"""Seconds that a refusal is remembered: servers are restarted with other options, and gateways lead elsewhere."""


STREAM_OPTIONS: Final = "stream_options"
_USAGE: Final = "include_usage"
_RUNNING: Final = "continuous_usage_stats"
"""vLLM's: a usage in every chunk, where `include_usage` is asked for."""

_NAMES: Final = frozenset(
    name.encode()
    for name in (*(name for dialect in API_DIALECTS.values() for name in dialect.asks.fields), STREAM_OPTIONS, _USAGE)
)

_TOOLS: Final = b"tools"
"""llama.cpp refuses `logprobs` only of streams with tools, and says so."""

_SGLANG_STREAM: Final = TokenRequest(
    {"logprobs": True}, {"x-sglext-return-input-ids": "1", "x-sglext-return-output-ids": "1"}
)
_SGLANG_REFUSAL: Final = b"return_token_ids is not supported with streaming"


def missing_fields(ask: TokenRequest, request: Mapping[str, object]) -> dict[str, object]:
    """The fields that are asked for and that a request does not have, of a stream with those that ask for its usage."""
    missing = {name: value for name, value in ask.fields.items() if request.get(name) is None}
    if "logprobs" in ask.fields and request.get("stream"):
        given = request.get(STREAM_OPTIONS)
        options: Mapping[str, object] = cast(Mapping[str, object], given) if isinstance(given, Mapping) else {}
        if not options.get(_USAGE):
            missing[STREAM_OPTIONS] = {name: options[name] for name in options if name != _RUNNING} | {_USAGE: True}
    return missing


NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class _ChunkWithoutChoices(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: dict[str, msgspec.Raw] | None = None
    sglext: dict[str, msgspec.Raw] | None = None


_CHUNK: Final = msgspec.json.Decoder(_ChunkWithoutChoices)


class TokenRequestTarget(NamedTuple):
    """The key under which a refusal is remembered: the server, the model, whether the request streams and has tools."""

    server: str
    model: str
    stream: bool
    tools: bool


def target_of(server: str, body: Mapping[str, object]) -> TokenRequestTarget:
    """What a request of this body to a server is asked as."""
    return TokenRequestTarget(server, str(body.get("model")), bool(body.get("stream")), bool(body.get("tools")))


_HIDDEN: Final[Mapping[str, tuple[str, ...]]] = {
    "return_token_ids": ("prompt_token_ids", "token_ids", "response_token_ids"),
    "return_weight_versions": ("weight_versions",),
    "enable_response_messages": RESPONSE_MESSAGES,
}
"""The fields of an answer, or of a choice or response in it, that a field of the request adds."""

_LOGPROBS: Final = "logprobs"
_LLAMA: Final = b'{"content":[{"id":'
"""How llama.cpp's logprobs begin. Its chat has no such field where they are not asked for; others have null."""

_SGLANG: Final = ("sglext",)

_CUT_OUT: Final = frozenset({"logprobs", "return_token_ids", "return_weight_versions", "stream_options"})
_IDS_FIELD: Final = re.compile(rb',\s*"token_ids"\s*:\s*(?:\[[^\]]*\]|null)')
_NULL_USAGE: Final = re.compile(rb',\s*"usage"\s*:\s*null')
"""In a chunk of text. No text in it has these: there a quotation mark is escaped."""
_NULL: Final = msgspec.Raw(b"null")
_CHOICES: Final = msgspec.json.Decoder(list[RawFields])
_ENCODE: Final = msgspec.json.Encoder().encode


class RequestAdditions:
    """What was asked of a server beside what the agent asked; `without` takes it out of the answer again."""

    def __init__(self, ask: TokenRequest = NOTHING, added: Mapping[str, object] | None = None) -> None:
        self.ask = ask
        self.fields: Final = added or {}
        self.is_hidden: Final = bool(self.fields or ask.headers)
        """Whether there is anything to take out."""
        self._may_cut: Final = _CUT_OUT.issuperset(self.fields)
        of_fields = [field for name in self.fields for field in _HIDDEN.get(name, ())]
        self._hidden: Final = (*of_fields, *_SGLANG) if ask.headers else of_fields
        """The fields of an answer that are there because of what was asked."""
        self.asks_usage: Final = STREAM_OPTIONS in self.fields
        """Whether the usage of a stream is asked for."""
        self.adds_events: Final = self.asks_usage or bool(ask.headers)
        """Whether a stream may have events that are there only because of what was asked."""

    def body(self, fields: RawFields) -> bytes | None:
        """The body of a request of these fields with what is asked for; None where it goes as it came.

        So goes one whose fields only a lenient reader sees, as with half an emoji in it: they would be lost.
        """
        return _ENCODE({**fields, **self.fields}) if self.fields and fields else None

    def without_tokens(self, body: bytes) -> bytes:
        """A body without what the agent did not ask for; as it is where it has nothing of that, or is no JSON."""
        try:
            fields = RAW_FIELDS.decode(body)
        except UNREADABLE:
            return body
        kept = self._without(fields)
        return body if kept is None else _ENCODE(kept)

    def without(self, event: bytes, data: bytes, chunk: TextChunk | None = None) -> bytes:
        """The same of an event with this data; one that has nothing but what we asked for goes.

        Beside choices its field is null because of us; llama.cpp's Completions count there unasked.
        """
        if chunk is not None and (cut := self._cut(event, chunk)) is not None:
            return cut
        if self.adds_events and self.is_added(data):
            return b""
        kept = self.without_tokens(data)
        return event if kept is data else event.replace(data, kept, 1)

    def is_added(self, data: bytes) -> bool:
        """Whether a chunk is there only because of what was asked: an app may not expect one without choices.

            {"choices": [], "usage": {"prompt_tokens": 9, …}}                all servers, behind the last choice
            {"choices": [], "usage": null, "sglext": {"output_ids": …}}      SGLang, before the usage

        Azure begins with a chunk without choices that has neither. Most chunks are not parsed for this.
        """
        if NO_CHOICES.search(data) is None:
            return False
        try:
            chunk = _CHUNK.decode(data)
        except UNREADABLE:
            return False
        if chunk.choices:
            return False
        return self.asks_usage if chunk.usage is not None else chunk.sglext is not None and bool(self.ask.headers)

    def _cut(self, event: bytes, chunk: TextChunk) -> bytes | None:
        """The same of a chunk of text, cut out of its bytes; None where this is not the way."""
        if not self._may_cut:
            return None
        if "return_token_ids" in self.fields and b'"token_ids"' in event:
            event, cut = _IDS_FIELD.subn(b"", event, count=1)
            if not cut:
                return None
        if "logprobs" in self.fields and (logprobs := chunk.raw_logprobs) is not None:
            if logprobs not in event:  # they go over several lines of data
                return None
            event = event.replace(logprobs, b"null", 1)
        # The field is null in all chunks but the last.
        return _NULL_USAGE.sub(b"", event, count=1) if self.asks_usage and chunk.usage is None else event

    def _without(self, fields: RawFields) -> Mapping[str, object] | None:
        """Fields without what the agent did not ask for; None where nothing of that is in them."""
        hidden = self._hidden
        kept: dict[str, object] = {
            name: _NULL if name in hidden else value  # vLLM has null where it is not asked for messages
            for name, value in fields.items()
            if name not in hidden or name in RESPONSE_MESSAGES
        }
        if self.asks_usage and fields.get("usage") == _NULL:
            del kept["usage"]
        if "choices" in fields:
            try:
                choices = _CHOICES.decode(fields["choices"])
            except msgspec.MsgspecError:  # as some servers end a stream
                choices = []
            without = [self._choice(choice) for choice in choices]
            if without != choices:
                kept["choices"] = without
        if "response" in fields:
            kept["response"] = msgspec.Raw(self.without_tokens(bytes(fields["response"])))
        return None if kept == fields else kept

    def _choice(self, choice: RawFields) -> RawFields:
        hidden = self._hidden
        kept = {name: value for name, value in choice.items() if name not in hidden}
        if _LOGPROBS in self.fields and _LOGPROBS in kept:
            if "text" not in kept and bytes(kept[_LOGPROBS]).startswith(_LLAMA):
                del kept[_LOGPROBS]
            else:
                kept[_LOGPROBS] = _NULL
        return kept


NO_ADDITIONS: Final = RequestAdditions()
"""Of a request that goes as it came."""


class TokenAsking:
    """What one request asks its server for beside its app: `additions`, which become less after each refusal.

    asking = token_requests.begin(server, path, request)
    answer = send(asking.additions)
    while asking.may_be_why(answer.status):
        asking.ask_less(answer.status, answer.body)
        answer = send(asking.additions)
        asking.answered(answer.status)
    """

    def __init__(
        self,
        requests: "TokenRequests",
        ask: TokenRequest,
        target: "TokenRequestTarget",
        request: Mapping[str, object],
    ) -> None:
        self._requests = requests
        self._target = target
        self._request = request
        self._refused = 0
        self._refusal = b""
        self.additions = RequestAdditions(ask, missing_fields(ask, request))

    def may_be_why(self, status: int) -> bool:
        """Whether an answer with this status may be a refusal of what was added."""
        return self.additions.is_hidden and status in REFUSALS

    def ask_less(self, status: int, refusal: bytes) -> None:
        """Ask for less after a refusal with this status and body, in the end for nothing."""
        self._refused, self._refusal = status, refusal
        ask = self._requests.less(self.additions.ask, refusal)
        self.additions = RequestAdditions(ask, missing_fields(ask, self._request))

    def answered(self, status: int) -> None:
        """Remember what the server accepted after it had refused more."""
        if status not in REFUSALS:
            self._requests.accepted(self.additions.ask, self._target, self._refused, self._refusal)


class _Accepted(NamedTuple):
    """What a server let itself be asked for after it had refused more, and when."""

    ask: TokenRequest
    at: float


class TokenRequests:
    """Says what to ask a server for, and learns from what it refuses."""

    def __init__(self) -> None:
        self._accepted: dict[TokenRequestTarget, _Accepted] = {}
        self._since_doubt: dict[TokenRequestTarget, int] = {}
        """How many requests were made since a refusal that named none of the fields."""

    def begin(self, server: str, path: str, request: Mapping[str, object]) -> TokenAsking:
        """What to ask for with a request to a path of a server; nothing where the request is no JSON object."""
        target = target_of(server, request)
        return TokenAsking(self, self.ask(path, target, request) if request else NOTHING, target, request)

    def ask(self, path: str, target: TokenRequestTarget, body: Mapping[str, object]) -> TokenRequest:
        """What to ask for with a request of this body. One that wants its prompt back gets another one if asked."""
        dialect = dialect_of(path)
        asks = NOTHING if dialect is None else API_DIALECTS[dialect].asks
        if asks is NOTHING or body.get("echo"):
            return NOTHING
        if target in self._since_doubt:
            self._since_doubt[target] += 1
        accepted = self._accepted.get(target)
        is_remembered = accepted is not None and time.monotonic() < accepted.at + _REMEMBERED
        return accepted.ask if accepted is not None and is_remembered else asks

    def less(self, ask: TokenRequest, refusal: bytes) -> TokenRequest:
        """What to ask for after a refusal: SGLang says that its streams are asked otherwise, others give nothing."""
        return _SGLANG_STREAM if ask is not _SGLANG_STREAM and _SGLANG_REFUSAL in refusal else NOTHING

    def accepted(self, ask: TokenRequest, target: TokenRequestTarget, refused: int, refusal: bytes) -> None:
        """Remember what a server accepted: what it lacks was the reason for the refusal."""
        is_explained = ask is not NOTHING or any(name in refusal for name in _NAMES)
        is_repeated = self._since_doubt.get(target) in (0, 1)  # 0 where several are on their way
        if not is_explained and not is_repeated:
            self._since_doubt[target] = 0
            return
        self._since_doubt.pop(target, None)
        earlier = self._accepted.get(target)
        if ask is NOTHING and (earlier is None or earlier.ask is not NOTHING):
            logger.warning(
                "art-otel: %s refuses requests for token ids and logprobs of %s (status %d); art-otel asks again in "
                "a few minutes",
                _for_log(target.server),
                target.model,
                refused,
            )
        alike = [target] if _TOOLS in refusal else [target._replace(tools=tools) for tools in (False, True)]
        self._accepted |= dict.fromkeys(alike, _Accepted(ask, time.monotonic()))


def _for_log(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
