"""Client: what is used of openai's client, of httpx's requests and responses, and where hooks are put into it.

Invariant: the places are private to openai, so their parameters are looked at first; where they are others, the client
stays as it is and a problem says what cannot be had. They are reached whoever else wraps the client, in any order,
because everybody else wraps what stands around them. `undo` leaves every place as it was found, but for those where
somebody else has put something since.

Source of the places: openai/_base_client.py of openai 1.66, 1.109, 2.8 and 3.52.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

_CLIENTS: Final = ("OpenAI", "AsyncOpenAI")
_STREAMS: Final = ("Stream", "AsyncStream")
READ: Final = "__stream__"
_REQUEST: Final = "request"
_PROCESS: Final = "_process_response"
_BUILD: Final = "_build_request"
_SEND: Final = "_send_request"
_PREPARE: Final = "_prepare_request"
_PARAMETERS: Final = {
    _REQUEST: {"options"},
    _PROCESS: {"options", "response"},
    _BUILD: {"options"},
    _SEND: {"request", "stream"},
    "send": {"request", "stream"},
    _PREPARE: {"request"},
}

_ABSENT: Final = object()

Method: TypeAlias = Callable[..., Any]
Wrap: TypeAlias = Callable[[Method], Method]


class Patches:
    """What was put where, and what was there before."""

    def __init__(self) -> None:
        self._placed: list[tuple[type | ModuleType, str, object, object]] = []

    def set(self, owner: type | ModuleType, name: str, value: object) -> None:
        """Put a value in the place of whatever `owner` itself has there."""
        self._placed.append((owner, name, value, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Take everything back, the last first."""
        while self._placed:
            owner, name, value, before = self._placed.pop()
            if vars(owner).get(name) is not value:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


class Hooks(NamedTuple):
    """What is put around the methods of both clients: a whole call, the making of a try's request, its answer.

    `stream` is put around the initializer of its streams.
    `asking_build` is put in the place of `build` where `send` can be put around the sending of a request.
    """

    request: Wrap
    build: Wrap
    process: Wrap
    stream: Wrap
    asking_build: Wrap
    send: Wrap | None = None


def hook(openai: ModuleType, patches: Patches, hooks: Hooks) -> list[str]:
    """Put the hooks in place. Returns the problems met."""
    problems: list[str] = []
    version = getattr(openai, "__version__", "(unknown version)")
    for name in _CLIENTS:
        client: object = getattr(openai, name, None)
        if not isinstance(client, type):
            problems.append(f"openai {version} has no {name}: its calls get no exact tokens")
            continue
        if changed := _changed(client, _REQUEST) or _changed(client, _BUILD) or _changed(client, _PROCESS):
            problems.append(f"openai {version}: {changed}: calls of {name} get no exact tokens")
            continue
        build = hooks.build
        if hooks.send is not None:
            sender, send = _sender(openai, client)
            if changed := _changed(client, _PREPARE) or _changed(sender, send):
                problems.append(f"openai {version}: {changed}: {name} asks no server for token ids")
            else:
                build = hooks.asking_build
                _place(sender, send, hooks.send, patches)
        _place(client, _PROCESS, hooks.process, patches)
        _place(client, _BUILD, build, patches)
        _place(client, _REQUEST, hooks.request, patches)
    for name in _STREAMS:
        stream: object = getattr(openai, name, None)
        if isinstance(stream, type) and hasattr(stream, READ):
            _place(stream, "__init__", hooks.stream, patches)
    return problems


def _sender(openai: ModuleType, client: type) -> tuple[type, str]:
    """Who sends requests by which method: the client itself, before openai 3 that of httpx."""
    httpx = getattr(getattr(openai, "_base_client", None), "httpx", None)
    if hasattr(client, _SEND) or httpx is None:
        return client, _SEND
    return (httpx.AsyncClient if client.__name__.startswith("Async") else httpx.Client), "send"


def _place(client: type, name: str, wrap: Wrap, patches: Patches) -> None:
    method: Method = getattr(client, name)
    patches.set(client, name, functools.wraps(method)(wrap(method)))


def _changed(client: type, name: str) -> str | None:
    """How a method differs from the one that is known; None when it does not."""
    method: object = getattr(client, name, None)
    if not callable(method):
        return f"{client.__name__}.{name} is gone"
    missing = _PARAMETERS[name] - set(inspect.signature(method).parameters)
    return f"{client.__name__}.{name} has no {', '.join(sorted(missing))}" if missing else None


RAW_HEADER: Final = "x-stainless-raw-response"
"""Tells the client to hand out the response itself: `true` and `raw` when it was read, `stream` before."""


class Options(Protocol):
    """openai's FinalRequestOptions."""

    method: str
    url: str
    json_data: object
    extra_json: Mapping[str, object] | None
    headers: object


class Request(Protocol):
    """httpx's Request."""

    headers: Mapping[str, str]

    @property
    def content(self) -> bytes:
        """The body."""
        ...


class Response(Protocol):
    """httpx's Response."""

    headers: Mapping[str, str]
    status_code: int
    is_closed: bool

    @property
    def request(self) -> Request:
        """What it answers."""
        ...

    @property
    def content(self) -> bytes:
        """The body, once it was read."""
        ...

    def iter_bytes(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:  # noqa: ANN401 # as httpx has them
        """The body as it comes."""
        ...

    def aiter_bytes(self, *args: Any, **kwargs: Any) -> AsyncIterator[bytes]:  # noqa: ANN401 # as httpx has them
        """The body as it comes."""
        ...

    def read(self) -> bytes:
        """Read the body, which is kept."""
        ...

    async def aread(self) -> bytes:
        """Read the body, which is kept."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...

    async def aclose(self) -> None:
        """Give the connection back."""
        ...
