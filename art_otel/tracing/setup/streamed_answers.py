"""Streamed answers: what an answer of Flask or Django calls while the server reads it is in the request's rollout.

Their instrumentors end a request's span when the view has returned, and a generator makes its parts only afterwards.

Invariant: a request's span that is in a rollout, and whose answer is streamed, ends when the answer was read to its
end, failed or was closed, and its parts are made in the request's context. That of every other request, and of a file,
ends as it did before. Flask sends a signal of each answer, and Django's instrumentor has a hook for it: nothing of
theirs is replaced. What is dropped unread, as where a server fails, ends too.
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
    """Learn of the answers of Flask and Django, once the app has imported them. Call it once a process."""
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
    """The app's own hook, and ours behind it."""

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
    """A request's span, which its instrumentor no longer ends, and the context of what makes the answer."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        super().__init__(trace.set_span_in_context(span))
        self._span = span
        vars(span)[_END] = _not_yet

    @classmethod
    def of(cls, span: Span) -> Self | None:
        """Keep a span open that is in a rollout; None for any other."""
        return cls(span) if rollout_id_of(span) is not None and _END not in vars(span) else None

    def __del__(self) -> None:
        self.end()

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with what making the answer raised. Again is nothing."""
        with handle_internal_errors:
            if vars(self._span).pop(_END, None) is not None:
                from art_otel.tracing.api.run import record_outcome  # noqa: PLC0415 # for apps that stream alone

                record_outcome(self._span, error)
                self._span.end()


def _not_yet(end_time: int | None = None) -> None:
    """In the place of a span's own `end`."""


class _Parts(Iterator[Any]):
    """The parts of an answer."""

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
        """End it, as a server does when it has sent the answer or nobody reads on."""
        try:
            close = getattr(self._parts, "close", None)
            if close is not None:
                self._request.inside(close)
        finally:
            self._request.end()


class _AsyncParts(AsyncIterator[Any]):
    """The parts of an answer that come asynchronously."""

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
        """End it: Django calls this when it has sent the answer or nobody reads on."""
        self._request.end()
