"""Promise: OpenLLMetry has begun a call of the Responses API, and is to record it.

Invariant: it is kept once, by the first span that is started for the call or, when OpenLLMetry let go of the call
without one, by a span of ours. A call that OpenLLMetry leaves alone, because the app switched it off, has no promise.
"""

import inspect
import weakref
from contextvars import ContextVar
from time import time_ns
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry.trace import Span, SpanKind

from art_otel.conventions.dialects.genai import API_TYPE, OPERATION_NAME, PROVIDERS, REQUEST_MODEL, RESPONSES
from art_otel.tracing.openai.call import (
    CAPTURING,
    CapturedCall,
    asks_responses,
    current_call_span,
    is_call_of_rollout,
    tell_error,
)
from art_otel.tracing.openai.client import Method
from art_otel.tracing.openai.exchange import Options
from art_otel.tracing.openai.request import messages, model, parameters, unsent
from art_otel.tracing.tracer import tracer

_CHAT: Final = "chat"


class Arguments(dict[str, Any]):
    """The arguments of a call. OpenLLMetry holds them as long as it may start a span for the call."""

    promise: "Promise"


class Promise:
    """`tells_content`: what was asked may be recorded."""

    def __init__(self, *, tells_content: bool) -> None:
        self._tells_content = tells_content
        self._context = otel_context.get_current()
        self._started = time_ns()
        self._call: CapturedCall | None = None
        self._is_kept = False

    @property
    def is_open(self) -> bool:
        """Whether its call has neither an answer nor a span."""
        return self._call is None and not self._is_kept

    def answered(self, call: CapturedCall) -> None:
        """The answer to its call begins."""
        self._call = call

    def keep(self, span: Span) -> None:
        """A span has started for its call; one that does not record keeps it too, because somebody wants none."""
        self._is_kept = True
        if self._call is not None and span.is_recording() and is_call_of_rollout(span):
            call, self._call = self._call, None
            call.tells_content = self._tells_content
            call.write_at_end_of(span)

    def broken(self, error: BaseException, options: Options) -> None:
        """Its call was left without an answer, by what OpenLLMetry does not catch."""
        self._is_kept = True
        span = self._start(unsent(options))
        tell_error(span, type(error).__name__)
        span.end()

    def __del__(self) -> None:
        """OpenLLMetry let go of the call."""
        if self._is_kept or self._call is None:
            return
        with CAPTURING:
            if not self._call.is_put_off:
                self._record(self._call)

    def _record(self, call: CapturedCall) -> None:
        span = self._start(call.response.request.content)
        if is_call_of_rollout(span):
            call.write_at_end_of(span)
        call.when_over(lambda: span.end() if span.is_recording() else None)

    def _start(self, body: bytes) -> Span:
        """A span as instrumentors make them, that began when the call did."""
        asked = model(body)
        known = {OPERATION_NAME: _CHAT, PROVIDERS[0]: "openai", API_TYPE: RESPONSES}
        if asked is not None:
            known[REQUEST_MODEL] = asked
        span = tracer().start_span(
            f"{_CHAT} {asked}" if asked else _CHAT,
            context=self._context,
            kind=SpanKind.CLIENT,
            attributes=known,
            start_time=self._started,
        )
        if is_call_of_rollout(span):
            span.set_attributes({**parameters(body), **(messages(body) if self._tells_content else {})})
        return span


_last: ContextVar["weakref.ref[Promise] | None"] = ContextVar("art-otel-promise", default=None)
"""The promise that OpenLLMetry made last in a context."""


def promise(arguments: dict[str, Any], *, tells_content: bool) -> Arguments:
    """OpenLLMetry begins a call with these arguments; several of its wrappers around one call promise it together."""
    if isinstance(arguments, Arguments):
        return arguments
    made = last_promise()
    if made is None or not made.is_open:
        made = Promise(tells_content=tells_content)
        _last.set(weakref.ref(made))
    held = Arguments(arguments)
    held.promise = made
    return held


def last_promise() -> Promise | None:
    """The last promise of this context, while OpenLLMetry may keep it."""
    found = _last.get()
    return None if found is None else found()


def breaking(method: Method) -> Method:
    """`request` of a client, sync or async, which makes one call with all its tries."""

    def leave(error: BaseException, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not isinstance(error, Exception):
            with CAPTURING:
                _break(error, named["options"] if "options" in named else given[1])

    def request(client: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 # as openai
        try:
            return method(client, *given, **named)
        except BaseException as error:
            leave(error, given, named)
            raise

    async def async_request(client: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 # as openai
        try:
            return await method(client, *given, **named)
        except BaseException as error:
            leave(error, given, named)
            raise

    return async_request if inspect.iscoroutinefunction(method) else request


def _break(error: BaseException, options: Options) -> None:
    """A request was left without an answer."""
    made = last_promise()
    if made is not None and made.is_open and asks_responses(options) and current_call_span() is None:
        made.broken(error, options)
