"""Capture: exact tokens, choices and request parameters onto the live spans of LLM calls.

`Capture` puts hooks around three moments of the client: around a whole request, which makes a `Call` current; around
the making of each try's request, where the call finds its span; around the answer, which the call reads as the app
does.

OpenLLMetry's instrumentor is repaired where its errors would reach the app because we started it: each repair stands
for one fault and is named with it. Where the code is not as the fault has it, it is left alone; once the fault is gone,
its repair changes nothing (as of opentelemetry-instrumentation-openai 0.62.4).

Invariant: it works whichever instrumentor makes the spans and whenever it was put in place; it imports neither openai
nor an instrumentor; what goes wrong in it is logged and never raised into the app.
"""

import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Final, TypeAlias

from opentelemetry.trace import Span

from art_otel.scrubbing import Scrubber
from art_otel.tracing.internal_errors import InternalErrorHandler, after_import
from art_otel.tracing.openai.call import CAPTURING, OPENLLMETRY, Call, asks_for_completion, current_call
from art_otel.tracing.openai.client import Asks, Hooks, Method, Options, Patches, Request, Response, hook
from art_otel.tracing.openai.token_id_injector import TokenIdInjector

__all__ = ["Capture", "install", "uninstall"]

logger = logging.getLogger(__name__)

_ASKING_VERSION: Final = InternalErrorHandler("the policy version could not be asked for")

_lock: Final = threading.Lock()
_installed: "Capture | None" = None


def install(
    *,
    request_tokens: bool = False,
    policy_version_header: str | None = None,
    policy_version: Callable[[], str] | None = None,
    scrubber: Scrubber | None = None,
    makes_spans: bool = True,
) -> "Capture":
    """Capture calls of openai's clients from now on. What was installed before is replaced.

    `request_tokens` asks servers for token ids and logprobs where the app does not. The version of the weights that
    sampled is read from the response header `policy_version_header`, else asked of `policy_version`.
    Token ids are written only where `scrubber` finds no secret in what they spell. Without `makes_spans` only calls
    that somebody else records are captured.
    """
    global _installed  # noqa: PLW0603 # the client's classes are the process's, and so are their hooks
    with _lock:
        if _installed is not None:
            _installed.remove()
        _installed = Capture(
            request_tokens=request_tokens,
            policy_version_header=policy_version_header,
            policy_version=policy_version,
            scrubber=scrubber,
            makes_spans=makes_spans,
        )
        _installed.place()
        return _installed


def uninstall() -> None:
    """Leave openai and the instrumentors as they were found."""
    global _installed  # noqa: PLW0603 # as above
    with _lock:
        if _installed is not None:
            _installed.remove()
        _installed = None


class Capture:
    """What is captured and how. `problems` says what cannot be had of the modules that are imported."""

    def __init__(
        self,
        *,
        request_tokens: bool,
        policy_version_header: str | None,
        policy_version: Callable[[], str] | None,
        scrubber: Scrubber | None,
        makes_spans: bool,
    ) -> None:
        self.problems: tuple[str, ...] = ()
        self.calls = 0
        self._injector = TokenIdInjector() if request_tokens else None
        self._header = policy_version_header
        self._version = policy_version
        is_versioned = policy_version_header is not None or policy_version is not None
        self._policy_version = self._policy_version_of if is_versioned else None
        self._scrubber = scrubber
        self._makes_spans = makes_spans
        self._patches = Patches()
        self._is_removed = False

    def place(self) -> None:
        """Hook what is imported, and what will be as soon as it is."""
        after_import("openai", self._hook_client)
        for name, repairs in REPAIRS.items():
            after_import(name, partial(self._repair, name, repairs))

    def remove(self) -> None:
        """Undo everything."""
        self._is_removed = True
        self._patches.undo()
        if self._injector is not None:
            self._injector.is_on = False

    def _hook_client(self) -> None:
        if self._is_removed:
            return
        openai = sys.modules["openai"]
        injector = self._injector
        asks = (
            None if injector is None else Asks(build=injector.build, send=injector.send, async_send=injector.async_send)
        )
        hooks = Hooks(request=self._request, build=self._build, process=self._process, asks=asks)
        problems = hook(openai, self._patches, hooks)
        self.problems += tuple(problems)
        for problem in problems:
            logger.warning("art-otel: %s", problem)

    def _repair(self, name: str, repairs: "dict[str, Repair]") -> None:
        if not self._is_removed:
            repair(sys.modules[name], repairs, self._patches)

    def _request(self, method: Method) -> Method:
        """Wrap `request` of a client, sync or async, which makes one call with all its tries."""

        def request(client: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as openai
            with Call():
                return method(client, *args, **kwargs)

        async def async_request(client: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as openai
            with Call():
                return await method(client, *args, **kwargs)

        return async_request if inspect.iscoroutinefunction(method) else request

    def _build(self, method: Method) -> Method:
        """Wrap `_build_request` of a client, which makes the request of one try."""

        def build(client: Any, options: Options, *args: Any, **kwargs: Any) -> Request:  # noqa: ANN401 # as openai
            call, told = None, options
            with CAPTURING:
                call = current_call() if asks_for_completion(options) else None
                if call is not None:
                    call.begin(client, options, may_record=self._makes_spans and not self._is_removed)
                    told = call.told(options)
            request: Request = method(client, told, *args, **kwargs)
            if call is not None:
                call.request = request
            return request

        return build

    def _process(self, method: Method) -> Method:
        """Wrap `_process_response` of a client, sync or async: an async client's coroutine is returned as it is."""

        def process(client: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as openai
            with CAPTURING:
                self._begin(kwargs["options"], kwargs["response"])
            return method(client, *args, **kwargs)

        return process

    def _begin(self, options: Options, response: Response) -> None:
        """Begin to capture the response to a request."""
        call = current_call()
        if call is None or call.request is None or self._is_removed:
            return
        if call.answer(options, response, self._policy_version, self._scrubber):
            self.calls += 1

    def _policy_version_of(self, response: Response) -> str | None:
        version = None if self._header is None else response.headers.get(self._header)
        if version is not None or self._version is None:
            return version
        with _ASKING_VERSION:
            return str(self._version())
        return None


_UNGIVEN: Final = ("Omit", "NotGiven")
_READING_CHUNK: Final = InternalErrorHandler("OpenLLMetry could not read a chunk, and may miss something of the answer")

Function: TypeAlias = Callable[..., Any]
Repair: TypeAlias = Callable[[Function], Function]


def _forgiving(accumulate: Function) -> Function:
    """Fault: a choice that streams before one of a lower index, and a chunk without choices, raise into the app."""

    def forgiving(item: Any, complete_response: Any) -> None:  # noqa: ANN401 # as OpenLLMetry
        with _READING_CHUNK:
            accumulate(item, complete_response)

    return forgiving


def _leaving_out_ungiven(write: Function) -> Function:
    """Fault: a parameter that stands for one that was not given is written; OTel's SDK logs a warning for each."""

    def writing(span: Span, kwargs: dict[str, Any], *rest: Any) -> None:  # noqa: ANN401 # as OpenLLMetry
        write(span, {name: value for name, value in kwargs.items() if not _is_ungiven(value)}, *rest)

    return writing


def _leaving_out_ungiven_of_chat(handle: Function) -> Function:
    """The same fault in chats, where the parameters are also changed by what reads them."""

    async def handling(span: Span, kwargs: dict[str, Any], *rest: Any) -> None:  # noqa: ANN401 # as OpenLLMetry
        if not any(map(_is_ungiven, kwargs.values())):
            await handle(span, kwargs, *rest)
            return
        given = {name: value for name, value in kwargs.items() if not _is_ungiven(value)}
        await handle(span, given, *rest)
        kwargs.update(given)

    return handling


def _is_ungiven(value: object) -> bool:
    kind = type(value)
    return kind.__name__ in _UNGIVEN and kind.__module__.partition(".")[0] == "openai"


def _leaving_out_reasoning(sanitize: Function) -> Function:
    """Fault: where `reasoning` is no dict, a stream of the Responses API raises AttributeError into the app."""

    def sanitizing(kwargs: dict[str, Any]) -> dict[str, Any]:
        sane: dict[str, Any] = sanitize(kwargs)
        return {name: value for name, value in sane.items() if name != "reasoning" or isinstance(value, dict)}

    return sanitizing


REPAIRS: Final[dict[str, dict[str, Repair]]] = {
    f"{OPENLLMETRY}.shared.chat_wrappers": {
        "_handle_request": _leaving_out_ungiven_of_chat,
        "_accumulate_stream_items": _forgiving,
    },
    f"{OPENLLMETRY}.shared.completion_wrappers": {"_set_request_attributes": _leaving_out_ungiven},
    f"{OPENLLMETRY}.shared.embeddings_wrappers": {"_set_request_attributes": _leaving_out_ungiven},
    f"{OPENLLMETRY}.v1.responses_wrappers": {"_sanitize_sentinel_values": _leaving_out_reasoning},
}
"""By the module that has the fault and the name of its function."""


def repair(module: ModuleType, repairs: dict[str, Repair], patches: Patches) -> None:
    """Repair the functions of a module that it has."""
    for name, around in repairs.items():
        function: Any = getattr(module, name, None)
        if callable(function):
            patches.set(module, name, functools.wraps(function)(around(function)))
