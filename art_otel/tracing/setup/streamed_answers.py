"""Streamed answers: keeps LLM calls that Flask or Django make while they stream an answer in the request's rollout.

    view returns a generator ─► the instrumentor ends the request's span ─► the server reads the generator: LLM calls
                                └─ here: the span ends only after the generator ─────────────────────────────────────┘

Invariant: if a request's span is in a rollout and its answer is streamed, the span ends when the answer was read to its
end, failed, was closed, or was dropped unread; and the parts are made in the request's context. All other spans of
requests, and those of files, end as before. The answers are found by a signal of Flask and a hook of Django's
instrumentor, so no function of theirs is replaced.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final, Self, cast

from opentelemetry import trace
from opentelemetry.trace import Span
from wrapt import wrap_function_wrapper

from art_otel.tracing.api.context import KeptContext, rollout_id_of
from art_otel.tracing.internal_errors import after_import, handle_internal_errors

_FLASK: Final = "flask"
_DJANGO: Final = "opentelemetry.instrumentation.django"
_END: Final = "end"

Hook = Callable[[Span, Any, Any], None]


def watch_answers() -> None:
    """Watch the answers of Flask and Django, once the app has imported them. Call it once in a process."""
    after_import(_FLASK, _watch_flask)
    after_import(_DJANGO, _watch_django)


def _watch_flask() -> None:
    cast(Any, sys.modules[_FLASK]).request_finished.connect(_on_flask_answer)


def _on_flask_answer(_: object, response: Any, **__: object) -> None:  # noqa: ANN401 # Flask's
    with handle_internal_errors:
        if response.is_streamed and not response.direct_passthrough:
            request = _OpenRequest.of(trace.get_current_span())
            if request is not None:
                response.response = _Parts(response.response, request)


def _watch_django() -> None:
    wrap_function_wrapper(_DJANGO, "DjangoInstrumentor.instrument", _with_hook)


def _with_hook(instrument: Callable[..., object], _: object, args: tuple[Any, ...], keywords: dict[str, Any]) -> object:
    theirs = cast(Hook | None, keywords.get("response_hook"))
    return instrument(*args, **{**keywords, "response_hook": _after(theirs)})


def _after(theirs: Hook | None) -> Hook:
    """A hook that calls the app's own hook, and then ours."""

    def on_django_answer(span: Span, request: Any, response: Any) -> None:  # noqa: ANN401 # Django's
        try:
            if theirs is not None:
                theirs(span, request, response)
        finally:
            with handle_internal_errors:
                _keep_open(span, response)

    return on_django_answer


def _keep_open(span: Span, response: Any) -> None:  # noqa: ANN401 # Django's
    if not response.streaming or getattr(response, "file_to_stream", None) is not None:
        return
    request = _OpenRequest.of(span)
    if request is not None:
        parts = response.streaming_content
        response.streaming_content = (_AsyncParts if response.is_async else _Parts)(parts, request)


class _OpenRequest(KeptContext):
    """A request's span, whose `end` by the instrumentor does nothing, and the context in which its answer is made."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        super().__init__(trace.set_span_in_context(span))
        self._span = span
        # On this one span: its instrumentor calls `end` when the view returns, which must do nothing now.
        vars(span)[_END] = _not_yet

    @classmethod
    def of(cls, span: Span) -> Self | None:
        """Keep a span open, if it is in a rollout; None for any other span."""
        return cls(span) if rollout_id_of(span) is not None and _END not in vars(span) else None

    def __del__(self) -> None:
        self.end()

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with the exception that making the answer raised. A second call does nothing."""
        with handle_internal_errors:
            if vars(self._span).pop(_END, None) is not None:
                from art_otel.tracing.api.run import record_outcome  # noqa: PLC0415 # for apps that stream alone

                record_outcome(self._span, error)
                self._span.end()


def _not_yet(end_time: int | None = None) -> None:
    """Stands in for a span's own `end`, and does nothing."""


class _Parts(Iterator[Any]):
    """The parts of an answer, made in the request's context; the last one ends the request's span."""

    def __init__(self, parts: Iterable[Any], request: _OpenRequest) -> None:
        self._parts = parts
        self._iterator = iter(parts)
        self._request = request

    def __next__(self) -> Any:  # noqa: ANN401 # a part
        try:
            return self._request.inside(next, self._iterator)
        except BaseException as error:
            self._request.end(None if isinstance(error, StopIteration) else error)
            raise

    def close(self) -> None:
        """End the answer. Servers call this when they have sent the answer, or when the client hung up."""
        try:
            close = getattr(self._parts, "close", None)
            if close is not None:
                self._request.inside(close)
        finally:
            self._request.end()


class _AsyncParts(AsyncIterator[Any]):
    """The parts of an answer, for an asynchronous server."""

    def __init__(self, parts: AsyncIterator[Any], request: _OpenRequest) -> None:
        self._iterator = aiter(parts)
        self._request = request

    async def __anext__(self) -> Any:  # noqa: ANN401 # a part
        try:
            return await self._request.inside_async(anext(self._iterator))
        except BaseException as error:
            self._request.end(None if isinstance(error, StopAsyncIteration) else error)
            raise

    def close(self) -> None:
        """End the answer. Django calls this when it has sent the answer, or when the client hung up."""
        self._request.end()
