"""Repair of OpenLLMetry's streams: one that is closed early or cancelled ends its span at once.

Fault: such a stream ends its span when it is collected as garbage, which may be after its rollout. Invariant: a stream
that comes to its end, or to an exception that OpenLLMetry catches, is left to it.

Source: `ChatStream` and `ResponseStream` of opentelemetry-instrumentation-openai 0.62.4.
"""

import functools
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from opentelemetry.trace import Span

from art_otel.tracing.guest import Guest
from art_otel.tracing.openai.exchange import when_closed
from art_otel.tracing.openai.patches import Patches

_WATCHING: Final = Guest("a stream that is closed early may end its span late")


def end_when_left(module: ModuleType, name: str, finish: str, patches: Patches) -> None:
    """Let streams of class `name` finish, by their method `finish`, as soon as nobody will read on."""
    stream: Any = getattr(module, name, None)
    if not isinstance(stream, type) or not hasattr(stream, finish):
        return
    for method, wrap in (("__init__", _beginning), ("__next__", _reading), ("__anext__", _async_reading)):
        wrapped: Any = getattr(stream, method, None)
        if callable(wrapped):
            patches.set(stream, method, functools.wraps(wrapped)(wrap(wrapped, finish)))


def _beginning(begin: Callable[..., Any], finish: str) -> Callable[..., Any]:
    """A stream that finishes when the response is closed while nobody reads."""

    def beginning(self: Any, span: Span, response: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401 # theirs
        begin(self, span, response, *given, **named)
        found = weakref.ref(self)

        def closed() -> None:
            stream = found()
            if stream is not None and span.is_recording() and not getattr(stream, "_self_art_is_read", False):
                getattr(stream, finish)()

        with _WATCHING:
            when_closed(response.response, closed)

    return beginning


def _reading(step: Callable[..., Any], finish: str) -> Callable[..., Any]:
    def reading(self: Any) -> Any:  # noqa: ANN401 # theirs
        with _finishing(self, finish):
            return step(self)

    return reading


def _async_reading(step: Callable[..., Any], finish: str) -> Callable[..., Any]:
    async def reading(self: Any) -> Any:  # noqa: ANN401 # theirs
        with _finishing(self, finish):
            return await step(self)

    return reading


@contextmanager
def _finishing(stream: Any, finish: str) -> Generator[None]:  # noqa: ANN401 # theirs
    stream._self_art_is_read = True  # noqa: SLF001 # how wrapt keeps what is the proxy's own
    try:
        yield
    except Exception:
        raise
    except BaseException:
        getattr(stream, finish)()
        raise
    finally:
        stream._self_art_is_read = False  # noqa: SLF001 # as above
