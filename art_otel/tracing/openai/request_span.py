"""RequestSpan: one request of the client with all its tries, and the span of the call that it is.

Invariant: a request that no span of a call surrounds gets a standard inference span of art-otel. It begins where the
request leaves, is current until the client is done, and ends with the answer. Where a span surrounds the request, only
what its instrumentor does not catch is told to it. What an instrumentor writes afterwards is the same call by the rules
for duplicates.
"""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from art_otel.conventions.dialects.genai import API_TYPE, OPERATION_NAME, PROVIDERS, REQUEST_MODEL, RESPONSES
from art_otel.tracing.openai.call import CAPTURING, asks_for_completion, asks_responses, current_call_span, tell_error
from art_otel.tracing.openai.client import Method
from art_otel.tracing.openai.exchange import Options, Request, model_of
from art_otel.tracing.openai.openllmetry import is_openllmetry
from art_otel.tracing.openai.request import request_attributes_of
from art_otel.tracing.sdk.call_spans import is_call_by_now
from art_otel.tracing.tracer import tracer

_SUPPRESSED: Final = ("suppress_instrumentation", getattr(otel_context, "_SUPPRESS_INSTRUMENTATION_KEY", ""))
"""What an app, or an instrumentor that records the call itself, sets in the context, under either name of OTel's."""


class RequestSpan:
    """Holds the span of one request. `created_span` is made by art-otel, None if another span surrounds the request.

    It is None too where no span is wanted. `is_answered` says that the answer, which ends it, has begun.
    """

    def __init__(self) -> None:
        self.created_span: Span | None = None
        self.is_answered = False
        self._surrounding: Span | None = None
        self._request: Request | None = None
        self._is_begun = False
        self._context = ExitStack()

    @property
    def surrounding(self) -> Span | None:
        """The call's span that was around the request as it left, if that still records."""
        span = self._surrounding
        return span if span is not None and span.is_recording() else None

    def begin(self, client: Any, options: Options, *, may_record: bool) -> None:  # noqa: ANN401 # as openai
        """Before a try is sent, look for the span around it, and create one where there is none."""
        if self._is_begun:
            return
        self._is_begun = True
        self._surrounding = current_call_span()
        if self._surrounding is not None or not may_record or any(map(otel_context.get_value, _SUPPRESSED)):
            return
        if is_call_by_now(trace.get_current_span()):  # of a provider that is not recorded
            return
        self.created_span = _start(client, options)
        self._context.enter_context(
            trace.use_span(self.created_span, record_exception=False, set_status_on_exception=False)
        )

    def sent(self, request: Request) -> None:
        """Keep the request of a try, whose body is recorded if the call fails."""
        self._request = request

    def left(self, error: BaseException | None) -> None:
        """Finish when the client is done with the request, by an answer or by an error."""
        self._context.close()
        if self.created_span is not None and error is not None and self.created_span.is_recording():
            if self._request is not None:
                self.created_span.set_attributes(request_attributes_of(self._request.content))
            _fail(self.created_span, error)
        elif self.created_span is not None and not self.is_answered:
            self.created_span.end()
        elif isinstance(error, Exception) or error is None or self._surrounding is None:
            return
        elif is_openllmetry(self._surrounding):  # it catches Exception only, and would never end its span
            _fail(self._surrounding, error)


_current: Final[ContextVar[RequestSpan | None]] = ContextVar("art-otel-request", default=None)


def current_request() -> RequestSpan | None:
    """The request that this code is part of."""
    return _current.get()


def around_request(method: Method) -> Method:
    """Wrap `request` of a client, sync or async, which makes one call with all its tries."""

    def request(client: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as openai
        with _Around():
            return method(client, *args, **kwargs)

    async def async_request(client: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as openai
        with _Around():
            return await method(client, *args, **kwargs)

    return async_request if inspect.iscoroutinefunction(method) else request


def building(method: Method, *, may_record: Callable[[], bool]) -> Method:
    """Wrap `_build_request` of a client, which makes the request of one try."""

    def build(client: Any, options: Options, *args: Any, **kwargs: Any) -> Request:  # noqa: ANN401 # as openai
        span = _current.get() if asks_for_completion(options) else None
        if span is None:
            return method(client, options, *args, **kwargs)
        with CAPTURING:
            span.begin(client, options, may_record=may_record())
        request: Request = method(client, options, *args, **kwargs)
        span.sent(request)
        return request

    return build


class _Around:
    """Makes a RequestSpan current while one request runs."""

    def __enter__(self) -> None:
        self._span = RequestSpan()
        self._token = _current.set(self._span)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        _current.reset(self._token)
        with CAPTURING:
            self._span.left(error)


def _start(client: Any, options: Options) -> Span:  # noqa: ANN401 # as openai
    asked = model_of(options)
    operation = "chat" if asks_responses(options) or options.url.endswith("/chat/completions") else "text_completion"
    attributes: dict[str, str] = {OPERATION_NAME: operation, PROVIDERS[0]: "openai"}
    if asked is not None:
        attributes[REQUEST_MODEL] = asked
    if asks_responses(options):
        attributes[API_TYPE] = RESPONSES
    if host := getattr(client.base_url, "host", None):
        attributes["server.address"] = str(host)
    return tracer().start_span(
        operation if asked is None else f"{operation} {asked}", kind=SpanKind.CLIENT, attributes=attributes
    )


def _fail(span: Span, error: BaseException) -> None:
    tell_error(span, type(error).__name__)
    span.end()
