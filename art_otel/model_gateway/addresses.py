"""Addresses: which rollout a request belongs to, and whether the policy learns from its answer.

Invariant: who says it more clearly goes first: the path, the app's baggage, a header of ours, an API key that was made
for a rollout, the session that an agent names of itself, a trace. What says nothing belongs to the conversation that it
continues (`Conversations`). Whether a call is untrained, and what it is for, is said likewise: by the path,
a header of ours, the app's baggage.

    /rollout/ID/v1/chat/completions                     the rollout ID
    /rollout/ID;group_id=…;split=…/v1/chat/completions  what is said of it, too
    /rollout/ID/v1?group_id=…&split=…                   the same, as a base URL; clients put their path behind its query
    /rollout/ID/v1/models/m:generateContent;group_id=…  the same, as google-genai writes such a base URL
    /rollout/ID/untrained/judge/v1/chat/completions     the rollout ID; the call is for a judge, and is not trained
    /untrained/judge/v1/chat/completions                the same of a call whose rollout something else says

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
from art_otel.spans import Value
from art_otel.tracing.api.context import RECORDED, RUN_ENTRY, TRACE_STATE
from art_otel.tracing.api.running import field_attributes

Headers: TypeAlias = Mapping[str, str]
AddressSource: TypeAlias = Literal["path", "baggage", "header", "key", "session", "trace", "conversation"]

PREFIX: Final = "/rollout/"
END: Final = "/end"
REWARD: Final = "/reward"
"""How paths of a rollout end that are the gateway's own."""

_OUR_HEADER: Final = "x-art-rollout-id"
UNTRAINED_PREFIX: Final = "/untrained/"
KEY: Final = "art-"
"""How an API key begins that names a rollout. It is no key of the model server, which never gets it."""

_KEY_HEADERS: Final = ("x-api-key", "x-goog-api-key", "authorization")
_KEY_BYTES: Final = frozenset(name.encode() for name in _KEY_HEADERS)
_OWN_BYTES: Final = frozenset((_OUR_HEADER.encode(), names.UNTRAINED_HEADER.encode()))
MAY_NAME: Final = _KEY_BYTES | _OWN_BYTES
"""The headers that may be for the gateway alone."""

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
"""Where a request's path begins behind the query of a base URL; the `openai` client of Python puts no `/` between."""
_MOVED: Final = re.compile(f"(?:{'|'.join(_SETTINGS)})=[^/?&]*")
"""What google-genai moves from the end of a base URL to that of the whole address, because urllib takes it apart so."""
_SLASHES: Final = re.compile("/+")
_USER: Final = re.compile(r"session_([0-9a-fA-F-]{8,64})")


class RequestTarget(NamedTuple):
    """What a request line asks for: the path and query for the model server, and what it says of rollout and call.

    `plain` is the path as servers understand it that forgive a slash too many. `settings` are attributes of the
    rollout's own span. `untrained` says what the call is for, if it is not trained.
    """

    path: str
    query: str
    plain: str
    rollout_id: str | None = None
    settings: Mapping[str, str | int] = {}
    untrained: str | None = None


class Parent(NamedTuple):
    """The span of an agent that is traced itself."""

    trace_id: str
    span_id: str
    is_sampled: bool = True


class RequestAddress(NamedTuple):
    """Where a request belongs. `parent` is the span around it, where the agent is traced itself.

    `rollout_id` is None where only a trace is known, or nothing. `untrained` is as a target's. `attempt` is which run
    of the id it belongs to, as the gateway counts them.
    """

    source: AddressSource
    rollout_id: str | None = None
    parent: Parent | None = None
    settings: Mapping[str, str | int] = {}
    untrained: str | None = None
    attempt: int = 1

    @property
    def is_ours(self) -> bool:
        """Whether the rollout's own span is the gateway's to write."""
        return self.source not in ("baggage", "trace")

    def of_attempt(self, attempt: int) -> Self:
        """The same with this attempt, which mostly is the first."""
        return self if attempt == self.attempt else self._replace(attempt=attempt)


def is_of_rollout(path: str) -> bool:
    """Whether a path says something of a rollout, and is for no model server."""
    return path.startswith(PREFIX) and path.endswith((END, REWARD))


@lru_cache(maxsize=1024)
def read_target(path: str, query: str) -> RequestTarget:
    """Read a request's target, whose path is still encoded. Raises UsageError for one that is none."""
    if not path.startswith("/"):  # it would be a part of the server's address
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
    """A path or a query, and behind it the settings at its end: `alt=sse;split=val` gives `alt=sse` and `split=val`."""
    pieces = text.split(";")
    kept = len(pieces)
    while kept > 1 and _MOVED.fullmatch(pieces[kept - 1]):
        kept -= 1
    return [";".join(pieces[:kept]), *pieces[kept:]]


def _plain(path: str) -> str:
    return _SLASHES.sub("/", path).rstrip("/")


def _split_label(path: str) -> tuple[str | None, str]:
    """Take what the call is for out of a path: `/untrained/judge/v1/models` gives `judge` and `/v1/models`."""
    if not path.startswith(UNTRAINED_PREFIX):
        return None, path
    label, _, rest = path[len(UNTRAINED_PREFIX) :].partition("/")
    if not label:
        raise UsageError("/untrained/LABEL/…: say what the calls are for, as in /untrained/judge/v1")
    return unquote(label), f"/{rest}"


def _split_query(rest: str, query: str) -> tuple[list[str], str, str]:
    """Take what a query says of the rollout out of it, and the path that a client put behind the query of a base URL.

    Gives the settings, the path and the query for the model server. Without any setting the query is the server's.
    Raises UsageError where the path is that of an end.
    """
    appended = _APPENDED.search(query)
    pairs = query[: None if appended is None else appended.start()].split("&")
    said = [pair for pair in pairs if pair.partition("=")[0] in _SETTINGS]
    if not said:
        return [], rest, query
    others = [pair for pair in pairs if pair not in said]
    if appended is not None:
        path, _, own = query[appended.end() :].partition("?")
        if path == "end":  # it is no request for a model server
            raise UsageError("end a rollout with POST /rollout/ID/end, without a query before /end")
        rest = "/".join(part for part in (rest.rstrip("/"), path) if part)
        others += [own] if own else []
    return said, rest, "&".join(others)


def read_settings(settings: Sequence[str]) -> Mapping[str, str | int]:
    """Read the settings of a rollout, each `name=value`, as attributes. Raises UsageError that names what is none."""
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
    """Read where a request belongs, and what it is for. `request` is its body, None where it is not recorded."""
    baggage = baggage_of(headers.get("baggage", ""))
    # OTel's propagator for Python writes a space as "+".
    untrained = (
        target.untrained or headers.get(names.UNTRAINED_HEADER) or baggage.get(names.UNTRAINED, "").replace("+", " ")
    )
    address = _rollout_of(target, headers, request, baggage)
    return address._replace(untrained=untrained) if untrained else address


def _rollout_of(
    target: RequestTarget, headers: Headers, request: Mapping[str, Value] | None, baggage: Mapping[str, str]
) -> RequestAddress:
    parent = _parent(headers)
    if target.rollout_id is not None:
        return RequestAddress("path", target.rollout_id, parent, target.settings)
    in_baggage = baggage.get(names.ROLLOUT_ID)
    if in_baggage and (parent is not None or RUN_ENTRY in baggage):  # else a program wrote the header that records none
        return RequestAddress("baggage", in_baggage, parent)
    if named := headers.get(_OUR_HEADER) or in_baggage:
        return RequestAddress("header", _checked_id(named), parent)
    if key := next(filter(None, (_read_key(headers.get(name, "")) for name in _KEY_HEADERS)), None):
        return RequestAddress("key", _checked_id(key), parent)
    if session := _session(headers, request):
        return RequestAddress("session", session[:_MAX_ID], parent)
    return RequestAddress("conversation") if parent is None else RequestAddress("trace", None, parent)


def is_for_gateway(header: bytes, value: bytes) -> bool:
    """Whether one of the headers `MAY_NAME` names a rollout or marks a call: it is not for the model server."""
    return header in _OWN_BYTES or _read_key(value.decode("latin-1")) is not None


def _read_key(header: str) -> str | None:
    """The rollout that the API key in a header's value names; None for a key of a model server."""
    scheme, _, rest = header.partition(" ")
    key = rest.strip() if scheme.lower() == _BEARER else header
    return key[len(KEY) :] or None if key.startswith(KEY) else None


def baggage_of(header: str) -> dict[str, str]:
    """The entries of a baggage header, without their properties."""
    if not header:
        return {}
    pairs = (entry.partition(";")[0].partition("=") for entry in header.split(","))
    return {unquote(name.strip()): unquote(value.strip()) for name, equals, value in pairs if equals}


def _parent(headers: Headers) -> Parent | None:
    """The span that a traceparent names, if somebody records it: it is sampled, or art-otel is in its app."""
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
    """The session that an agent names: in a header, or as Claude Code in `metadata.user_id`."""
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


_MAX_PATHS: Final = 100_000


class Conversations:
    """The paths that were answered: a digest of each, and its rollout."""

    def __init__(self) -> None:
        self._rollouts: OrderedDict[bytes, str] = OrderedDict()

    def rollout_of(self, request: dict[str, Value]) -> str | None:
        """The rollout of the longest path that a request continues; None where it continues none."""
        facts = read_request(AttributeReader({}), "", request) or NO_FACTS
        if facts.previous_response_id is not None:
            return self._rollouts.get(facts.previous_response_id.encode())
        messages = facts.input_messages or ()
        paths = [
            path
            for message, path in zip(messages, _paths(messages), strict=True)
            if message.role == "assistant" and path in self._rollouts
        ]
        return self._rollouts[paths[-1]] if paths else None

    def answered(self, rollout_id: str, request: dict[str, Value], answer: dict[str, Value]) -> None:
        """Remember the paths of a call."""
        prompt = (read_request(AttributeReader({}), "", request) or NO_FACTS).input_messages or ()
        facts = read_response(AttributeReader({}), "", answer) or NO_FACTS
        for choice in facts.choices or ():
            *_, path = _paths((*prompt, choice.message))
            self._remember(path, rollout_id)
        if facts.response_id is not None:
            self._remember(facts.response_id.encode(), rollout_id)

    def _remember(self, path: bytes, rollout_id: str) -> None:
        self._rollouts[path] = rollout_id
        self._rollouts.move_to_end(path)
        while len(self._rollouts) > _MAX_PATHS:
            self._rollouts.popitem(last=False)


def _paths(messages: Iterable[Message]) -> Iterator[bytes]:
    """The digest of each prefix that ends with a message."""
    path = b""
    for message in messages:
        path = blake2b(path + repr(message.identity).encode(errors="surrogatepass"), digest_size=16).digest()
        yield path
