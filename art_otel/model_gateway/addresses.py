"""Addresses: which rollout a request belongs to, and whether the policy is trained on its answer.

Invariant: the clearest statement in a request wins, in this order:

    the path > the app's baggage > our header > an API key `art-ID` > the session that an agent names > its trace

A request without any of these belongs to the conversation that it continues (`Conversations`). Whether a call is
untrained, and what it is for, is taken from the path, else our header, else the app's baggage. The paths:

    /rollout/ID/v1/chat/completions                     the rollout ID
    /rollout/ID;group_id=…;split=…/v1/chat/completions  the rollout ID with its settings
    /rollout/ID/v1?group_id=…&split=…                   the same as a base URL; clients append their path to the query
    /rollout/ID/v1/models/m:generateContent;group_id=…  the same, as google-genai writes such a base URL
    /rollout/ID/untrained/judge/v1/chat/completions     the rollout ID; the call is for a judge, and is not trained
    /untrained/judge/v1/chat/completions                not trained; the rollout is named elsewhere in the request

Sources: https://www.w3.org/TR/trace-context/, https://www.w3.org/TR/baggage/; requests of Claude Code 2.1, Codex 0.169
and opencode 1.18.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, Self, TypeAlias
from urllib.parse import unquote

from art_otel import attributes as names
from art_otel.calls import Message
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies.api_bodies import read_request, read_response
from art_otel.conventions.facts import NO_FACTS
from art_otel.conventions.values import json_object
from art_otel.errors import UsageError
from art_otel.exchange.api_dialects import UNTRAINED_HEADER
from art_otel.spans import Value
from art_otel.tracing.api.context import RECORDED, RUN_ENTRY, TRACE_STATE
from art_otel.tracing.api.running import field_attributes

Headers: TypeAlias = Mapping[str, str]
AddressSource: TypeAlias = Literal["path", "baggage", "header", "key", "session", "trace", "conversation"]

PREFIX: Final = "/rollout/"
END: Final = "/end"
REWARD: Final = "/reward"
"""The ends of a rollout's paths that the gateway answers itself."""

_OUR_HEADER: Final = "x-art-rollout-id"
UNTRAINED_PREFIX: Final = "/untrained/"
KEY: Final = "art-"
"""The beginning of an API key that names a rollout: `art-ID`. The model server never gets such a key."""

_KEY_HEADERS: Final = ("x-api-key", "x-goog-api-key", "authorization")
_KEY_BYTES: Final = frozenset(name.encode() for name in _KEY_HEADERS)
_OWN_BYTES: Final = frozenset((_OUR_HEADER.encode(), UNTRAINED_HEADER.encode()))
MAY_NAME: Final = _KEY_BYTES | _OWN_BYTES
"""The headers that may be meant for the gateway alone."""

_BEARER: Final = "bearer"

_SESSIONS: Final = (
    "x-parent-session-id",  # opencode's sub-agents have sessions of their own, and name the one that started them
    "x-session-affinity",
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-opencode-session",
)
_MAX_CALLS: Final = "max_calls"
_SETTINGS: Final = ("group_id", "split", "attempt", "training_step", "name", _MAX_CALLS)
_NUMBERS: Final = ("attempt", "training_step", _MAX_CALLS)
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")
_SAMPLED: Final = 1
_RECORDED: Final = f"{TRACE_STATE}={RECORDED}"
_MAX_ID: Final = 256
_APPENDED: Final = re.compile("/|(?=(?:chat/completions|completions|responses|messages|embeddings|models)(?:[/?]|$))")
"""Where the path of a request begins behind the query of a base URL. Clients append their path to the whole base URL,
the `openai` client of Python without a `/` between: `…/v1?split=valchat/completions`."""
_MOVED: Final = re.compile(f"(?:{'|'.join(_SETTINGS)})=[^/?&]*")
"""Settings that google-genai moves from the end of a base URL to the end of the whole URL: urllib takes the part behind
`;` for the parameters of the URL."""
_SLASHES: Final = re.compile("/+")
_USER: Final = re.compile(r"session_([0-9a-fA-F-]{8,64})")


class RequestTarget(NamedTuple):
    """The target of a request line, taken apart.

    - `path`, `query`: for the model server. `plain`: the path without doubled slashes and without one at its end.
    - `rollout_id`: None where the path names no rollout. `settings`: attributes for the rollout's own span.
    - `untrained`: what the call is for, if it is not trained, such as "judge".
    """

    path: str
    query: str
    plain: str
    rollout_id: str | None = None
    settings: Mapping[str, str | int] = {}
    untrained: str | None = None


class Parent(NamedTuple):
    """The span of a traced agent in which it sends a request, from the header `traceparent`."""

    trace_id: str
    span_id: str
    is_sampled: bool = True


class RequestAddress(NamedTuple):
    """Where a request belongs.

    - `source`: what in the request says so. `rollout_id`: None where only a trace is known, or nothing.
    - `parent`: the agent's span around the request, where the agent is traced.
    - `settings`, `untrained`: as in `RequestTarget`.
    - `attempt`: which run of the rollout id, as the gateway counts them.
    """

    source: AddressSource
    rollout_id: str | None = None
    parent: Parent | None = None
    settings: Mapping[str, str | int] = {}
    untrained: str | None = None
    attempt: int = 1

    @property
    def is_ours(self) -> bool:
        """Whether the gateway writes the rollout's own span; else the traced app does."""
        return self.source not in ("baggage", "trace")

    def of_attempt(self, attempt: int) -> Self:
        """The same address with this attempt; itself if it has this attempt already, as most have."""
        return self if attempt == self.attempt else self._replace(attempt=attempt)


def is_of_rollout(path: str) -> bool:
    """Whether a path ends or rewards a rollout, so that the gateway answers it itself."""
    return path.startswith(PREFIX) and path.endswith((END, REWARD))


@lru_cache(maxsize=1024)
def read_target(path: str, query: str) -> RequestTarget:
    """Take apart the target of a request; `path` is still percent-encoded. Raises UsageError for an invalid one."""
    if not path.startswith("/"):  # appended to the server's URL, it would change the host: "http://vllm" + "@evil"
        raise UsageError("a request's path must begin with /")
    if not path.startswith(PREFIX):
        untrained, path = _split_label(path)
        return RequestTarget(path, query, _plain(path), untrained=untrained)
    segment, _, rest = path[len(PREFIX) :].partition("/")
    encoded_id, *given = segment.split(";")
    (rest, *in_path), (query, *in_query) = _split_moved(rest), _split_moved(query)
    given += [*in_path, *in_query]
    said, rest, query = _split_query(rest, query)
    untrained, path = _split_label(f"/{rest}")
    settings = read_settings([*given, *said])
    return RequestTarget(path, query, _plain(path), _checked_id(unquote(encoded_id)), settings, untrained)


def _split_moved(text: str) -> Sequence[str]:
    """Split the settings off the end of a path or a query: `alt=sse;split=val` gives `["alt=sse", "split=val"]`."""
    pieces = text.split(";")
    kept = len(pieces)
    while kept > 1 and _MOVED.fullmatch(pieces[kept - 1]):
        kept -= 1
    return [";".join(pieces[:kept]), *pieces[kept:]]


def _plain(path: str) -> str:
    return _SLASHES.sub("/", path).rstrip("/")


def _split_label(path: str) -> tuple[str | None, str]:
    """Take the label of an untrained call out of a path: `/untrained/judge/v1/models` gives `judge`, `/v1/models`."""
    if not path.startswith(UNTRAINED_PREFIX):
        return None, path
    label, _, rest = path[len(UNTRAINED_PREFIX) :].partition("/")
    if not label:
        raise UsageError("/untrained/LABEL/…: say what the calls are for, as in /untrained/judge/v1")
    return unquote(label), f"/{rest}"


def _split_query(rest: str, query: str) -> tuple[list[str], str, str]:
    """Take the rollout's settings out of a query, and the path that a client appended to the query of a base URL.

        rest "v1", query "split=val&x=1/chat/completions"   ─►   ["split=val"], "v1/chat/completions", "x=1"

    Returns the settings, and path and query for the model server. A query without settings is left as it is. Raises
    UsageError for `/end` behind a query.
    """
    appended = _APPENDED.search(query)
    pairs = query[: None if appended is None else appended.start()].split("&")
    said = [pair for pair in pairs if pair.partition("=")[0] in _SETTINGS]
    if not said:
        return [], rest, query
    others = [pair for pair in pairs if pair not in said]
    if appended is not None:
        path, _, own = query[appended.end() :].partition("?")
        if path == "end":  # else the model server would get it, and the rollout would not end
            raise UsageError("end a rollout with POST /rollout/ID/end, without a query before /end")
        rest = "/".join(part for part in (rest.rstrip("/"), path) if part)
        others += [own] if own else []
    return said, rest, "&".join(others)


def read_settings(settings: Sequence[str]) -> Mapping[str, str | int]:
    """Read settings such as `["split=val", "attempt=2"]` as attributes of the rollout's own span.

    Raises UsageError for an unknown name or an invalid value.
    """
    if not settings:
        return {}
    fields: dict[str, str | int] = {}
    for setting in settings:
        name, _, value = map(unquote, setting.partition("="))
        if name not in _SETTINGS:
            nearest = get_close_matches(name, _SETTINGS, 1)
            raise UsageError(
                f"/rollout/ID;{name}=…: a rollout has no {name!r}; "
                + (f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(_SETTINGS)}")
            )
        if name in _NUMBERS and not value.isdecimal():
            raise UsageError(f"/rollout/ID;{name}={value}: give a whole number")
        fields[name] = int(value) if name in _NUMBERS else value
    max_calls = fields.pop(_MAX_CALLS, None)
    attributes = {**field_attributes(**fields), names.MAX_CALLS: max_calls}
    return {name: value for name, value in attributes.items() if isinstance(value, (str, int))}


def read_address(target: RequestTarget, headers: Headers, request: Mapping[str, Value] | None) -> RequestAddress:
    """Find out where a request belongs, and what it is for. `request` is its body; None for one that is no call."""
    baggage = baggage_of(headers.get("baggage", ""))
    # OTel's propagator for Python writes a space as "+".
    untrained = target.untrained or headers.get(UNTRAINED_HEADER) or baggage.get(names.UNTRAINED, "").replace("+", " ")
    address = _rollout_of(target, headers, request, baggage)
    return address._replace(untrained=untrained) if untrained else address


def _rollout_of(
    target: RequestTarget, headers: Headers, request: Mapping[str, Value] | None, baggage: Mapping[str, str]
) -> RequestAddress:
    parent = _parent(headers)
    if target.rollout_id is not None:
        return RequestAddress("path", target.rollout_id, parent, target.settings)
    in_baggage = baggage.get(names.ROLLOUT_ID)
    # Baggage of a traced app has a trace beside it. Without one a script wrote the header by hand and records nothing,
    # so the gateway must write the rollout's own span.
    if in_baggage and (parent is not None or RUN_ENTRY in baggage):
        return RequestAddress("baggage", in_baggage, parent)
    if named := headers.get(_OUR_HEADER) or in_baggage:
        return RequestAddress("header", _checked_id(named), parent)
    if key := next(filter(None, (_read_key(headers.get(name, "")) for name in _KEY_HEADERS)), None):
        return RequestAddress("key", _checked_id(key), parent)
    if session := _session(headers, request):
        # The agent chose this id, and its user cannot change it: cut a long one instead of refusing the call.
        return RequestAddress("session", session[:_MAX_ID], parent)
    return RequestAddress("conversation") if parent is None else RequestAddress("trace", None, parent)


def is_for_gateway(header: bytes, value: bytes) -> bool:
    """Whether a header of `MAY_NAME` is for the gateway alone: our own header, or a key that names a rollout."""
    return header in _OWN_BYTES or _read_key(value.decode("latin-1")) is not None


def _read_key(header: str) -> str | None:
    """The rollout id in an API key such as `Bearer art-ID`; None for any other key."""
    scheme, _, rest = header.partition(" ")
    key = rest.strip() if scheme.lower() == _BEARER else header
    return key[len(KEY) :] or None if key.startswith(KEY) else None


def baggage_of(header: str) -> dict[str, str]:
    """The entries of a baggage header: `a=1;p=2,b=3` gives `{"a": "1", "b": "3"}`."""
    if not header:
        return {}
    pairs = (entry.partition(";")[0].partition("=") for entry in header.split(","))
    return {unquote(name.strip()): unquote(value.strip()) for name, equals, value in pairs if equals}


def _parent(headers: Headers) -> Parent | None:
    """The span that `traceparent` names, if the span is recorded; else its rollout would never come.

    A span is recorded if it is sampled, or if the trace state says that art-otel records the trace in its app.
    """
    if "traceparent" not in headers:
        return None
    match = _TRACEPARENT.fullmatch(headers["traceparent"].strip())
    if match is None or not int(match["trace"], 16) * int(match["span"], 16):
        return None
    is_sampled = bool(int(match["flags"], 16) & _SAMPLED)
    if not is_sampled and _RECORDED not in map(str.strip, headers.get("tracestate", "").split(",")):
        return None
    return Parent(match["trace"], match["span"], is_sampled)


def _session(headers: Headers, request: Mapping[str, Value] | None) -> str | None:
    """The session id that an agent sends: in a header, or, as Claude Code does, in `metadata.user_id` of the body."""
    named = next((headers[name] for name in _SESSIONS if headers.get(name)), None)
    if named is not None or request is None:
        return named
    metadata = values.mapping(request.get("metadata")) or {}
    user = values.text(metadata.get("user_id")) or ""
    match = _USER.search(user)
    return values.text((json_object(user.encode()) or {}).get("session_id")) or (None if match is None else match[1])


def _checked_id(rollout_id: str) -> str:
    if not rollout_id or len(rollout_id) > _MAX_ID or not rollout_id.isprintable():
        raise UsageError(f"a rollout id must be printable text of at most {_MAX_ID} characters")
    return rollout_id


_MAX_PREFIXES: Final = 100_000


class Conversations:
    """The conversations that were answered, for requests that name no rollout.

        call 1: [user A]                       ─► answer B      remembers digest(A, B) ─► rollout r
        call 2: [user A, assistant B, user C]                   begins with A, B: rollout r, too

    The oldest of too many conversations are forgotten.
    """

    def __init__(self) -> None:
        self._rollouts: OrderedDict[bytes, str] = OrderedDict()

    def rollout_of(self, request: dict[str, Value]) -> str | None:
        """The rollout of the longest answered conversation that a request continues; None where it continues none."""
        facts = read_request(AttributeReader({}), "", request) or NO_FACTS
        if facts.previous_response_id is not None:
            return self._rollouts.get(facts.previous_response_id.encode())
        messages = facts.input_messages or ()
        known = [
            digest
            for message, digest in zip(messages, _prefix_digests(messages), strict=True)
            if message.role == "assistant" and digest in self._rollouts
        ]
        return self._rollouts[known[-1]] if known else None

    def answered(self, rollout_id: str, request: dict[str, Value], answer: dict[str, Value]) -> None:
        """Remember the conversations that a call ends in, one for each choice, and the id of its response."""
        prompt = (read_request(AttributeReader({}), "", request) or NO_FACTS).input_messages or ()
        facts = read_response(AttributeReader({}), "", answer) or NO_FACTS
        for choice in facts.choices or ():
            *_, digest = _prefix_digests((*prompt, choice.message))
            self._remember(digest, rollout_id)
        if facts.response_id is not None:
            self._remember(facts.response_id.encode(), rollout_id)

    def _remember(self, key: bytes, rollout_id: str) -> None:
        self._rollouts[key] = rollout_id
        self._rollouts.move_to_end(key)
        while len(self._rollouts) > _MAX_PREFIXES:
            self._rollouts.popitem(last=False)


def _prefix_digests(messages: Iterable[Message]) -> Iterator[bytes]:
    """The digests of the first message, of the first two messages, and so on."""
    digest = b""
    for message in messages:
        digest = blake2b(digest + repr(message.identity).encode(errors="surrogatepass"), digest_size=16).digest()
        yield digest
