"""Content: left out of spans where the app's owner wants their structure only.

Invariant: what was said to a model and by it is gone before any exporter sees the span: messages, tools, bodies,
tokens, and the messages of errors, which quote them. Who called which model when, with which numbers, how it finished
and what the app itself told us (`art.metadata.*`, `art.extra.*`, `art.log`) stays.
"""

import json
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from opentelemetry.sdk.trace import ReadableSpan

from art_otel import attributes
from art_otel.conventions.content_names import MESSAGE_LISTS, is_text, names_content
from art_otel.spans import Attributes, Value
from art_otel.tracing.sdk.span_parts import SpanParts, as_dict, can_put, event_with, link_with

logger = logging.getLogger(__name__)

_PARAMETERS: Final = frozenset({attributes.REQUEST_PARAMETERS, "llm.invocation_parameters"})
_KEPT_TEXTS: Final = frozenset({"model", "previous_response_id", "reasoning_effort", "service_tier"})
"""Parameters of a request that are text and tell nothing of what was said."""

_ALWAYS: Final = {"USE_OTEL_LITELLM_REQUEST_SPAN": "true"}
"""Else LiteLLM's callback writes each call onto the span that is current, over the one before and its status."""

_ON: Final = {
    **_ALWAYS,
    "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content",
    "OPENINFERENCE_HIDE_INPUTS": "false",
    "OPENINFERENCE_HIDE_OUTPUTS": "false",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "TRACELOOP_TRACE_CONTENT": "true",
}
_OFF: Final = {
    **_ALWAYS,
    "OPENINFERENCE_HIDE_INPUTS": "true",
    "OPENINFERENCE_HIDE_OUTPUTS": "true",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT",
    "TRACELOOP_TRACE_CONTENT": "false",
}


def content_environment(capture: bool) -> dict[str, str]:  # noqa: FBT001 # the one thing it is told
    """The environment variables that make the instrumentors record calls whole, or without content; if not set yet.

    docs/how-to/capture-content.md tells which instrumentor reads which.
    """
    return dict(_ON if capture else _OFF)


def without_content(span: ReadableSpan) -> None:
    """Take the content out of a finished span, in place."""
    _structure(span).put(span)


def content_free(span: ReadableSpan) -> ReadableSpan:
    """A copy of a span, which may still run, without content."""
    return _structure(span).copy(span)


def leave_content_out() -> Callable[[ReadableSpan], ReadableSpan]:
    """What takes content out of finished spans, in place where the SDK lets one; gives what may be written."""
    if can_put():
        return _emptied
    logger.warning(
        "art-otel: this version of the OpenTelemetry SDK does not let finished spans be changed; what art-otel writes"
        " is without content, what other exporters of this app send is NOT"
    )
    return content_free


def _emptied(span: ReadableSpan) -> ReadableSpan:
    without_content(span)
    return span


def _structure(span: ReadableSpan) -> SpanParts:
    """What the span may say. Nothing raises into the app: what cannot be read is content as a whole."""
    try:
        return _read(span)
    except Exception:  # whatever it was, nothing may leak
        logger.warning("art-otel: a span could not be read, its contents are left out", exc_info=True)
        return SpanParts.emptied(span, span.name, {})


def _read(span: ReadableSpan) -> SpanParts:
    parts = SpanParts.of(span)
    parts.attributes = _kept(parts.attributes)
    parts.events = [_event(event) for event in parts.events if event.name not in MESSAGE_LISTS]
    parts.links = [link_with(link, _kept(as_dict(link.attributes))) for link in parts.links]
    parts.description = None
    return parts


def _event(event: Any) -> Any:  # noqa: ANN401 # the SDK's Event is deprecated as a name
    return event_with(event, name=event.name, attributes=_kept(as_dict(event.attributes)))


def _kept(unfiltered: Attributes) -> dict[str, Value]:
    kept: dict[str, Value] = {}
    for name, value in unfiltered.items():
        if name in _PARAMETERS:
            kept[name] = _numbers_of(value)
        elif not (names_content(name) and is_text(value)):
            kept[name] = value
    return kept


def _numbers_of(parameters: Value) -> str:
    """The parameters of a request without texts, as JSON text; `{}` where they cannot be read."""
    try:
        decoded: Value = json.loads(parameters) if isinstance(parameters, str) else parameters
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        return "{}"
    named = cast(dict[str, Value], decoded).items()
    return json.dumps({name: value for name, value in named if _is_number(value) or name in _KEPT_TEXTS})


def _is_number(value: Value) -> bool:
    return value is None or isinstance(value, (bool, int, float))
