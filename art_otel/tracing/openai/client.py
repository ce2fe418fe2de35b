"""Client: the parts of openai's client and of httpx that art-otel uses, and where its hooks go.

Invariant: the hooked methods are private to openai, so their parameters are checked first. Where a parameter is
missing, that client stays as it is and a problem says what is lost. Instrumentors wrap the public methods, which call
these, so the hooks work in any order of set-up. `undo` restores every method, but for those that another library has
replaced since.

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
    """Replaced attributes of classes and modules, each with its earlier value, so that they can be restored."""

    def __init__(self) -> None:
        self._placed: list[tuple[type | ModuleType, str, object, object]] = []

    def set(self, owner: type | ModuleType, name: str, value: object) -> None:
        """Set an attribute of `owner`, and remember its earlier value."""
        self._placed.append((owner, name, value, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore all attributes, the last one first."""
        while self._placed:
            owner, name, value, before = self._placed.pop()
            if vars(owner).get(name) is not value:  # another library wrapped ours: restoring would take out its hook
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


class Hooks(NamedTuple):
    """The wrappers for the methods of both clients, sync and async.

    - `request`: around a whole call.
    - `build`: around the making of the HTTP request of one try.
    - `process`: around the handling of a response.
    - `stream`: around `__init__` of the client's streams.
    - `send`: around the sending of a request; None where nothing is asked of servers.
    - `asking_build`: takes the place of `build` where `send` found its method: only there a refusal can be mended.
    """

    request: Wrap
    build: Wrap
    process: Wrap
    stream: Wrap
    asking_build: Wrap
    send: Wrap | None = None


def hook(openai: ModuleType, patches: Patches, hooks: Hooks) -> list[str]:
    """Put the hooks into the module `openai`. Returns the problems, as texts for a person."""
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
    """The class and the method that send requests: openai's client from version 3 on, before that httpx's client."""
    httpx = getattr(getattr(openai, "_base_client", None), "httpx", None)
    if hasattr(client, _SEND) or httpx is None:
        return client, _SEND
    return (httpx.AsyncClient if client.__name__.startswith("Async") else httpx.Client), "send"


def _place(client: type, name: str, wrap: Wrap, patches: Patches) -> None:
    method: Method = getattr(client, name)
    patches.set(client, name, functools.wraps(method)(wrap(method)))


def _changed(client: type, name: str) -> str | None:
    """How a method differs from the one that the hooks are written for; None where it does not."""
    method: object = getattr(client, name, None)
    if not callable(method):
        return f"{client.__name__}.{name} is gone"
    missing = _PARAMETERS[name] - set(inspect.signature(method).parameters)
    return f"{client.__name__}.{name} has no {', '.join(sorted(missing))}" if missing else None


RAW_HEADER: Final = "x-stainless-raw-response"
"""The request header by which `with_raw_response` asks the client for the response object instead of the parsed answer.

Its value is `true` or `raw` where the client reads the body first, `stream` where the app reads it.
"""


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
        """The request that this response answers."""
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
