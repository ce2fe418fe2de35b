"""Repairs of OpenLLMetry's instrumentor for openai, whose errors would reach the app because we started it.

Invariant: each repair stands for one fault and is named with it. Where the code is not as the fault has it, it is left
alone; once the fault is gone, its repair changes nothing.

Source: opentelemetry-instrumentation-openai 0.62.4.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeAlias

from opentelemetry.trace import Span

from art_otel.tracing.internal_errors import InternalErrorHandler
from art_otel.tracing.openai.client import Patches

_PACKAGE: Final = "opentelemetry.instrumentation.openai"
_OTEL_S: Final = "opentelemetry.instrumentation.genai.openai"
_UNGIVEN: Final = ("Omit", "NotGiven")
_READING_CHUNK: Final = InternalErrorHandler("OpenLLMetry could not read a chunk, and may miss something of the answer")

Function: TypeAlias = Callable[..., Any]
Repair: TypeAlias = Callable[[Function], Function]


def is_openllmetry(span: Span) -> bool:
    """Whether OpenLLMetry's instrumentor of the openai client made the span."""
    return _scope(span).startswith(f"{_PACKAGE}.")


def is_client_s(span: Span) -> bool:
    """Whether an instrumentor made the span that writes as messages what the client sent and got, and nothing else."""
    return _scope(span).startswith((f"{_PACKAGE}.", _OTEL_S))


def _scope(span: Span) -> str:
    return str(getattr(getattr(span, "instrumentation_scope", None), "name", ""))


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
    f"{_PACKAGE}.shared.chat_wrappers": {
        "_handle_request": _leaving_out_ungiven_of_chat,
        "_accumulate_stream_items": _forgiving,
    },
    f"{_PACKAGE}.shared.completion_wrappers": {"_set_request_attributes": _leaving_out_ungiven},
    f"{_PACKAGE}.shared.embeddings_wrappers": {"_set_request_attributes": _leaving_out_ungiven},
    f"{_PACKAGE}.v1.responses_wrappers": {"_sanitize_sentinel_values": _leaving_out_reasoning},
}
"""By the module that has the fault and the name of its function."""


def repair(module: ModuleType, repairs: dict[str, Repair], patches: Patches) -> None:
    """Repair the functions of a module that it has."""
    for name, around in repairs.items():
        function: Any = getattr(module, name, None)
        if callable(function):
            patches.set(module, name, functools.wraps(function)(around(function)))
