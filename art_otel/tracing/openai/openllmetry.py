"""Repairs of OpenLLMetry's instrumentor for openai: its errors that would reach the app, and calls that it loses.

Invariant: each repair stands for one fault and is named with it. Where the code is not as the fault has it, it is left
alone; once the fault is gone, its repair changes nothing.

Source: opentelemetry-instrumentation-openai 0.62.4.
"""

import functools
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from types import ModuleType
from typing import Any, Final, TypeAlias, cast

from opentelemetry import trace
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Span, StatusCode

from art_otel.tracing.guest import Guest, say_once
from art_otel.tracing.openai.call import CAPTURING
from art_otel.tracing.openai.openllmetry_streams import end_when_left
from art_otel.tracing.openai.patches import Patches
from art_otel.tracing.openai.promise import Arguments, last_promise, promise

_PACKAGE: Final = "opentelemetry.instrumentation.openai"
_MAX_CHOICES: Final = 1024
_UNGIVEN: Final = ("Omit", "NotGiven")
_PROMISING: Final = ("_sanitize_sentinel_values", "_set_request_attributes", "should_send_prompts")
"""What is used of its wrappers for the Responses API; since 0.49.6."""
_READING_CHUNK: Final = Guest("OpenLLMetry could not read a chunk, and may miss something of the answer")


def _repair_chat(module: ModuleType, patches: Patches) -> None:
    _end_lost_spans(module, patches)
    _leave_out_ungiven(module, patches)
    _forgive(module, patches)
    end_when_left(module, "ChatStream", "_ensure_cleanup", patches)


def _repair_completions(module: ModuleType, patches: Patches) -> None:
    """Fault: a stream that is not read to its end never ends its span."""
    _end_lost_spans(module, patches)
    _leave_out_ungiven(module, patches)
    _replace(module, "_build_from_streaming_response", _ending, patches)
    _replace(module, "_abuild_from_streaming_response", _async_ending, patches)


def _repair_embeddings(module: ModuleType, patches: Patches) -> None:
    _leave_out_ungiven(module, patches)


def _repair_responses(module: ModuleType, patches: Patches) -> None:
    """Faults: `reasoning` that is no dict, a raw stream, and an answer that is not complete cost the span.

    And the span starts when the response is there already, so it is not current when its answer begins.
    """

    def sanitizing(sanitize: Callable[..., Any]) -> Callable[..., Any]:
        def sanitizing(kwargs: dict[str, Any]) -> dict[str, Any]:
            sane = sanitize(kwargs)
            if isinstance(kwargs, Arguments):  # of a call that is promised: its stream wants them too
                return sane
            with CAPTURING:
                held = promise(sane, tells_content=bool(module.should_send_prompts()))
                if not isinstance(held.get("reasoning", {}), dict):
                    held["reasoning"] = dict(getattr(held["reasoning"], "__dict__", ()))
                return held
            return sane

        return sanitizing

    def describing(describe: Callable[..., Any]) -> Callable[..., Any]:
        def describing(span: Span, *given: Any, **named: Any) -> Any:  # noqa: ANN401 # as OpenLLMetry
            with CAPTURING:
                made = last_promise()
                if made is not None:
                    made.keep(span)
            return describe(span, *given, **named)

        return describing

    if all(hasattr(module, name) for name in _PROMISING):
        _replace(module, "_sanitize_sentinel_values", sanitizing, patches)
        _replace(module, "_set_request_attributes", describing, patches)
    else:
        say_once("this version of OpenLLMetry is not known: calls of the Responses API may be missing or not exact")
    end_when_left(module, "ResponseStream", "_process_complete_response", patches)


Repair: TypeAlias = Callable[[ModuleType, Patches], None]

REPAIRS: Final[dict[str, Repair]] = {
    f"{_PACKAGE}.shared.chat_wrappers": _repair_chat,
    f"{_PACKAGE}.shared.completion_wrappers": _repair_completions,
    f"{_PACKAGE}.shared.embeddings_wrappers": _repair_embeddings,
    f"{_PACKAGE}.v1.responses_wrappers": _repair_responses,
}
"""By the module that has the faults."""


def _replace(
    owner: type | ModuleType, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], patches: Patches
) -> None:
    function: Any = getattr(owner, name, None)
    if callable(function):
        patches.set(owner, name, functools.wraps(function)(wrap(function)))


def _leave_out_ungiven(module: ModuleType, patches: Patches) -> None:
    """Fault: a parameter that stands for one that was not given is written, which OTel's SDK complains about."""

    def setting(write: Callable[..., Any]) -> Callable[..., Any]:
        def setting(span: Span, name: str, value: object) -> None:
            if not _is_ungiven(value):
                write(span, name, value)

        return setting

    def describing(describe: Callable[..., Any]) -> Callable[..., Any]:
        def describing(span: Span, kwargs: dict[str, Any], *given: Any, **named: Any) -> Any:  # noqa: ANN401 # theirs
            given_only = {name: value for name, value in kwargs.items() if not _is_ungiven(value)}
            return describe(span, given_only, *given, **named)

        return describing

    _replace(module, "_set_span_attribute", setting, patches)
    _replace(module, "_set_request_attributes", describing, patches)


def _is_ungiven(value: object) -> bool:
    kind = type(value)
    return kind.__name__ in _UNGIVEN and kind.__module__.partition(".")[0] == "openai"


def _forgive(module: ModuleType, patches: Patches) -> None:
    """Fault: a choice that streams before one with a lower index raises IndexError into the app."""

    def forgiving(accumulate: Callable[..., Any]) -> Callable[..., Any]:
        def forgiving(item: Any, complete_response: Any) -> None:  # noqa: ANN401 # as OpenLLMetry
            with _READING_CHUNK:
                _make_room(item, complete_response["choices"])
                accumulate(item, complete_response)

        return forgiving

    _replace(module, "_accumulate_stream_items", forgiving, patches)


def _make_room(item: Any, choices: list[Any]) -> None:  # noqa: ANN401 # as OpenLLMetry
    last = max((choice.index for choice in item.choices or ()), default=-1)
    missing = range(len(choices), min(last, _MAX_CHOICES) + 1)
    choices += [{"index": index, "message": {"content": "", "role": ""}} for index in missing]


def _end_lost_spans(module: ModuleType, patches: Patches) -> None:
    """Fault: a call that is cancelled or interrupted never ends its span, because only Exception is caught."""
    if getattr(module, "trace", None) is trace:
        patches.set(module, "trace", _Trace())


class _Trace:
    """`opentelemetry.trace` whose `use_span` ends the span of a block that was left by a BaseException."""

    def __getattr__(self, name: str) -> object:
        return getattr(trace, name)

    @contextmanager
    def use_span(self, span: Span, *given: bool, **named: bool) -> Generator[Span]:
        """As that of OTel."""
        try:
            with trace.use_span(span, *given, **named) as used:
                yield used
        except Exception:
            raise
        except BaseException as error:
            if span.is_recording():
                span.set_attribute(ERROR_TYPE, type(error).__name__)
                span.set_status(StatusCode.ERROR, str(error))
                span.end()
            raise


def _ending(build: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def ending(span: Span, *given: Any, **named: Any) -> Iterator[Any]:  # noqa: ANN401 # as OpenLLMetry
        try:
            yield from build(span, *given, **named)
        finally:
            if span.is_recording():
                span.end()

    return ending


def _async_ending(build: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    async def ending(span: Span, *given: Any, **named: Any) -> AsyncIterator[Any]:  # noqa: ANN401 # as OpenLLMetry
        try:
            async with aclosing(cast(Any, build(span, *given, **named))) as items:
                async for item in items:
                    yield item
        finally:
            if span.is_recording():
                span.end()

    return ending
