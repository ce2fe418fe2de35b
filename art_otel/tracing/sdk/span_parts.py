"""SpanParts: what a finished span says, so that it can be said in other words before anybody else reads it.

Invariant: `put` changes the one ReadableSpan that the SDK hands to every processor, so what they export is changed too;
identity, times, order and the counts of what was dropped stay. It needs names that the SDK keeps private; where they
are others it raises, so that nothing is written of what it could not change.

Without content, what was said to a model and by it is gone: messages, tools, bodies, tokens, and the messages of
errors, which quote them. Who called which model when, with which numbers, how it finished and what the app itself told
us (`art.metadata.*`, `art.extra.*`, `art.log`) stays.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status

from art_otel.attributes import ROLLOUT_ID
from art_otel.conventions.content_names import MESSAGE_LISTS, PARAMETERS, is_text, names_content
from art_otel.spans import Attributes, Value
from art_otel.tracing.sdk.span_lines import as_dict

_NAMES: Final = ("_name", "_attributes", "_events", "_links", "_status", "_resource", "_instrumentation_scope")
"""Where the SDK keeps the parts of a finished span."""


@dataclass(kw_only=True, slots=True)
class SpanParts:
    """The parts of a span that hold text. `events` are the SDK's, `description` is the status's."""

    name: str
    attributes: dict[str, Value]
    events: list[Any]
    links: list[Link]
    description: str | None
    resource: Resource
    scope: InstrumentationScope | None

    @classmethod
    def of(cls, span: ReadableSpan) -> "SpanParts":
        """Read the parts of a span, which may still run."""
        return cls(
            name=span.name,
            attributes=as_dict(span.attributes),
            events=list(span.events),
            links=list(span.links),
            description=span.status.description,
            resource=span.resource,
            scope=span.instrumentation_scope,
        )

    @classmethod
    def emptied(cls, span: ReadableSpan, name: str, attributes: Attributes) -> "SpanParts":
        """Return the parts of a span that could not be read: only its rollout's id is kept."""
        rollout_id = (span.attributes or {}).get(ROLLOUT_ID)
        kept = {} if rollout_id is None else {ROLLOUT_ID: rollout_id}
        return cls(
            name=name,
            attributes={**attributes, **kept},
            events=[],
            links=[],
            description=None,
            resource=Resource({}),
            scope=None,
        )

    def put(self, span: ReadableSpan) -> None:
        """Write these parts to the finished span. Raises AttributeError where its SDK keeps them elsewhere."""
        for name, part in self._rebuilt(span).items():
            if name not in vars(span):
                raise AttributeError(f"this version of the OpenTelemetry SDK has no {name} of a finished span")
            setattr(span, name, part)

    def _rebuilt(self, span: ReadableSpan) -> dict[str, Any]:
        parts = (
            self.name,
            bounded(self.attributes, span.dropped_attributes),
            _listed(self.events, span.dropped_events),
            _listed(self.links, span.dropped_links),
            span.status if self.description == span.status.description else self._status(span),
            self.resource,
            self.scope,
        )
        return dict(zip(_NAMES, parts, strict=True))

    def _status(self, span: ReadableSpan) -> Status:
        return Status(span.status.status_code, self.description)


def with_attributes(span: ReadableSpan, added: Attributes) -> ReadableSpan:
    """Add attributes to a finished span, in place."""
    parts = SpanParts.of(span)
    parts.attributes.update(added)
    parts.put(span)
    return span


def bounded(attributes: Attributes, dropped: int) -> BoundedAttributes:
    """Return attributes in the type in which a finished span holds them."""
    limited = BoundedAttributes(attributes=attributes, immutable=True)
    limited.dropped = dropped
    return limited


def event_with(event: Any, *, name: str, attributes: Attributes) -> Any:  # noqa: ANN401 # the class's name is deprecated
    """The SDK's event with another name and attributes."""
    return type(event)(name=name, attributes=bounded(attributes, event.dropped_attributes), timestamp=event.timestamp)


def link_with(link: Link, attributes: Attributes) -> Link:
    """The link with other attributes."""
    return Link(link.context, bounded(attributes, link.dropped_attributes))


def _listed(entries: Sequence[Any], dropped: int) -> Sequence[Any]:
    listed = cast(Any, BoundedList).from_seq(None, entries)
    listed.dropped = dropped
    return listed


logger = logging.getLogger(__name__)

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


def without_content(span: ReadableSpan) -> ReadableSpan:
    """Take the content out of a finished span, in place."""
    _structure(span).put(span)
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
        if name in PARAMETERS:
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
