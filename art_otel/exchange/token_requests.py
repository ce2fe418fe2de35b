"""Token requests: asks servers for token ids and logprobs beside the completion, and hides them from the agent again.

    the agent asks       {"messages": […]}
    the server gets      {"messages": […], "logprobs": true, "return_token_ids": true}
    the agent gets       the answer without ids and logprobs; all other fields keep their bytes

A stream is asked for its usage as well: the number of its ids is checked against it. Whole answers always have it.

Invariant: if a server refuses the additions, it is asked for less, in the end for nothing. For ten minutes the same
kind of requests (`TokenRequestTarget`) then ask only for what was accepted. A refusal that names none of the added
fields may be due to the request itself; it is remembered only if the next request is refused as well.

Source of the fields: https://docs.vllm.ai (`return_token_ids`, `enable_response_messages`), OpenAI's `logprobs`; of the
headers and the refusal: SGLang 0.5.23 (`entrypoints/openai/serving_chat.py`). docs/spec/recorders.md has the table of
servers.
"""

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from art_otel.conventions.bodies.chunks import TextChunk
from art_otel.conventions.bodies.tokens import RESPONSE_MESSAGES
from art_otel.conventions.values import RAW_FIELDS, UNREADABLE, RawFields
from art_otel.exchange.api_dialects import API_DIALECTS, NOTHING, TokenRequest, dialect_of

logger = logging.getLogger(__name__)

REFUSALS: Final = (400, 422)
"""The statuses by which servers refuse a field that they do not know, or do not accept beside others."""

_REMEMBERED: Final = 600.0
"""Seconds that a refusal is remembered. Not for ever: servers are restarted with other options."""


STREAM_OPTIONS: Final = "stream_options"
_USAGE: Final = "include_usage"
_EACH_USAGE: Final = "continuous_usage_stats"
"""vLLM's option for a usage in every chunk. It works only beside `include_usage`, so an agent that did not ask for that
gets none; it is left out where art-otel adds `include_usage`."""

# A refusal that quotes one of these names is due to the additions, and not to the request itself.
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
    """The fields to add to a request: those of `ask` that it does not have; for a stream also the one for its usage."""
    missing = {name: value for name, value in ask.fields.items() if request.get(name) is None}
    if "logprobs" in ask.fields and request.get("stream"):
        given = request.get(STREAM_OPTIONS)
        options: Mapping[str, object] = cast(Mapping[str, object], given) if isinstance(given, Mapping) else {}
        if not options.get(_USAGE):
            missing[STREAM_OPTIONS] = {name: options[name] for name in options if name != _EACH_USAGE} | {_USAGE: True}
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
    """The target of a request with this body."""
    return TokenRequestTarget(server, str(body.get("model")), bool(body.get("stream")), bool(body.get("tools")))


_HIDDEN: Final[Mapping[str, tuple[str, ...]]] = {
    "return_token_ids": ("prompt_token_ids", "token_ids", "response_token_ids"),
    "return_weight_versions": ("weight_versions",),
    "enable_response_messages": RESPONSE_MESSAGES,
}
"""By the field of a request: the fields that it adds to an answer, or to a choice or a response in it."""

_LOGPROBS: Final = "logprobs"
_LLAMA: Final = b'{"content":[{"id":'
"""The beginning of llama.cpp's logprobs. Without being asked, its chat has no such field, while others send null."""

_SGLANG: Final = ("sglext",)

_CUT_OUT: Final = frozenset({"logprobs", "return_token_ids", "return_weight_versions", "stream_options"})
_IDS_FIELD: Final = re.compile(rb',\s*"token_ids"\s*:\s*(?:\[[^\]]*\]|null)')
_NULL_USAGE: Final = re.compile(rb',\s*"usage"\s*:\s*null')
"""Parts of a chunk to cut out as bytes. They cannot occur inside of a text, where a quotation mark is escaped."""
_NULL: Final = msgspec.Raw(b"null")
_CHOICES: Final = msgspec.json.Decoder(list[RawFields])
_ENCODE: Final = msgspec.json.Encoder().encode


class RequestAdditions:
    """What art-otel added to one request; `without` takes the results out of the answer again."""

    def __init__(self, ask: TokenRequest = NOTHING, added: Mapping[str, object] | None = None) -> None:
        self.ask = ask
        self.fields: Final = added or {}
        self.is_hidden: Final = bool(self.fields or ask.headers)
        """Whether the answer has fields that must be taken out."""
        self._may_cut: Final = _CUT_OUT.issuperset(self.fields)
        of_fields = [field for name in self.fields for field in _HIDDEN.get(name, ())]
        self._hidden: Final = (*of_fields, *_SGLANG) if ask.headers else of_fields
        """The fields of an answer that are there only because of the additions."""
        self.asks_usage: Final = STREAM_OPTIONS in self.fields
        """Whether art-otel asks for the usage of a stream."""
        self.adds_events: Final = self.asks_usage or bool(ask.headers)
        """Whether a stream may have events that are there only because of the additions."""

    def body(self, fields: RawFields) -> bytes | None:
        """The body of a request with the additions; None where the request must be sent as it came.

        That is also a request that strict JSON cannot express, as with half an emoji in it: its text would change.
        """
        return _ENCODE({**fields, **self.fields}) if self.fields and fields else None

    def without_tokens(self, body: bytes) -> bytes:
        """A body without the fields that the agent did not ask for; itself if it has none of them, or is no JSON."""
        try:
            fields = RAW_FIELDS.decode(body)
        except UNREADABLE:
            return body
        kept = self._without(fields)
        return body if kept is None else _ENCODE(kept)

    def without(self, event: bytes, data: bytes, chunk: TextChunk | None = None) -> bytes:
        """An event without the fields that the agent did not ask for; b"" for an event with nothing else.

        In all other events the field `usage` is taken out if it is null: it is there because of us. llama.cpp's
        Completions have a count in it without being asked, which stays.
        """
        if chunk is not None and (cut := self._cut(event, chunk)) is not None:
            return cut
        if self.adds_events and self.is_added(data):
            return b""
        kept = self.without_tokens(data)
        # Only the data is replaced: the event keeps its name, and its line ends.
        return event if kept is data else event.replace(data, kept, 1)

    def is_added(self, data: bytes) -> bool:
        """Whether a chunk is there only because of the additions, so that it must be hidden.

            {"choices": [], "usage": {"prompt_tokens": 9, …}}                all servers, after the last choice
            {"choices": [], "usage": null, "sglext": {"output_ids": …}}      SGLang, before the usage

        Azure's first chunk has no choices either, but neither of these fields. A quick search spares most chunks the
        decoding. Apps that did not ask for such chunks may expect a choice in each.
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
        """Do the same by cutting bytes out of a chunk of text, which is fast; None where the chunk must be decoded."""
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
        """The fields that the agent asked for; None if all are such."""
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
            # Events of the Responses API carry the whole response in a field.
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
"""The additions of a request that is sent as it came."""


class _HasStatus(Protocol):
    @property
    def status(self) -> int:
        """The status of an answer."""
        ...


_Answer = TypeVar("_Answer", bound=_HasStatus)


class TokenAsking:
    """What art-otel asks a server for with one request: `additions`, which become less after each refusal.

    `tracing/openai/capture.py` has the loop of `ask` once more, around the method by which openai's client sends.
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

    async def ask(
        self, send: Callable[[RequestAdditions], Awaitable[_Answer]], read: Callable[[_Answer], Awaitable[bytes]]
    ) -> _Answer:
        """Send a request with the additions, and after each refusal of them with less, in the end without any."""
        answer = await send(self.additions)
        while self.may_be_why(answer.status):
            self.ask_less(answer.status, await read(answer))
            answer = await send(self.additions)
            self.answered(answer.status)
        return answer

    def may_be_why(self, status: int) -> bool:
        """Whether an answer with this status may be a refusal of the additions."""
        return self.additions.is_hidden and status in REFUSALS

    def ask_less(self, status: int, refusal: bytes) -> None:
        """Ask for less after a refusal with this status and body, in the end for nothing."""
        self._refused, self._refusal = status, refusal
        ask = self._requests.less(self.additions.ask, refusal)
        self.additions = RequestAdditions(ask, missing_fields(ask, self._request))

    def answered(self, status: int) -> None:
        """Remember what the server accepted after it had refused more; call it after `ask_less` and the next answer."""
        if status not in REFUSALS:
            self._requests.accepted(self.additions.ask, self._target, self._refused, self._refusal)


class _Accepted(NamedTuple):
    """What a server accepted after it had refused more, and when (seconds of the monotonic clock)."""

    ask: TokenRequest
    at: float


class TokenRequests:
    """Says what to ask servers for, and learns from their refusals; `warns` says whether it logs them."""

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns
        self._accepted: dict[TokenRequestTarget, _Accepted] = {}
        self._since_doubt: dict[TokenRequestTarget, int] = {}
        """How many requests were made since a refusal that named none of the added fields."""

    def begin(self, server: str, path: str, request: Mapping[str, object]) -> TokenAsking:
        """Begin a request to a path of a server. Nothing is added where the request is no JSON object ({})."""
        target = target_of(server, request)
        return TokenAsking(self, self.ask(path, target, request) if request else NOTHING, target, request)

    def ask(self, path: str, target: TokenRequestTarget, body: Mapping[str, object]) -> TokenRequest:
        """What to ask for with a request of this body."""
        dialect = dialect_of(path)
        asks = NOTHING if dialect is None else API_DIALECTS[dialect].asks
        if asks is NOTHING or body.get("echo"):  # with `echo` the logprobs would change the answer itself
            return NOTHING
        # Counted so that `accepted` knows whether the next request was refused as well.
        if target in self._since_doubt:
            self._since_doubt[target] += 1
        accepted = self._accepted.get(target)
        is_remembered = accepted is not None and time.monotonic() < accepted.at + _REMEMBERED
        return accepted.ask if accepted is not None and is_remembered else asks

    def less(self, ask: TokenRequest, refusal: bytes) -> TokenRequest:
        """What to ask for after a refusal: SGLang's streams have ids by other fields; all other servers give none."""
        return _SGLANG_STREAM if ask is not _SGLANG_STREAM and _SGLANG_REFUSAL in refusal else NOTHING

    def accepted(self, ask: TokenRequest, target: TokenRequestTarget, refused: int, refusal: bytes) -> None:
        """Remember what a server accepted, if the additions that it now lacks were the reason for the refusal."""
        is_explained = ask is not NOTHING or any(name in refusal for name in _NAMES)
        is_repeated = self._since_doubt.get(target) in (0, 1)  # the next request; 0 if it was on its way already
        if not is_explained and not is_repeated:
            self._since_doubt[target] = 0
            return
        self._since_doubt.pop(target, None)
        earlier = self._accepted.get(target)
        if self._warns and ask is NOTHING and (earlier is None or earlier.ask is not NOTHING):
            logger.warning(
                "art-otel: %s refuses requests for token ids and logprobs of %s (status %d); art-otel asks again in "
                "a few minutes",
                _for_log(target.server),
                target.model,
                refused,
            )
        # A refusal because of tools says nothing about requests without tools; any other one holds for both.
        alike = [target] if _TOOLS in refusal else [target._replace(tools=tools) for tools in (False, True)]
        self._accepted |= dict.fromkeys(alike, _Accepted(ask, time.monotonic()))


def _for_log(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
