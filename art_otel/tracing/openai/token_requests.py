"""TokenRequests: what servers are asked for beside completions, so that they say token ids and logprobs.

A stream is asked for its usage too, against which its ids are counted; whole answers have it.

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
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from art_otel.conventions import values

logger = logging.getLogger(__name__)

REFUSALS: Final = (400, 422)
"""Statuses of servers that know a field not, or not with the others."""

_REMEMBERED: Final = 600.0
"""Seconds that a refusal is remembered: servers are restarted with other options, and gateways lead elsewhere."""


class TokenRequest(NamedTuple):
    """What is asked for: by fields of the body, and by headers."""

    fields: Mapping[str, object]
    headers: Mapping[str, str]


NOTHING: Final = TokenRequest({}, {})
ASKS: Final[Mapping[str, TokenRequest]] = {
    "/chat/completions": TokenRequest({"logprobs": True, "return_token_ids": True, "return_weight_versions": True}, {}),
    "/completions": TokenRequest({"logprobs": 1, "return_token_ids": True, "return_weight_versions": True}, {}),
    "/responses": TokenRequest({"enable_response_messages": True}, {}),
}
"""By the end of the path; Completions counts the alternatives it wants."""

STREAM_OPTIONS: Final = "stream_options"
_USAGE: Final = "include_usage"
_RUNNING: Final = "continuous_usage_stats"
"""vLLM's: a usage in every chunk, where `include_usage` is asked for."""

_NAMES: Final = frozenset(
    name.encode() for name in (*(name for ask in ASKS.values() for name in ask.fields), STREAM_OPTIONS, _USAGE)
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
    options = values.mapping(request.get(STREAM_OPTIONS)) or {}
    if "logprobs" in ask.fields and request.get("stream") and not options.get(_USAGE):
        missing[STREAM_OPTIONS] = {name: value for name, value in options.items() if name != _RUNNING} | {_USAGE: True}
    return missing


NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class _Chunk(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: dict[str, msgspec.Raw]


_CHUNK: Final = msgspec.json.Decoder(_Chunk)


def is_usage_alone(data: bytes) -> bool:
    """Whether a chunk has no choices and a usage, as the one that servers add where they are asked for the usage.

    Azure begins with a chunk without choices and without a usage. Most chunks are not parsed for this.
    """
    if NO_CHOICES.search(data) is None:
        return False
    try:
        return not _CHUNK.decode(data).choices
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


class TokenRequestTarget(NamedTuple):
    """The key under which a refusal is remembered: the server, the model, whether the request streams and has tools."""

    server: str
    model: str
    stream: bool
    tools: bool


def target_of(server: str, body: Mapping[str, object]) -> TokenRequestTarget:
    """What a request of this body to a server is asked as."""
    return TokenRequestTarget(server, str(body.get("model")), bool(body.get("stream")), bool(body.get("tools")))


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

    def ask(self, path: str, target: TokenRequestTarget, body: Mapping[str, object]) -> TokenRequest:
        """What to ask for with a request of this body. One that wants its prompt back gets another one if asked."""
        end = next(filter(path.endswith, ASKS), None)
        if end is None or body.get("echo"):
            return NOTHING
        if target in self._since_doubt:
            self._since_doubt[target] += 1
        accepted = self._accepted.get(target)
        is_remembered = accepted is not None and time.monotonic() < accepted.at + _REMEMBERED
        return accepted.ask if accepted is not None and is_remembered else ASKS[end]

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
                "art-otel: %s refuses to be asked for token ids and logprobs of %s (status %d); it is asked again in"
                " some minutes",
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
