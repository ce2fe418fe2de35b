"""Capture: exact tokens, choices and request parameters onto the live spans of LLM calls.

`Capture` puts a hook around four methods of openai's client:

    request            one call with all its tries      make a `ClientCall` the current one
    _build_request     the HTTP request of one try      find the call's span; ask for token ids where the app does not
    _send_request      sending it                       send again with less, if the server refuses the addition
    _process_response  the response has begun           copy the body while the app reads it

Invariant: Capture works with any instrumentor, in any order of set-up, and imports neither openai nor an instrumentor.
Its own faults are logged and never raised into the app. A request changes only if its call is recorded in a rollout,
and only by fields and headers that the app did not set. If a server refuses these, the request is sent again without
them: the app sees no refusal that it did not cause.

Some faults of OpenLLMetry's instrumentor (as of opentelemetry-instrumentation-openai 0.62.4) raise into the app. Since
art-otel starts that instrumentor, it repairs them: `REPAIRS` has one function for each fault. A repair of a fault that
a later version does not have changes nothing.
"""

import copy
import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from opentelemetry import trace
from wrapt import FunctionWrapper

from art_otel.calls import StreamClose
from art_otel.exchange.token_requests import NO_ADDITIONS, REFUSALS, TokenAsking, TokenRequests
from art_otel.scrubbing import Scrubber
from art_otel.tracing.api.context import AskVersion
from art_otel.tracing.internal_errors import InternalErrorHandler, after_import
from art_otel.tracing.openai.call import (
    CAPTURING,
    OPENLLMETRY,
    ClientCall,
    asks_for_completion,
    current_call,
    current_call_span,
    model_of,
)
from art_otel.tracing.openai.client import Hooks, Method, Options, Patches, Request, Response, hook
from art_otel.tracing.openai.stream import ending_when_dropped
from art_otel.tracing.sdk.processor import is_spooled_only

__all__ = ["Capture", "install", "uninstall"]

logger = logging.getLogger(__name__)

_REMEMBERING: Final = InternalErrorHandler("the app will see the error of a server that refuses requests for token ids")
_ASKING_VERSION: Final = InternalErrorHandler("the function for the policy version raised")

_lock: Final = threading.Lock()
_installed: "Capture | None" = None


def install(
    *,
    request_tokens: bool = False,
    policy_version_header: str | None = None,
    policy_version: AskVersion | None = None,
    scrubber: Scrubber | None = None,
    makes_spans: bool = True,
    stream_close: StreamClose = "left",
) -> "Capture":
    """Capture the calls of openai's clients from now on. An earlier installation is replaced.

    - `request_tokens`: ask servers for token ids and logprobs where the app does not.
    - `policy_version_header`: the response header that names the version of the weights. Without it (or where a
      response lacks it) the function `policy_version` is asked when the request leaves and when the answer ends.
    - `scrubber`: token ids are written only where it finds no secret in the texts that they spell.
    - `makes_spans`: start a span for a call that no instrumentor records. False: capture only what others record.
    - `stream_close`: what it means that the app closes a stream before its end.
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
            stream_close=stream_close,
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
    """The hooks of one `install`, with its settings (described there).

    `problems` are texts for a person: which hook found no place in this version of openai, and what is lost by that.
    `calls` counts the captured responses.
    """

    def __init__(
        self,
        *,
        request_tokens: bool,
        policy_version_header: str | None,
        policy_version: AskVersion | None,
        scrubber: Scrubber | None,
        makes_spans: bool,
        stream_close: StreamClose,
    ) -> None:
        self.problems: tuple[str, ...] = ()
        self.calls = 0
        self._token_requests = TokenRequests() if request_tokens else None
        self._header = policy_version_header
        self._version = policy_version
        self._scrubber = scrubber
        self._makes_spans = makes_spans
        self._stream_close: StreamClose = stream_close
        self._patches = Patches()
        self._is_removed = False

    def place(self) -> None:
        """Put the hooks into the modules that are imported, and into the others as soon as they are."""
        after_import("openai", self._hook_client)
        for module, name, around in REPAIRS:
            after_import(module, partial(self._repair, module, name, around))

    def remove(self) -> None:
        """Take all hooks out again. A module that is imported later is left alone."""
        self._is_removed = True
        self._patches.undo()

    def _hook_client(self) -> None:
        if self._is_removed:
            return
        hooks = Hooks(
            request=self._request,
            build=partial(self._build, None),
            process=self._process,
            stream=ending_when_dropped,
            asking_build=partial(self._build, self._token_requests),
            send=None if self._token_requests is None else _send,
        )
        problems = hook(sys.modules["openai"], self._patches, hooks)
        self.problems += tuple(problems)
        for problem in problems:
            logger.warning("art-otel: %s", problem)

    def _repair(self, module: str, name: str, around: "Repair") -> None:
        if not self._is_removed:
            repair(sys.modules[module], name, around, self._patches)

    def _request(self, method: Method) -> Method:
        """Wrap `request` of a client, sync or async, which makes one call with all its tries."""

        def request(client: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as openai
            with ClientCall():
                return method(client, *args, **kwargs)

        async def async_request(client: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as openai
            with ClientCall():
                return await method(client, *args, **kwargs)

        return async_request if inspect.iscoroutinefunction(method) else request

    def _build(self, token_requests: TokenRequests | None, method: Method) -> Method:
        """Wrap `_build_request` of a client, which makes the request of one try.

        With `token_requests` the wrapped method asks for token ids, too.
        """

        def build(client: Any, options: Options, *args: Any, **kwargs: Any) -> Request:  # noqa: ANN401 # as openai
            def make(options: Options) -> Request:
                return method(client, options, *args, **kwargs)

            call, sent = None, options
            try:
                call = current_call() if asks_for_completion(options) else None
                if call is not None:
                    call.begin(client, options, may_record=self._makes_spans and not self._is_removed)
                    headers = call.trace_headers()
                    if self._version is not None and call.is_in_rollout:
                        call.ask_version = partial(self._ask_version, self._version, model_of(options))
                        call.policy_version = call.ask_version()
                    if headers and token_requests is not None and not self._is_removed:
                        sent = _asking(token_requests, call, client, options, headers, make)
                    elif headers:
                        sent = _with(options, headers, {})
            except Exception as fault:  # noqa: BLE001 # the app's own request is sent
                CAPTURING.note(fault)
            request = make(sent)
            if call is not None:
                call.request = request
            return request

        return build

    def _process(self, method: Method) -> Method:
        """Wrap `_process_response` of a client, sync or async: an async client's coroutine is returned as it is."""

        def process(client: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as openai
            try:
                self._begin(kwargs["response"])
            except Exception as fault:  # noqa: BLE001 # the app gets its answer
                CAPTURING.note(fault)
            return method(client, *args, **kwargs)

        return process

    def _begin(self, response: Response) -> None:
        call = current_call()
        if call is None or call.request is None or self._is_removed:
            return
        if self._header is not None and (named := response.headers.get(self._header)) is not None:
            call.policy_version, call.ask_version = named, None  # the server knows better than the app's function
        additions = call.injected.asking.additions if isinstance(call.injected, InjectedRequest) else NO_ADDITIONS
        if call.answer(response, self._scrubber, self._stream_close, additions):
            self.calls += 1

    def _ask_version(self, version: AskVersion, model: str | None) -> str | None:
        with _ASKING_VERSION:
            found = version(model)
            return None if found is None else str(found)
        return None


class InjectedRequest(NamedTuple):
    """A request by which art-otel asks the server for more than the app did with its own `options`.

    `asking` says what is asked for, and asks for less after each refusal. `headers` (of the trace) stay in every try.
    `make` is the client's own method that turns options into an HTTP request.
    """

    asking: TokenAsking
    client: Any
    options: Options
    headers: Mapping[str, str]
    make: Callable[[Options], Request]

    def extended(self) -> Options:
        """The app's options with the fields and headers that are asked for now."""
        added = self.asking.additions
        return _with(self.options, {**self.headers, **added.ask.headers}, added.fields)


def _asking(
    token_requests: TokenRequests,
    call: ClientCall,
    client: Any,  # noqa: ANN401 # as openai
    options: Options,
    headers: Mapping[str, str],
    make: Callable[[Options], Request],
) -> Options:
    """Return the app's options with the headers and the additions, and note at the call what must be taken out again.

    A body that is no JSON object gets the headers only.
    """
    call.injected = None  # of an earlier try
    given = options.json_data
    if not isinstance(given, Mapping):
        return _with(options, headers, {})
    body = {**cast(Mapping[str, object], given), **(options.extra_json or {})}
    injected = InjectedRequest(
        token_requests.begin(str(client.base_url), options.url, body), client, options, headers, make
    )
    if injected.asking.additions.is_hidden:
        call.injected = injected
    return injected.extended()


def _with(options: Options, headers: Mapping[str, str], missing: Mapping[str, object]) -> Options:
    """Return a copy of the options with those of the `headers` that the app did not set, and the `missing` fields."""
    extended = copy.copy(options)
    given = options.headers  # openai has something that is no mapping where the app gave none
    own = dict(cast(Mapping[str, object], given)) if isinstance(given, Mapping) else {}
    names = set(map(str.lower, own))
    for name, value in headers.items():
        if name not in names:
            own[name] = value
    extended.headers = own
    if missing:
        extended.extra_json = {**(options.extra_json or {}), **missing}
    return extended


def _send(method: Method) -> Method:
    """Wrap the method that sends a request, of openai's client or of httpx, sync or async.

    A refused request is sent again here, below the client's own retries: it costs the app none of its `max_retries`.
    """

    def send(sender: Any, request: Request, **kwargs: Any) -> Response:  # noqa: ANN401 # as openai and httpx
        response: Response = method(sender, request, **kwargs)
        while (injected := _refused(request, response)) is not None:
            response.read()
            request = _again(injected, response)
            injected.client._prepare_request(request)  # noqa: SLF001 # where providers sign
            response.close()
            response = method(sender, request, **kwargs)
            injected.asking.answered(response.status_code)
        return response

    async def async_send(sender: Any, request: Request, **kwargs: Any) -> Response:  # noqa: ANN401 # as above
        response: Response = await method(sender, request, **kwargs)
        while (injected := _refused(request, response)) is not None:
            await response.aread()
            request = _again(injected, response)
            await injected.client._prepare_request(request)  # noqa: SLF001 # where providers sign
            await response.aclose()
            response = await method(sender, request, **kwargs)
            injected.asking.answered(response.status_code)
        return response

    return async_send if inspect.iscoroutinefunction(method) else send


def _refused(request: Request, response: Response) -> InjectedRequest | None:
    """Return the injected request that this response refuses, if the additions may be the reason; else None.

    It is taken from the call (`injected` becomes None) so that no other response is blamed on it.
    """
    if response.status_code not in REFUSALS:
        return None
    with _REMEMBERING:
        call = current_call()
        injected = None if call is None or call.request is not request else call.injected
        if (
            call is not None
            and isinstance(injected, InjectedRequest)
            and injected.asking.may_be_why(response.status_code)
        ):
            call.injected = None
            return injected
    return None


def _again(injected: InjectedRequest, refused: Response) -> Request:
    """The same request with fewer additions, in the end with none; it becomes the call's request."""
    injected.asking.ask_less(refused.status_code, refused.content)
    request = injected.make(injected.extended())
    call = current_call()
    if call is not None:
        call.request = request
        call.injected = injected if injected.asking.additions.is_hidden else None
    return request


_READING_CHUNK: Final = InternalErrorHandler("OpenLLMetry could not read a chunk, and may lack part of the answer")

Function: TypeAlias = Callable[..., Any]
Repair: TypeAlias = Callable[[Function], Function]


def _forgiving(accumulate: Function) -> Function:
    """Repair of this fault: a choice that streams before one of a lower index raises into the app.

    So does a chunk without choices.
    """

    def forgiving(item: Any, complete_response: Any) -> None:  # noqa: ANN401 # as OpenLLMetry
        try:
            accumulate(item, complete_response)
        except Exception as fault:  # noqa: BLE001 # theirs, which would be raised into the app
            _READING_CHUNK.note(fault)

    return forgiving


def _leaving_out_reasoning(sanitize: Function) -> Function:
    """Repair of this fault: where `reasoning` is no dict, a stream of Responses raises AttributeError into the app."""

    def sanitizing(kwargs: dict[str, Any]) -> dict[str, Any]:
        sane: dict[str, Any] = sanitize(kwargs)
        return {name: value for name, value in sane.items() if name != "reasoning" or isinstance(value, dict)}

    return sanitizing


def _leaving_out_ungiven(write: Function) -> Function:
    """Repair of this fault: openai's placeholder of a parameter that the app did not give is written to the span.

    OTel's SDK logs a warning for each, because the placeholder is no value of an attribute.
    """

    def writing(span: Any, name: str, value: Any) -> None:  # noqa: ANN401 # as OpenLLMetry
        if type(value).__name__ not in ("Omit", "NotGiven"):
            write(span, name, value)

    return writing


REPAIRS: Final[tuple[tuple[str, str, Repair], ...]] = (
    (f"{OPENLLMETRY}.shared", "_set_span_attribute", _leaving_out_ungiven),
    (f"{OPENLLMETRY}.shared.chat_wrappers", "_set_span_attribute", _leaving_out_ungiven),
    (f"{OPENLLMETRY}.shared.chat_wrappers", "_accumulate_stream_items", _forgiving),
    (f"{OPENLLMETRY}.v1.responses_wrappers", "_sanitize_sentinel_values", _leaving_out_reasoning),
)
"""The module with the fault, the name of its function, and the repair that is put around the function."""


def repair(module: ModuleType, name: str, around: Repair, patches: Patches) -> None:
    """Put a repair around a function of a module; nothing where the module has no such function."""
    function: Any = getattr(module, name, None)
    if callable(function):
        patches.set(module, name, functools.wraps(function)(around(function)))


_BYPASSED_CLASSES: Final = {
    "openai.resources.chat.completions": ("Completions", "AsyncCompletions"),
    "openai.resources.beta.chat.completions": ("Completions", "AsyncCompletions"),
    "openai.resources.completions": ("Completions", "AsyncCompletions"),
    "openai.resources.responses": ("Responses", "AsyncResponses"),
}
_BYPASSED_METHODS: Final = ("create", "parse")


def lead_around_openllmetry() -> Patches:
    """Put a bypass around the methods that OpenLLMetry has just wrapped.

    Its spans are for collectors. Where only the spool gets the spans around a request, a span of ours costs less.
    And OpenLLMetry 0.62.4 breaks requests of two kinds:

    - **Streams.** Of Chat Completions and Responses, the app gets an object that is an iterator and an async iterator
      in one. Libraries ask `isinstance(stream, AsyncIterator)`: instructor's `create_partial` and `create_iterable`
      then raise TypeError, and so does Starlette's `StreamingResponse(stream)`. Of Completions, the app gets a
      generator, which has no `close`, no `response` and no `with`; and an empty one of `with_raw_response`.
    - **Generators** as messages, tools or input. OpenLLMetry reads them first, and the model is asked with an empty
      list.
    """
    patches = Patches()
    for module, classes in _BYPASSED_CLASSES.items():
        for name in classes:
            owner: object = getattr(sys.modules.get(module), name, None)  # not in every version of openai
            for method in _BYPASSED_METHODS if isinstance(owner, type) else ():
                instrumented: Any = vars(owner).get(method)
                if isinstance(instrumented, FunctionWrapper):
                    patches.set(cast(type, owner), method, FunctionWrapper(cast(Any, instrumented), _ask))
    return patches


def _ask(instrumented: Any, _client: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 # as openai
    goes_around = bool(kwargs.get("stream"))
    if not goes_around and is_spooled_only(trace.get_current_span()):
        # A framework's call span around the request may lack the prompt; OpenLLMetry's span has it. So OpenLLMetry is
        # left out only where no such span is around, and a span of ours records the call.
        goes_around = current_call_span() is None
    for value in () if goes_around else kwargs.values():
        goes_around = goes_around or isinstance(value, Iterator)
    ask: Callable[..., Any] = instrumented.__wrapped__ if goes_around else instrumented
    return ask(*args, **kwargs)
