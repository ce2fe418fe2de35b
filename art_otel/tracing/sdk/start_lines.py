"""StartLines: the line of a span that has just begun. A crash leaves it as the only trace of a call.

Invariant: a start says what `start_of` gives, rewritten as ended spans are. Calls of one rollout begin alike, but for
their ids and times: what they share is rewritten and encoded once.
"""

from collections.abc import Callable
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, Span

from art_otel.spans import Value
from art_otel.tracing.sdk.otlp_json_encoder import LineTemplate, OtlpJsonEncoder
from art_otel.tracing.sdk.span_parts import as_dict

_START_ATTRIBUTES: Final = (
    *("art.rollout.", "art.group.", "art.split", "art.training.", "art.policy.", "art.step.", "art.metadata."),
    *("gen_ai.operation.name", "gen_ai.request.model", "openinference.span.kind", "llm.request.type"),
)
_MAX_TEMPLATES: Final = 256


class StartLines:
    """Encodes the starts of spans with `encoder`, after `rewrite`."""

    def __init__(self, encoder: OtlpJsonEncoder, rewrite: Callable[[ReadableSpan], ReadableSpan]) -> None:
        self._encoder = encoder
        self._rewrite = rewrite
        self._templates: dict[object, tuple[LineTemplate, object]] = {}

    def line(self, span: Span) -> bytes:
        """Return the line of a span that has begun."""
        attributes, shared = _start_attributes(span), (span.resource, span.instrumentation_scope)
        if any(type(value) is not str for value in attributes.values()):  # 1, 1.0 and True would be one key
            return self._encoder.line(self._rewrite(start_of(span)))
        key = (span.name, span.kind, *map(id, shared), *attributes.items())
        cached = self._templates.get(key)
        if cached is None:
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.clear()
            cached = (self._encoder.template(self._rewrite(start_of(span))), shared)  # held: no other gets their ids
            self._templates[key] = cached
        return cached[0].line(span)


def start_of(span: Span) -> ReadableSpan:
    """Return what is recorded of a running span: its name, ids, time, and the attributes that say what it is.

    Instrumentors put content on a span when it starts; that is recorded once, when the span has ended.
    """
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=_start_attributes(span),
        kind=span.kind,
        start_time=span.start_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _start_attributes(span: Span) -> dict[str, Value]:
    return {name: value for name, value in as_dict(span.attributes).items() if name.startswith(_START_ATTRIBUTES)}
