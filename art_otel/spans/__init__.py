"""Span and SpanTree: frozen records of what a source delivered, with grouping, duplicates and orphans."""

from art_otel.spans.damage import MAX_LISTED, Damage, DamageReason, in_order, list_damages, list_in_order
from art_otel.spans.size import size_of
from art_otel.spans.span import (
    Attributes,
    Event,
    Link,
    LogRecord,
    Resource,
    Scope,
    Span,
    SpanKey,
    SpanKind,
    StatusCode,
    Value,
)
from art_otel.spans.tree import SpanTree, grow_tree

__all__ = [
    "MAX_LISTED",
    "Attributes",
    "Damage",
    "DamageReason",
    "Event",
    "Link",
    "LogRecord",
    "Resource",
    "Scope",
    "Span",
    "SpanKey",
    "SpanKind",
    "SpanTree",
    "StatusCode",
    "Value",
    "grow_tree",
    "in_order",
    "list_damages",
    "list_in_order",
    "size_of",
]
