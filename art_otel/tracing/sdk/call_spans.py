"""Call spans: which of the app's spans are LLM calls.

Invariant: a span that ended is a call exactly when a dump's is. Instrumentors of clients say so when a span starts;
those of frameworks may say so only by what they put on it before it ends.
"""

from typing import cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span

from art_otel import spans
from art_otel.conventions import Role, may_be_call, may_have_role, role_of
from art_otel.tracing.sdk.span_parts import as_dict


def is_call(span: ReadableSpan) -> bool:
    """Whether a span that has just started will be an LLM call."""
    return may_be_call(_scope(span), span.name, span.attributes or {})


def was_call(span: ReadableSpan) -> bool:
    """Whether a span is an LLM call by all that it says."""
    return _role(span) == "inference"


def runs_code(span: Span) -> bool:
    """Whether a span is a tool's or an agent's, whose calls are its own."""
    return isinstance(span, ReadableSpan) and _role(span) in ("tool", "agent")


def _role(span: ReadableSpan) -> Role:
    """Return the role of a span. Most spans have no attribute that could decide it, so these are not converted."""
    attributes = span.attributes or {}
    if not span.dropped_attributes and not may_have_role(attributes):
        return "other"
    snapshot = spans.Span(
        trace_id="",
        span_id="",
        name=span.name,
        kind=cast(spans.SpanKind, span.kind.name.lower()),
        start_ns=0,
        end_ns=None,
        attributes=as_dict(attributes),
        scope=spans.Scope(name=_scope(span)),
        dropped_attributes_count=span.dropped_attributes,
    )
    return role_of(snapshot)


def is_call_by_now(span: Span) -> bool:
    """Whether a span that runs is an LLM call, by how it began or by what it has come to say."""
    return isinstance(span, ReadableSpan) and (is_call(span) or was_call(span))


def _scope(span: ReadableSpan) -> str:
    scope = span.instrumentation_scope
    return "" if scope is None else scope.name
